//! Properties of an interface and its driver, queried by name in the namespace of the calling thread (netdevice(7), and
//! the requests of `SIOCETHTOOL` in `linux/ethtool.h`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::IoError;
use crate::system::{check, own, zeroed};

/// Requests the driver's name.
const ETHTOOL_GDRVINFO: u32 = 0x03;
/// Requests the numbers of queues.
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Requests flags, among them this one: VLAN tags are taken off received frames.
const ETHTOOL_GFLAGS: u32 = 0x25;
const FLAG_RECEIVE_VLAN: u32 = 1 << 8;

/// An offload of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// Checksums of frames that are sent.
    TransmitChecksum,
    /// Segmentation of outgoing TCP runs.
    TcpSegmentation,
    /// Segmentation of any outgoing run, in software where the hardware cannot.
    GenericSegmentation,
    /// Coalescing of received segments.
    GenericReceive,
}

impl Offload {
    /// The request that reads it; the next number sets it.
    const fn request(self) -> u32 {
        match self {
            Self::TransmitChecksum => 0x16,
            Self::TcpSegmentation => 0x1e,
            Self::GenericSegmentation => 0x23,
            Self::GenericReceive => 0x2b,
        }
    }
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// A socket for queries. It refers to the namespace in which it was opened, whichever thread uses it.
#[derive(Debug)]
pub(crate) struct Inquiry {
    socket: OwnedFd,
}

impl Inquiry {
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: socket takes no pointers.
        let socket = own(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
        Ok(Self { socket })
    }

