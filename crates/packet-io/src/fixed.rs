//! Arrays whose addresses are passed to the kernel.

use std::ptr::NonNull;

/// An array that neither moves nor grows. Pointers into it ([`Fixed::pointer`]) stay valid while the value lives, also
/// across reads and writes by reference, because every reference is derived from the same pointer. (Pointers taken from
/// a vector become invalid when the vector is borrowed again.)
pub(crate) struct Fixed<T> {
    elements: NonNull<[T]>,
}

// SAFETY: the value owns the elements exclusively.
unsafe impl<T: Send> Send for Fixed<T> {}

impl<T> Fixed<T> {
    pub(crate) fn new(elements: Vec<T>) -> Self {
        let elements = NonNull::from(Box::leak(elements.into_boxed_slice()));
        Self { elements }
    }

    pub(crate) const fn len(&self) -> usize {
        self.elements.len()
    }

    /// The pointer to the element. Reading or writing through it requires the same access as borrowing the value: the
    /// kernel may write through it only during a call that borrows the value mutably.
    ///
    /// # Panics
    /// The index is beyond the end.
    pub(crate) const fn pointer(&self, index: usize) -> *mut T {
        assert!(index < self.len());
        // SAFETY: the element is within the array, as checked above.
        unsafe { self.elements.as_ptr().cast::<T>().add(index) }
    }

    pub(crate) const fn as_slice(&self) -> &[T] {
        // SAFETY: the array is whole and the value's own, and is borrowed with it.
        unsafe { self.elements.as_ref() }
    }

    pub(crate) const fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: the array is whole and the value's own, and is borrowed with it.
        unsafe { self.elements.as_mut() }
    }
}

impl<T> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked the box, and nothing else frees it.
        drop(unsafe { Box::from_raw(self.elements.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_stay_valid_while_the_array_is_read_written_and_moved() {
        let mut numbers = Fixed::new(vec![1_u32, 2, 3]);
        let second = numbers.pointer(1);
        numbers.as_mut_slice()[1] = 20;
        // SAFETY: the element is the value's own, which is not borrowed.
        unsafe { second.write(second.read() + 1) };
        assert_eq!(numbers.as_slice(), [1, 21, 3]);
        let mut moved = numbers;
        // SAFETY: as before.
        unsafe { second.write(22) };
        assert_eq!(moved.as_mut_slice(), [1, 22, 3]);
        assert_eq!(moved.pointer(1), second);
    }

    #[test]
    #[should_panic(expected = "index < self.len()")]
    fn there_is_no_pointer_behind_the_end() {
        let _ = Fixed::new(vec![1_u8]).pointer(1);
    }
}
