//! Waits for descriptors, with timeouts in nanoseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::IoError;
use crate::system::{check, own, zeroed};

/// The most descriptors reported by one call; the next call reports the others.
pub const EVENTS_MAX: usize = 64;

/// The caller's identifier of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// A set of descriptors (epoll(7), level-triggered).
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new() -> Result<Self, IoError> {
        // SAFETY: epoll_create1 takes no pointers.
        let epoll = own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
            .map_err(|error| IoError::from_io(error, "making an epoll set"))?;
        Ok(Self { epoll })
    }

    /// Adds a descriptor, to be reported as `token` when it is readable, closed or in error. A closed descriptor is
    /// removed automatically.
    ///
    /// # Errors
    /// It is in the set already, or is no pollable descriptor (a plain file).
    pub fn add(&self, descriptor: impl AsFd, token: Token) -> Result<(), IoError> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: token.0 };
        self.control(libc::EPOLL_CTL_ADD, descriptor.as_fd(), &raw mut event)
            .map_err(|error| IoError::from_io(error, "adding a descriptor to an epoll set"))
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    /// It is not in the set.
    pub fn remove(&self, descriptor: impl AsFd) -> Result<(), IoError> {
        self.control(libc::EPOLL_CTL_DEL, descriptor.as_fd(), std::ptr::null_mut())
            .map_err(|error| IoError::from_io(error, "removing a descriptor from an epoll set"))
    }

    fn control(&self, operation: i32, descriptor: BorrowedFd<'_>, event: *mut libc::epoll_event) -> io::Result<()> {
        // SAFETY: `event` is null, which removal allows, or points to an event that stays valid.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor.as_raw_fd(), event) }).map(drop)
    }

    /// Waits until a descriptor is ready or `timeout` has passed (`None`: forever). `ready` then holds the tokens of
    /// the ready descriptors; none after a timeout or a signal handler.
    ///
    /// # Errors
    /// Only for defects of the program; see epoll_wait(2).
    pub fn wait(&self, ready: &mut Vec<Token>, timeout: Option<Duration>) -> Result<(), IoError> {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        match self.wait_for_events(&mut events, timeout) {
            Ok(count) => ready.extend(events[..count].iter().map(|event| Token(event.u64))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(IoError::from_io(error, "waiting for descriptors")),
        }
        Ok(())
    }

    fn wait_for_events(&self, events: &mut [libc::epoll_event], timeout: Option<Duration>) -> io::Result<usize> {
        // SAFETY: all-zero bytes are a valid timespec.
        let mut time: libc::timespec = unsafe { zeroed() };
        let time = timeout.map_or(std::ptr::null(), |timeout| {
            time.tv_sec = timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX);
            time.tv_nsec = timeout.subsec_nanos().into();
            &raw const time
        });
        // SAFETY: `events` has room for as many events as stated; `time` is null or points to a timespec; no signal
        // mask is passed.
        let result = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                events.len(),
                time,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if let Ok(count) = usize::try_from(result) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ENOSYS) { self.wait_in_millis(events, timeout) } else { Err(error) }
    }

    /// For kernels before 5.11, which wait in milliseconds: rounded up, to avoid a busy loop.
    fn wait_in_millis(&self, events: &mut [libc::epoll_event], timeout: Option<Duration>) -> io::Result<usize> {
        let millis =
            timeout.map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: `events` has room for at least as many events as stated.
        let count = check(unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), room, millis) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// A set is readable while one of its descriptors is ready, so it can be a member of another set.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Wakes a [`Poller`] from another thread: add it to the poller, share it, call [`Waker::wake`].
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// A waker in the cleared state.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new() -> Result<Self, IoError> {
        // SAFETY: eventfd takes no pointers.
        let event = own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
            .map_err(|error| IoError::from_io(error, "making an eventfd"))?;
        Ok(Self { event })
    }

    /// Makes the descriptor readable until [`Waker::clear`].
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: `one` is readable for its length. The write fails only when the count is full: awake all the same.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes the descriptor unreadable again. Call it before handling the cause of the wake-up.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // SAFETY: `count` is writable for its length. The read fails only without a wake-up: it is clear then, too.
        unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn another_thread_wakes_a_wait_and_clearing_ends_it() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(&waker, Token(7)).unwrap();
        let mut ready = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            poller.wait(&mut ready, None).unwrap();
        });
        assert_eq!(ready, [Token(7)]);
        waker.clear();
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
        waker.wake();
        poller.remove(&waker).unwrap();
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
        assert!(poller.remove(&waker).is_err());
    }

    #[test]
    fn a_short_timeout_is_kept_below_the_millisecond() {
        let poller = Poller::new().unwrap();
        let timeout = Duration::from_micros(50);
        let mut ready = Vec::new();
        // The best of several: the machine may be busy.
        let shortest = (0..200)
            .map(|_| {
                let begin = Instant::now();
                poller.wait(&mut ready, Some(timeout)).unwrap();
                begin.elapsed()
            })
            .min()
            .unwrap();
        assert!(shortest >= timeout && shortest < Duration::from_millis(1), "{shortest:?}");
    }

    #[test]
    fn older_kernels_wait_in_millis() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(&waker, Token(1)).unwrap();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        assert_eq!(poller.wait_in_millis(&mut events, Some(Duration::from_nanos(1))).unwrap(), 0);
        waker.wake();
        assert_eq!(poller.wait_in_millis(&mut events, None).unwrap(), 1);
    }
}
