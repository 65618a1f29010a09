//! The ports that the program is attached to.

use config::validated::{Backend, Port};
use fast_path::{Error, FastPath, interface_index};
use flow::fast_path::Hook;
use packet_io::netlink::Netlink;

use super::xdp::{self, Moment};

/// A port that the program is attached to.
pub(crate) struct AttachedPort {
    interface: String,
    /// The interface's number when the program was attached.
    pub(crate) index: u32,
    /// As configured.
    redirects_peer: bool,
    /// Packets for it can be handed to the other end of its cable.
    pub(crate) leads_elsewhere: bool,
    /// At XDP, the kernel does not drop what is redirected to it.
    pub(crate) is_target: bool,
}

impl AttachedPort {
    fn new(port: &Port) -> Result<Self, Error> {
        let index = interface_index(&port.interface)?;
        let (interface, redirects_peer) = (port.interface.clone(), port.redirect_peer);
        let mut attached = Self { interface, index, redirects_peer, leads_elsewhere: false, is_target: true };
        attached.look();
        Ok(attached)
    }

    /// The interface's name.
    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// Looks where the interface leads. The kernel drops what is redirected to an end in the same namespace.
    fn look(&mut self) {
        if !self.redirects_peer {
            return;
        }
        let found = Netlink::open().and_then(|mut netlink| netlink.interface(&self.interface));
        self.leads_elsewhere = found.is_ok_and(|found| found.index == self.index && found.leads_elsewhere);
        if !self.leads_elsewhere {
            let interface = &self.interface;
            tracing::warn!(
                "{interface} is no virtual cable into another network namespace, so redirect_peer has no effect: remove it"
            );
        }
    }
}

/// The program, attached to the ports. The lead worker has it.
pub(crate) struct AttachedProgram {
    pub(crate) program: FastPath,
    /// By port; `None` for a port without a fast path.
    pub(crate) ports: Vec<Option<AttachedPort>>,
}

impl AttachedProgram {
    pub(crate) fn attach(mut program: FastPath, ports: &[Port]) -> Result<Self, Error> {
        let mut attached = Vec::new();
        for port in ports {
            let is_served = port.backend == Backend::AfPacket;
            if is_served {
                program.attach(&port.interface)?;
            }
            attached.push(is_served.then(|| AttachedPort::new(port)).transpose()?);
        }
        Ok(Self { program, ports: attached })
    }

    /// Attaches the program to interfaces that were made anew, and looks at what XDP depends on.
    pub(crate) fn follow_interfaces(&mut self) {
        for port in self.ports.iter_mut().flatten() {
            if self.program.hook() == Hook::Xdp && interface_index(&port.interface).is_ok() {
                // Its link address may be another.
                warned(self.program.attach(&port.interface));
                let obstacle = xdp::obstacle_at(&port.interface, Moment::Attached).err();
                if let Some(obstacle) = obstacle.as_ref().filter(|_| port.is_target) {
                    tracing::warn!("packets of port {} go through the gateway: {obstacle}", port.interface);
                }
                port.is_target = obstacle.is_none();
            }
            let Some(index) = interface_index(&port.interface).ok().filter(|index| *index != port.index) else {
                continue;
            };
            let result = self.program.detach(port.index).and_then(|_| self.program.attach(&port.interface));
            match result {
                Ok(()) => {
                    port.index = index;
                    port.look();
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }
}

/// What the kernel refuses is logged; the node goes on without.
pub(crate) fn warned<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(|error| tracing::warn!("{error}")).ok()
}
