//! Whether ports can have the fast path at XDP. What the program cannot know there would lose packets or take them for others, so each
//! such case is a reason for tc.

use config::validated::{Backend, Port};
use fast_path::Error;
use flow::fast_path::Hook;
use packet_io::interface::{driver, takes_off_vlan_tags};
use packet_io::xdp_features::xdp_features;

/// When a port is looked at. Many drivers can send redirected frames only once they have a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    Before,
    Attached,
}

/// Attaches to the ports at the wanted hook. Where they cannot have XDP, at tc, and the log has why: never by the kernel's generic XDP.
/// `attach` is given the hook, and why it is not the wanted one.
pub(crate) fn at_a_hook<T>(
    wanted: Hook,
    ports: &[Port],
    attach: impl Fn(Hook, Option<String>) -> Result<T, Error>,
) -> Result<T, Error> {
    if wanted == Hook::Tc {
        return attach(wanted, None);
    }
    let opened = match obstacle(ports, Moment::Before) {
        Some(reason) => Err(reason),
        None => attach(wanted, None).map_err(|error| error.to_string()),
    };
    let reason = match opened.map(|opened| (opened, obstacle(ports, Moment::Attached))) {
        Ok((opened, None)) => return Ok(opened),
        Ok((_, Some(reason))) | Err(reason) => reason,
    };
    tracing::warn!("the fast path is at tc, not at XDP: {reason}");
    attach(Hook::Tc, Some(reason))
}

/// Why these ports cannot have the fast path at XDP; `None`: they can, as far as is known at this moment.
pub(super) fn obstacle(ports: &[Port], moment: Moment) -> Option<String> {
    let served = ports.iter().filter(|port| port.backend == Backend::AfPacket);
    served.map(|Port { interface, .. }| obstacle_at(interface, moment)).find_map(Result::err)
}

/// The same of one interface.
pub(super) fn obstacle_at(interface: &str, moment: Moment) -> Result<(), String> {
    let driver = driver(interface)
        .ok_or_else(|| format!("there is no interface {interface}, or its driver does not give its name"))?;
    let features = xdp_features(interface).ok_or_else(|| {
        format!("the kernel does not state what the driver of {interface} can do at XDP, as Linux 6.3 does: update it")
    })?;
    let is_cable = driver == "veth";
    if !features.native {
        return Err(format!("the driver of {interface}, {driver}, has no XDP"));
    }
    // A cable's driver states so, too, but leaves tags where the sender has put them.
    if !is_cable && takes_off_vlan_tags(interface) == Some(true) {
        return Err(format!(
            "{interface} takes VLAN tags off, which XDP does not see: ethtool -K {interface} rxvlan off"
        ));
    }
    match (features.redirect_target, moment) {
        (true, _) => Ok(()),
        (false, _) if is_cable => Err(format!(
            "the kernel drops what XDP redirects to {interface}, a virtual cable: its other end needs ethtool -K … gro on, or an XDP \
             program"
        )),
        (false, Moment::Before) => Ok(()),
        (false, Moment::Attached) => {
            Err(format!("the driver of {interface}, {driver}, sends nothing that XDP redirects"))
        }
    }
}
