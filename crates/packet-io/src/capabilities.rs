//! The capabilities of this process (capabilities(7)), by name. They belong to threads; a new thread inherits those of the one that starts it.

use std::io;

use crate::IoError;
use crate::system::check;

/// The capabilities that this project uses, with their numbers.
const NUMBERS: [(&str, u32); 5] =
    [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_SYS_NICE", 23), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64 bits, in two halves.
const VERSION: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    /// 0: the calling thread.
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`, for 32 capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The calling thread's sets.
type Sets = [Half; 2];

/// The capabilities that the calling thread lacks; all of them where `/proc` is unreadable.
#[must_use]
pub fn missing<'a>(wanted: &[&'a str]) -> Vec<&'a str> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    let is_held = |name: &str| number(name).is_some_and(|number| effective >> number & 1 != 0);
    wanted.iter().copied().filter(|name| !is_held(name)).collect()
}

/// Takes capabilities from the calling thread for good, if `works` without them: threads that it starts and programs that it executes lack them
/// too. Returns whether it did. Otherwise the thread has the same capabilities as before. Names that are not known have no effect.
///
/// # Errors
/// The kernel refuses.
pub fn give_up(names: &[&str], works: impl FnOnce() -> bool) -> Result<bool, IoError> {
    let failed = |error| IoError::from_io(error, "giving up capabilities");
    let before = get().map_err(failed)?;
    let without = |half: usize, set: u32| {
        let of_half = names.iter().filter_map(|name| number(name)).filter(|number| *number as usize / 32 == half);
        of_half.fold(set, |set, number| set & !(1 << (number % 32)))
    };
    let mut sets = before;
    for (half, sets) in sets.iter_mut().enumerate() {
        sets.effective = without(half, sets.effective);
    }
    set(&sets).map_err(failed)?;
    if !works() {
        return set(&before).map(|()| false).map_err(failed);
    }
    for number in names.iter().filter_map(|name| number(name)) {
        // Only with CAP_SETPCAP, without which a program can get them by its file alone, and systemd's unit forbids that.
        // SAFETY: this operation takes no pointers.
        let _ = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
    }
    for (half, sets) in sets.iter_mut().enumerate() {
        sets.permitted = without(half, sets.permitted);
        sets.inheritable = without(half, sets.inheritable);
    }
    // A capability leaves the ambient set with the permitted or the inheritable one.
    set(&sets).map(|()| true).map_err(failed)
}

fn number(name: &str) -> Option<u32> {
    NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

fn get() -> io::Result<Sets> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut sets = Sets::default();
    // SAFETY: the header is readable and writable, and `sets` is writable for the two halves of this version.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    check(result as libc::c_int)?;
    Ok(sets)
}

fn set(sets: &Sets) -> io::Result<()> {
    let mut header = Header { version: VERSION, pid: 0 };
    // SAFETY: the header is readable and writable, and `sets` is readable for the two halves of this version.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    check(result as libc::c_int).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["CAP_BPF", "CAP_PERFMON"];

    /// In a thread of its own, which alone is changed.
    fn in_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().expect("the test passes");
    }

    #[test]
    fn an_unknown_capability_is_missing() {
        assert_eq!(missing(&["CAP_NO_SUCH"]), ["CAP_NO_SUCH"]);
    }

    #[test]
    fn capabilities_are_kept_where_the_process_does_not_work_without_them() {
        in_thread(|| {
            let before = missing(&NAMES);
            let given_up = give_up(&NAMES, || {
                assert_eq!(missing(&NAMES), NAMES);
                false
            });
            assert!(!given_up.unwrap());
            assert_eq!(missing(&NAMES), before);
        });
    }

    #[test]
    fn capabilities_that_are_given_up_do_not_come_back_by_executing_a_program() {
        in_thread(|| {
            let others = missing(&["CAP_NET_ADMIN"]);
            assert!(give_up(&NAMES, || true).unwrap());
            assert_eq!((missing(&NAMES), missing(&["CAP_NET_ADMIN"])), (NAMES.to_vec(), others));
            let status = std::process::Command::new("cat").arg("/proc/self/status").output().expect("cat is there");
            let status = String::from_utf8(status.stdout).expect("it is text");
            let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("it is there").trim();
            let effective = u64::from_str_radix(effective, 16).expect("it is a number");
            assert_eq!(effective & (1 << 38 | 1 << 39), 0, "{status}");
        });
    }
}
