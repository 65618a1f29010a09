//! Namespaces for ordinary users: a user namespace in which the process has every capability over its own networks.

use std::ffi::CString;
use std::{fs, io, thread};

use crate::IoError;
use crate::system::check;

/// Whether and how network namespaces can be created here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NamespaceSupport {
    /// [`super::Namespace::new`] works directly.
    Available,
    /// It works after a call of [`enter_user_namespace`].
    AfterUserNamespace,
    /// They cannot; the text gives the reason and the remedy.
    Forbidden(String),
}

/// Checks whether network namespaces can be created, without changing the process.
#[must_use]
pub fn probe() -> NamespaceSupport {
    // SAFETY: unshare takes no pointers; the thread it moves ends at once.
    let unshare = || check(unsafe { libc::unshare(libc::CLONE_NEWNET) });
    let attempt = thread::scope(|scope| scope.spawn(unshare).join());
    if matches!(attempt, Ok(Ok(_))) {
        return NamespaceSupport::Available;
    }
    match try_in_child() {
        Ok(()) => NamespaceSupport::AfterUserNamespace,
        Err(error) => NamespaceSupport::Forbidden(explain(&error)),
    }
}

/// Moves the whole process into a user namespace in which it is root, so that it may create network namespaces. It must
/// be called first: the kernel refuses it once a second thread runs.
///
/// # Errors
/// [`IoError::NamespacesForbidden`] with the reason and the remedy; the process may then be in a user namespace without
/// capabilities and should exit.
pub fn enter_user_namespace() -> Result<(), IoError> {
    let maps = IdentityMaps::of_this_process();
    // SAFETY: unshare takes no pointers.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) }).map_err(|error| {
        IoError::NamespacesForbidden(if error.raw_os_error() == Some(libc::EINVAL) {
            "the process already runs several threads; enter the user namespace before starting any".into()
        } else {
            explain(&error)
        })
    })?;
    maps.write().map_err(|error| IoError::NamespacesForbidden(explain(&error)))?;
    // AppArmor permits the namespace but removes the capabilities: only an attempt shows it.
    match probe() {
        NamespaceSupport::Available => Ok(()),
        _ => Err(IoError::NamespacesForbidden(explain(&io::Error::from_raw_os_error(libc::EPERM)))),
    }
}

/// The files that map the process's user and group to root in a new user namespace (user_namespaces(7)).
struct IdentityMaps {
    files: [(CString, CString); 3],
}

impl IdentityMaps {
    fn of_this_process() -> Self {
        // SAFETY: neither call takes arguments, and neither can fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let text = |text: String| CString::new(text).expect("numbers hold no zero byte");
        Self {
            files: [
                // An ordinary user must deny setgroups before mapping its group.
                (text("/proc/self/setgroups".into()), text("deny".into())),
                (text("/proc/self/uid_map".into()), text(format!("0 {user} 1"))),
                (text("/proc/self/gid_map".into()), text(format!("0 {group} 1"))),
            ],
        }
    }

    /// Writes the files with system calls only, so that a child of a process with threads may do it.
    fn write(&self) -> io::Result<()> {
        for (path, contents) in &self.files {
            // SAFETY: the strings end with zero and outlive the calls; the descriptor is closed once.
            unsafe {
                let descriptor = check(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
                let written = libc::write(descriptor, contents.as_ptr().cast(), contents.as_bytes().len());
                let error = io::Error::last_os_error();
                libc::close(descriptor);
                if written < 0 {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Tries all steps in a child process with a single thread.
fn try_in_child() -> io::Result<()> {
    let maps = IdentityMaps::of_this_process();
    // SAFETY: the child makes system calls only (no allocation, no locks) and exits by _exit.
    let child = check(unsafe { libc::fork() })?;
    if child == 0 {
        let attempt = || -> io::Result<()> {
            // SAFETY: unshare takes no pointers.
            check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
            maps.write()?;
            // SAFETY: as above.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Ok(())
        };
        let code = attempt().map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        // SAFETY: _exit does not return and runs nothing of the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    loop {
        // SAFETY: `status` is writable; the child is ours and waited for once.
        match check(unsafe { libc::waitpid(child, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, errno) => Err(io::Error::from_raw_os_error(errno)),
        (false, _) => Err(io::Error::other("the attempt was killed")),
    }
}

/// The reason reason this machine forbids namespaces, and the remedy.
fn explain(error: &io::Error) -> String {
    let parameter = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim().to_owned();
    if parameter("kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return "AppArmor restricts user namespaces; run as root, or set the sysctl \
                kernel.apparmor_restrict_unprivileged_userns to 0"
            .into();
    }
    if parameter("kernel/unprivileged_userns_clone") == "0" {
        return "user namespaces are switched off; run as root, or set the sysctl \
                kernel.unprivileged_userns_clone to 1"
            .into();
    }
    if parameter("user/max_user_namespaces") == "0" || parameter("user/max_net_namespaces") == "0" {
        return "the limit of namespaces is 0; raise the sysctls user.max_user_namespaces and user.max_net_namespaces"
            .into();
    }
    if error.raw_os_error() == Some(libc::EPERM) {
        return "the system does not permit it (in a container: start it with --privileged, or with CAP_SYS_ADMIN and \
                a seccomp profile that allows unshare)"
            .into();
    }
    error.to_string()
}

/// `None`, reported as by [`skip`], where a test that needs namespaces cannot run.
///
/// # Panics
/// As [`skip`].
#[must_use]
pub fn for_tests() -> Option<()> {
    match probe() {
        NamespaceSupport::Available => Some(()),
        lacking => {
            skip(format_args!("{lacking:?}"));
            None
        }
    }
}

/// Skips a test that cannot run here; `reason` names the missing prerequisite. The test fails instead where the
/// environment variable `MAINSTAY_TESTS` is `all`.
///
/// # Panics
/// `MAINSTAY_TESTS` is `all`.
pub fn skip(reason: impl std::fmt::Display) {
    let is_all_wanted = std::env::var_os("MAINSTAY_TESTS").is_some_and(|tests| tests == "all");
    assert!(!is_all_wanted, "MAINSTAY_TESTS=all forbids to skip a test: {reason}");
    println!("skipped: {reason}");
}
