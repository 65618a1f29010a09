//! `[conntrackd]`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use flow::NodeId;
use replication::conntrackd::DATAGRAM_BYTES_MIN;
use toml::Spanned;

use super::super::super::diagnostic::{Diagnostics, Mistake};
use super::super::super::raw::Text;
use super::super::super::raw::sync::RawConntrackd;
use super::super::super::validated::Node;
use super::super::super::validated::sync::{Conntrackd, ConntrackdPeer};
use super::super::super::value;
use super::super::cluster::{own_address, setting};
use super::super::common::{BATCH_DELAY, BATCH_DELAY_DEFAULT, flag, ranged, within};
use super::super::{family_name, parsed};

const SUBJECT: &str = "[conntrackd]";
/// `ACKWindowSize` of conntrackd.conf(5) is 300 there: the earlier the peer knows, the less it keeps.
const ACK_WINDOW_DEFAULT: u16 = 100;
/// As `ResendQueueSize` of conntrackd.conf(5).
const RESEND_QUEUE_DEFAULT: u32 = 131_072;
const ACK_WINDOW: RangeInclusive<u16> = 1..=1000;
const RESEND_QUEUE: RangeInclusive<u32> = 1024..=1 << 24;
/// conntrackd packs messages up to the link's MTU; what an Ethernet frame holds after the headers fits everywhere.
const DATAGRAM_BYTES_DEFAULT: u16 = 1472;
const DATAGRAM_BYTES: RangeInclusive<u16> = DATAGRAM_BYTES_MIN as u16..=65_507;
/// It sends a keep-alive at least once a second.
const PEER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
const PEER_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(600);
/// Longest name of an interface (`IFNAMSIZ` less its NUL).
const INTERFACE_BYTES_MAX: usize = 15;

pub(super) fn conntrackd(
    section: &Spanned<RawConntrackd>,
    node: &Node,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Conntrackd> {
    let raw = section.get_ref();
    let peer_id = NodeId(*raw.peer_id.get_ref());
    if peer_id == node.id {
        let mistake = Mistake::new("the peer has this node's own id", "give each node its own id");
        diagnostics.error(raw.peer_id.span(), "conntrackd.peer_id", mistake);
    }
    let interface = raw.interface.as_ref().map(|text| interface(text, diagnostics));
    let local = own_address("conntrackd.local", &raw.local, &[], diagnostics)?;
    let peer = peer(section, local, diagnostics)?;
    if matches!(peer, ConntrackdPeer::Multicast(_)) && interface.is_none() {
        let mistake = Mistake::new(
            "the interface on which the group is joined is missing",
            "add interface = the link between the nodes",
        );
        diagnostics.error(section.span(), SUBJECT, mistake);
    }
    Some(Conntrackd {
        local,
        peer,
        interface,
        peer_id,
        window_tracking: flag("conntrackd.window_tracking", raw.window_tracking, false, diagnostics),
        ack_window_messages: setting!("conntrackd", raw.ack_window_messages => within(ACK_WINDOW_DEFAULT, ACK_WINDOW), diagnostics),
        resend_queue_max: setting!("conntrackd", raw.resend_queue_max => within(RESEND_QUEUE_DEFAULT, RESEND_QUEUE), diagnostics),
        datagram_bytes_max: setting!("conntrackd", raw.datagram_bytes_max => within(DATAGRAM_BYTES_DEFAULT, DATAGRAM_BYTES), diagnostics),
        batch_delay: setting!("conntrackd", raw.batch_delay => ranged(BATCH_DELAY_DEFAULT, BATCH_DELAY), diagnostics),
        peer_timeout: setting!("conntrackd", raw.peer_timeout => ranged(PEER_TIMEOUT_DEFAULT, PEER_TIMEOUT), diagnostics),
    })
}

fn peer(
    section: &Spanned<RawConntrackd>,
    local: SocketAddr,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<ConntrackdPeer> {
    let (text, peer) = match (&section.get_ref().peer, &section.get_ref().multicast) {
        (Some(text), None) => {
            let address = parsed("conntrackd.peer", text, value::socket_address, diagnostics)?;
            if address == local || address.ip().is_multicast() {
                let mistake = Mistake::new(
                    format!("{address} is not another node's address"),
                    "write the other node's address; a group is named by multicast",
                );
                diagnostics.error(text.span(), "conntrackd.peer", mistake);
            }
            (text, ConntrackdPeer::Unicast(address))
        }
        (None, Some(text)) => {
            let address = parsed("conntrackd.multicast", text, value::socket_address, diagnostics)?;
            if !address.ip().is_multicast() {
                let mistake = Mistake::new(
                    format!("{} is not a multicast group", address.ip()),
                    "write one like 225.0.0.50:3780, or name a single node by peer",
                );
                diagnostics.error(text.span(), "conntrackd.multicast", mistake);
            }
            (text, ConntrackdPeer::Multicast(address))
        }
        _ => {
            let mistake = Mistake::new(
                "it is not said where the other daemon is",
                "write either peer = \"its address:3780\" or multicast = \"the group's address:3780\"",
            );
            diagnostics.error(section.span(), SUBJECT, mistake);
            return None;
        }
    };
    check_family(text, peer.address(), local, diagnostics);
    Some(peer)
}

fn check_family(text: &Text, peer: SocketAddr, local: SocketAddr, diagnostics: &mut Diagnostics<'_>) {
    if peer.is_ipv4() != local.is_ipv4() {
        let mistake = Mistake::new(
            format!("the address is {}, local is not", family_name(peer.ip())),
            "write both in one family",
        );
        diagnostics.error(text.span(), SUBJECT, mistake);
    }
}

fn interface(text: &Text, diagnostics: &mut Diagnostics<'_>) -> String {
    let name = text.get_ref();
    let is_sound = (1..=INTERFACE_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if !is_sound {
        let mistake = Mistake::new(
            format!("{name:?} cannot be an interface"),
            format!("write its name, of 1 to {INTERFACE_BYTES_MAX} characters"),
        );
        diagnostics.error(text.span(), "conntrackd.interface", mistake);
    }
    name.clone()
}