    /// The kernel's index of the interface.
    pub(crate) fn index(&self, interface: &str) -> io::Result<u32> {
        let answer = self.ask(libc::SIOCGIFINDEX as _, request(interface)?)?;
        // SAFETY: SIOCGIFINDEX fills in this member of the union.
        let index = unsafe { answer.ifru_ifindex };
        u32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// The interface's MTU, in bytes of IP packet.
    pub(crate) fn mtu_bytes(&self, interface: &str) -> io::Result<u32> {
        let answer = self.ask(libc::SIOCGIFMTU as _, request(interface)?)?;
        // SAFETY: SIOCGIFMTU fills in this member of the union.
        let mtu_bytes = unsafe { answer.ifru_mtu };
        u32::try_from(mtu_bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// Whether the interface exists and is up.
    pub(crate) fn is_up(&self, interface: &str) -> bool {
        let flags = request(interface).and_then(|request| self.ask(libc::SIOCGIFFLAGS as _, request));
        // SAFETY: SIOCGIFFLAGS fills in this member of the union.
        flags.is_ok_and(|answer| i32::from(unsafe { answer.ifru_flags }) & libc::IFF_UP != 0)
    }

    fn ask(&self, kind: libc::c_ulong, mut request: libc::ifreq) -> io::Result<libc::__c_anonymous_ifr_ifru> {
        // SAFETY: the requests used here read and write one ifreq, which stays valid; the caller owns the memory that
        // `SIOCETHTOOL` reaches through its pointer.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), kind as _, &raw mut request) })?;
        Ok(request.ifr_ifru)
    }

    /// Lets the driver read and fill in `command`, one of the structures of `linux/ethtool.h`, whole.
    fn ask_driver<T>(&self, interface: &str, command: &mut T) -> io::Result<()> {
        let mut request = request(interface)?;
        request.ifr_ifru.ifru_data = (&raw mut *command).cast();
        self.ask(libc::SIOCETHTOOL as _, request).map(drop)
    }
}

/// A request about the interface.
fn request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let name = interface.as_bytes();
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

/// The name of the interface's driver; `None` when the interface is missing or the driver has no name.
#[must_use]
pub fn driver(interface: &str) -> Option<String> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    Inquiry::open().ok()?.ask_driver(interface, &mut info).ok()?;
    let name = info.driver.split(|byte| *byte == 0).next()?;
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

/// The number of receive queues of the interface; 1 where the driver does not report it, as such drivers have one.
#[must_use]
pub fn receive_queues(interface: &str) -> u32 {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    let asked = Inquiry::open().and_then(|inquiry| inquiry.ask_driver(interface, &mut channels));
    asked.map_or(1, |()| (channels.combined + channels.receive).max(1))
}

/// The number of packets that the interface has received; `None` when it is missing or `/proc` lacks it.
#[must_use]
pub fn received_packets(interface: &str) -> Option<u64> {
    received(interface, 1)
}

/// The number of bytes that the interface has received, from the link header on; `None` when it is missing or `/proc` lacks it.
#[must_use]
pub fn received_bytes(interface: &str) -> Option<u64> {
    received(interface, 0)
}

fn received(interface: &str, column: usize) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    let of_interface = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    of_interface.split_whitespace().nth(column)?.parse().ok()
}

/// Whether the interface's `offload` is on; `None` when the interface is missing.
#[must_use]
pub fn offload(interface: &str, offload: Offload) -> Option<bool> {
    let mut value = Value { command: offload.request(), data: 0 };
    Inquiry::open().ok()?.ask_driver(interface, &mut value).ok()?;
    Some(value.data != 0)
}

/// Whether the interface takes VLAN tags off the frames that it receives; `None` when it is missing.
#[must_use]
pub fn takes_off_vlan_tags(interface: &str) -> Option<bool> {
    let mut value = Value { command: ETHTOOL_GFLAGS, data: 0 };
    Inquiry::open().ok()?.ask_driver(interface, &mut value).ok()?;
    Some(value.data & FLAG_RECEIVE_VLAN != 0)
}

/// Switches `offload` of the interface on or off.
///
/// # Errors
/// The interface does not exist, its driver lacks the offload, or permission is missing.
pub fn set_offload(interface: &str, offload: Offload, on: bool) -> Result<(), IoError> {
    let mut value = Value { command: offload.request() + 1, data: on.into() };
    let set = Inquiry::open().and_then(|inquiry| inquiry.ask_driver(interface, &mut value));
    set.map_err(|error| {
        let operation = format!("switching the offload {offload:?} of {interface} {}", if on { "on" } else { "off" });
        match error.raw_os_error() {
            Some(libc::EPERM) => IoError::NotPermitted { operation, capability: "CAP_NET_ADMIN" },
            Some(libc::ENODEV) => IoError::NoSuchInterface { interface: interface.into() },
            _ => IoError::from_io(error, operation),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::netlink::Netlink;

    #[test]
    fn a_cable_is_queried_and_its_offloads_are_switched() {
        let Some(()) = crate::namespace::for_tests() else { return };
        let (here, there) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        here.run(|| {
            Netlink::open().unwrap().create_veth("cable0", "cable0", &there).unwrap();
            assert_eq!(driver("cable0").as_deref(), Some("veth"));
            assert_eq!(receive_queues("cable0"), 1);
            assert_eq!(received_packets("cable0"), Some(0));
            assert_eq!(received_packets("cable"), None);
            assert_eq!(takes_off_vlan_tags("cable0"), Some(true));
            assert_eq!(takes_off_vlan_tags("lo"), Some(false));
            assert_eq!(takes_off_vlan_tags("nowhere0"), None);
            let inquiry = Inquiry::open().unwrap();
            assert_eq!(inquiry.mtu_bytes("cable0").unwrap(), 1500);
            assert!(!inquiry.is_up("cable0"));
            assert_eq!(offload("cable0", Offload::TransmitChecksum), Some(true));
            set_offload("cable0", Offload::TransmitChecksum, false).unwrap();
            assert_eq!(offload("cable0", Offload::TransmitChecksum), Some(false));
            assert_eq!(offload("cable0", Offload::TcpSegmentation), Some(false), "it needs the checksum");
        })
        .unwrap();
    }

    #[test]
    fn a_missing_interface_is_reported() {
        assert_eq!(driver("nowhere0"), None);
        assert_eq!(offload("nowhere0", Offload::GenericReceive), None);
        let error = set_offload("nowhere0", Offload::GenericReceive, true).unwrap_err();
        assert!(matches!(error, IoError::NoSuchInterface { .. }), "{error}");
    }
}
