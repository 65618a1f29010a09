//! The links of the node's ports, as the kernel announces their changes.

use std::os::fd::{AsFd, BorrowedFd};

use cluster::node::{LinkState, Node};
use flow::{Instant, PortId};
use packet_io::IoError;
use packet_io::netlink::{self, LinkMonitor};

use config::validated::Port;

/// Follows the links of all ports. The lead worker has one.
pub(super) struct Links {
    monitor: LinkMonitor,
}

impl Links {
    /// Begins to follow the ports, and has the node know how they are.
    pub(super) fn open(ports: &[Port], node: &mut Node, now: Instant) -> Result<Self, IoError> {
        let monitor = LinkMonitor::open(ports.iter().map(|port| port.interface.clone()).collect())?;
        for (watched, state) in monitor.states().enumerate() {
            node.handle_link(now, port_id(watched), link_state(state));
        }
        Ok(Self { monitor })
    }

    /// Has the node know what has changed.
    pub(super) fn receive(&mut self, node: &mut Node, now: Instant) -> Result<(), IoError> {
        for change in self.monitor.poll()? {
            node.handle_link(now, port_id(change.watched), link_state(change.state));
        }
        Ok(())
    }
}

impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

/// Interfaces are watched in the order of the ports.
fn port_id(watched: usize) -> PortId {
    PortId(u8::try_from(watched).unwrap_or(u8::MAX))
}

const fn link_state(state: netlink::LinkState) -> LinkState {
    LinkState { is_up: state.is_up, speed_mbps: state.speed_mbps }
}
