//! The processors that a thread runs on.

use std::mem;

use crate::IoError;
use crate::system::{check, zeroed};

/// Binds the calling thread to one processor: the `number`th of those that it may run on, counted from 0 and wrapping
/// behind the last. Returns the processor.
///
/// # Errors
/// The system refuses it.
pub fn pin_this_thread(number: usize) -> Result<usize, IoError> {
    let describe = |error| IoError::from_io(error, "keeping a thread on one processor");
    // SAFETY: all-zero bytes are a valid cpu_set_t.
    let mut allowed: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `allowed` is writable and as long as stated; 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, mem::size_of_val(&allowed), &raw mut allowed) }).map_err(describe)?;
    let is_allowed = |processor: &usize| {
        // SAFETY: the number is below the number of bits of the set.
        unsafe { libc::CPU_ISSET(*processor, &allowed) }
    };
    let processors: Vec<usize> = (0..8 * mem::size_of_val(&allowed)).filter(is_allowed).collect();
    let processor = processors[number % processors.len()];
    // SAFETY: all-zero bytes are a valid cpu_set_t.
    let mut chosen: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: as for the test above.
    unsafe { libc::CPU_SET(processor, &mut chosen) };
    // SAFETY: `chosen` is readable and as long as stated; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, mem::size_of_val(&chosen), &raw const chosen) }).map_err(describe)?;
    Ok(processor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_runs_where_it_was_put() {
        std::thread::spawn(|| {
            let processor = pin_this_thread(0).unwrap();
            // SAFETY: sched_getcpu takes no pointers.
            assert_eq!(usize::try_from(unsafe { libc::sched_getcpu() }), Ok(processor));
            // The process may now run on this processor only, whatever number is requested.
            assert_eq!(pin_this_thread(7).unwrap(), processor);
        })
        .join()
        .unwrap();
    }
}
