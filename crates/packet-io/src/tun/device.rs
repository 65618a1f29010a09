//! One tunnel device: opening or creating, reading, writing.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::IoError;
use crate::netlink::Netlink;
use crate::poller::Waker;
use crate::system::{check, zeroed};

/// The control device of tunnel devices.
const CLONE_DEVICE: &str = "/dev/net/tun";
/// Offloads of packets that are read from the device; those of UDP since Linux 6.2.
const OFFLOADS: [libc::c_uint; 2] = [TCP_OFFLOADS | libc::TUN_F_USO4 | libc::TUN_F_USO6, TCP_OFFLOADS];
const TCP_OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// What a tunnel device carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceKind {
    /// IP packets (tun).
    #[default]
    Ip,
    /// Ethernet frames (tap).
    Ethernet,
}

/// A tunnel device.
#[derive(Debug)]
pub(super) struct Device {
    device: OwnedFd,
    /// Makes the port readable for frames that do not come from the device.
    waker: Waker,
    is_awake: bool,
}

/// Whether a read or write failed because the device is down or deleted.
pub(super) fn is_down_error(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EBADFD | libc::ENETDOWN))
}

impl Device {
    pub(super) fn open(interface: &str, kind: DeviceKind, offload: bool) -> Result<Self, IoError> {
        let explain = |error: io::Error| explain(error, interface);
        let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(CLONE_DEVICE);
        let device = OwnedFd::from(device.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => IoError::Misuse(format!(
                "{CLONE_DEVICE} is not there, so that {interface} cannot be opened: load the kernel module tun"
            )),
            _ => explain(error),
        })?);
        attach(device.as_fd(), interface, kind).map_err(explain)?;
        set_offloads(device.as_fd(), offload).map_err(explain)?;
        Netlink::open()?.set_up(interface, true)?;
        Ok(Self { device, waker: Waker::new()?, is_awake: false })
    }

    /// Reads one packet with its virtio-net header.
    pub(super) fn read(&mut self, message: &mut [u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.is_awake) {
            self.waker.clear();
        }
        // SAFETY: `message` is writable for its length.
        let count = unsafe { libc::read(self.device.as_raw_fd(), message.as_mut_ptr().cast(), message.len()) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Writes one packet behind its virtio-net header.
    pub(super) fn write(&self, header: &[u8], packet: &[u8]) -> io::Result<()> {
        let vectors =
            [header, packet].map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        loop {
            // SAFETY: both vectors point to memory that stays valid; the kernel only reads it.
            let count = unsafe { libc::writev(self.device.as_raw_fd(), vectors.as_ptr(), 2) };
            if count >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Makes the port readable although the device is not.
    pub(super) fn wake_if(&mut self, something_waits: bool) {
        if something_waits && !self.is_awake {
            self.waker.wake();
            self.is_awake = true;
        }
    }

    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Opens or creates the tunnel device of this name.
fn attach(device: BorrowedFd<'_>, interface: &str, kind: DeviceKind) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let name = interface.as_bytes();
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let carries = match kind {
        DeviceKind::Ip => libc::IFF_TUN,
        DeviceKind::Ethernet => libc::IFF_TAP,
    };
    request.ifr_ifru.ifru_flags = (carries | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which stays valid.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) }).map(drop)
}

fn set_offloads(device: BorrowedFd<'_>, offload: bool) -> io::Result<()> {
    let choices: &[libc::c_uint] = if offload { &OFFLOADS } else { &[0] };
    let mut outcome = Ok(());
    for choice in choices {
        // SAFETY: TUNSETOFFLOAD takes its argument as a number.
        outcome =
            check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(*choice)) })
                .map(drop);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn explain(error: io::Error, interface: &str) -> IoError {
    let operation = format!("opening the tunnel device {interface}");
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => IoError::NotPermitted { operation, capability: "CAP_NET_ADMIN" },
        Some(libc::EBUSY) => IoError::Misuse(format!("{operation}: another program has it open; stop it")),
        Some(libc::EINVAL) => IoError::Misuse(format!(
            "{operation}: there is an interface of this name that is not a tunnel device (or one of the other kind, tun or \
             tap); delete it, or write another name"
        )),
        _ => IoError::from_io(error, operation),
    }
}
