//! Changes of interfaces, as the kernel reports them (rtnetlink(7), group `RTMGRP_LINK`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::{ANSWER_BYTES_MAX, Interface, Netlink};
use crate::IoError;

/// The multicast group of interfaces: `RTMGRP_LINK` of linux/rtnetlink.h.
const LINK_GROUP: u32 = 1;
/// The maximum number of datagrams read by one call of [`LinkMonitor::poll`]; the next call reads the others.
const DATAGRAMS_PER_POLL_MAX: usize = 256;

/// The state of a monitored interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkState {
    /// The interface's index; `None`: there is no interface of this name.
    pub index: Option<u32>,
    /// The interface is up and has carrier: its operational state permits packets (RFC 2863 section 3.1.12).
    pub is_up: bool,
    /// The link's speed in Mbit/s; `None` where the driver reports none.
    pub speed_mbps: Option<u32>,
}

/// A change of a monitored interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkChange {
    /// Its index among the names given to [`LinkMonitor::open`].
    pub watched: usize,
    /// Its new state.
    pub state: LinkState,
}

/// Monitors interfaces by name, in the namespace in which it was opened. It never blocks: see [`LinkMonitor::poll`].
#[derive(Debug)]
pub struct LinkMonitor {
    socket: Socket,
    names: Vec<String>,
    states: Vec<LinkState>,
}

impl LinkMonitor {
    /// Subscribes to changes and lists the interfaces, in this order: no change is lost between the two.
    ///
    /// # Errors
    /// The system is out of descriptors, lacks netlink, or does not list the interfaces.
    pub fn open(names: Vec<String>) -> Result<Self, IoError> {
        let explain = |error| IoError::from_io(error, "watching interfaces (netlink)");
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(explain)?;
        socket.bind(&SocketAddr::new(0, LINK_GROUP)).map_err(explain)?;
        socket.set_non_blocking(true).map_err(explain)?;
        let states = vec![LinkState::default(); names.len()];
        let mut monitor = Self { socket, names, states };
        monitor.list(&mut Vec::new())?;
        Ok(monitor)
    }

    /// The states of the monitored interfaces, in the order of the names.
    pub fn states(&self) -> impl Iterator<Item = LinkState> + '_ {
        self.states.iter().copied()
    }

    /// The changes since the last call, oldest first. An interface that was deleted and recreated is down in between.
    /// When the kernel's buffer overflows, the interfaces are listed anew.
    ///
    /// # Errors
    /// The socket is unusable, or the interfaces cannot be listed.
    pub fn poll(&mut self) -> Result<Vec<LinkChange>, IoError> {
        let mut changes = Vec::new();
        for _ in 0..DATAGRAMS_PER_POLL_MAX {
            let mut bytes = Vec::with_capacity(ANSWER_BYTES_MAX);
            match self.socket.recv(&mut bytes, 0) {
                Ok(_) if self.take(&bytes, &mut changes) => {}
                // A malformed message may have concerned a monitored interface.
                Ok(_) => self.list(&mut changes)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.list(&mut changes)?,
                Err(error) => return Err(IoError::from_io(error, "receiving changes of interfaces")),
            }
        }
        Ok(changes)
    }

    /// Processes the messages of a datagram. Returns false if one of them is malformed.
    fn take(&mut self, mut rest: &[u8], changes: &mut Vec<LinkChange>) -> bool {
        while !rest.is_empty() {
            let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) else { return false };
            let length_bytes = (message.header.length as usize).next_multiple_of(4).clamp(1, rest.len());
            rest = &rest[length_bytes..];
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) if is_of_interface(&link) => {
                    self.note(&Interface::new(&link), changes);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) if is_of_interface(&link) => {
                    self.note_gone(link.header.index, changes);
                }
                _ => {}
            }
        }
        true
    }

    fn list(&mut self, changes: &mut Vec<LinkChange>) -> Result<(), IoError> {
        let interfaces = Netlink::open()?.interfaces()?;
        for watched in 0..self.names.len() {
            match interfaces.iter().find(|interface| interface.name == self.names[watched]) {
                Some(interface) => self.note(interface, changes),
                None => self.set(watched, LinkState::default(), changes),
            }
        }
        Ok(())
    }

    fn note(&mut self, interface: &Interface, changes: &mut Vec<LinkChange>) {
        let watched = self.names.iter().position(|name| *name == interface.name);
        // A renamed interface counts as deleted under its old name.
        let renamed = self.states.iter().position(|state| state.index == Some(interface.index));
        if let Some(renamed) = renamed.filter(|renamed| Some(*renamed) != watched) {
            self.set(renamed, LinkState::default(), changes);
        }
        let Some(watched) = watched else { return };
        let is_another = self.states[watched].index.is_some_and(|index| index != interface.index);
        if is_another {
            self.set(watched, LinkState::default(), changes);
        }
        let is_up = interface.up && interface.running;
        let speed_mbps = if is_up { speed_mbps(interface) } else { None };
        self.set(watched, LinkState { index: Some(interface.index), is_up, speed_mbps }, changes);
    }

    fn note_gone(&mut self, index: u32, changes: &mut Vec<LinkChange>) {
        if let Some(watched) = self.states.iter().position(|state| state.index == Some(index)) {
            self.set(watched, LinkState::default(), changes);
        }
    }

    fn set(&mut self, watched: usize, state: LinkState, changes: &mut Vec<LinkChange>) {
        if self.states[watched] != state {
            self.states[watched] = state;
            changes.push(LinkChange { watched, state });
        }
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Bridges announce their ports as messages of another family, which do not contain the interface's state.
fn is_of_interface(link: &LinkMessage) -> bool {
    link.header.interface_family == AddressFamily::Unspec
}

/// The driver's speed from sysfs. Where sysfs shows another namespace, an interface of the same name is another one:
/// index and link address must equal those of `interface`.
fn speed_mbps(interface: &Interface) -> Option<u32> {
    let read = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{}/{file}", interface.name)).ok();
    let [a, b, c, d, e, f] = interface.mac;
    let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
    let is_it = read("ifindex")?.trim() == interface.index.to_string() && read("address")?.trim() == mac;
    // -1 means that the driver does not know the speed.
    let speed = if is_it { read("speed")?.trim().parse().ok() } else { None };
    speed.filter(|speed| (1..u32::MAX).contains(speed))
}
