//! The attacks.

use super::edge_site::EdgeSite;
use super::report::{Observed, Played};
use super::site::{Place, Site};
use super::{clocks, control, edges, packets, records, requests};
use crate::demo::run::RunError;

/// How it is played.
pub(super) enum Play {
    AtGateways(fn(&mut Site<'_>) -> Result<Observed, RunError>),
    /// It needs a clock that is wrong, moves roles itself, and is left out where there is none.
    WithClock(Place, fn(&mut Site<'_>) -> Result<Played, RunError>),
    AtGossip(fn(&mut Site<'_>) -> Result<Observed, RunError>),
    AtEdges(fn(&mut EdgeSite<'_>) -> Result<Observed, RunError>),
    /// It needs members from etcd.
    AtEtcd(fn(&mut EdgeSite<'_>) -> Result<Observed, RunError>),
}

/// An attack.
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// What it is against.
    pub(super) target: &'static str,
    play: Play,
}

impl Attack {
    pub(super) const fn place(&self) -> Place {
        match self.play {
            Play::AtGateways(_) => Place::Gateways,
            Play::WithClock(place, _) => place,
            Play::AtGossip(_) => Place::Gossip,
            Play::AtEdges(_) | Play::AtEtcd(_) => Place::Edges,
        }
    }

    /// Plays it at gateways.
    pub(super) fn play_at(&self, site: &mut Site<'_>) -> Result<Played, RunError> {
        match self.play {
            Play::AtGateways(play) | Play::AtGossip(play) => {
                site.note_roles()?;
                let observed = play(site)?;
                Ok(Played::Observed(observed.with_faults(&site.faults()?)))
            }
            Play::WithClock(_, play) => play(site),
            Play::AtEdges(_) | Play::AtEtcd(_) => Ok(Played::LeftOut("there are no edges".to_owned())),
        }
    }

    /// Plays it at edges.
    pub(super) fn play_at_edges(&self, site: &mut EdgeSite<'_>) -> Result<Played, RunError> {
        let play = match self.play {
            Play::AtEtcd(_) if site.many.etcd().is_none() => {
                return Ok(Played::LeftOut("there is no etcd: install Debian's etcd-server".to_owned()));
            }
            Play::AtEdges(play) | Play::AtEtcd(play) => play,
            _ => return Ok(Played::LeftOut("it needs gateways alone".to_owned())),
        };
        let observed = play(site)?;
        Ok(Played::Observed(observed.with_faults(&site.faults()?)))
    }
}

macro_rules! attacks {
    ($($name:literal, $target:literal, $play:expr;)*) => {
        /// All attacks. Those that move roles come last at their place.
        pub(super) const ATTACKS: &[Attack] = &[$(Attack { name: $name, target: $target, play: $play },)*];
    };
}

use Play::{AtEdges, AtEtcd, AtGateways, AtGossip, WithClock};

attacks! {
    "forged-reset", "a TCP connection", AtGateways(packets::forged_reset);
    "forged-icmp-error", "a TCP connection", AtGateways(packets::forged_icmp_error);
    "own-address-as-source", "the gateway's addresses", AtGateways(packets::own_source);
    "inside-source-from-outside", "rules of the inside", AtGateways(packets::inside_source_from_outside);
    "land", "the gateway and hosts", AtGateways(packets::land);
    "malformed-packets", "the parsers", AtGateways(packets::malformed);
    "tiny-and-overlapping-fragments", "the table of fragments", AtGateways(packets::bad_fragments);
    "fragment-flood", "the table of fragments", AtGateways(packets::fragment_flood);
    "udp-exhausts-connection-table", "the connection table", AtGateways(packets::udp_exhaustion);
    "syn-flood", "a server behind the SYN proxy", AtGateways(packets::syn_flood);
    "forged-heartbeats", "roles of the nodes", AtGateways(packets::forged_heartbeats);
    "replication-flood-in-peers-name", "the replication port", AtGateways(control::replication_flood);
    "replayed-replication", "the replication port", AtGateways(control::replayed_replication);
    "wrong-control-tokens", "the remote control API", AtGateways(control::wrong_tokens);
    "metrics-scrapers", "the data path's thread", AtGateways(control::scrapers);
    "etcd-in-plain-text", "the source of members", AtGateways(control::etcd_in_plain_text);
    "http-odd-forms", "the URL filter", AtGateways(requests::odd_forms);
    "decoy-with-old-acknowledgement", "the URL filter", AtGateways(requests::decoy_with_old_acknowledgement);
    "decoy-with-md5-option", "the URL filter", AtGateways(requests::decoy_with_md5_option);
    "decoy-with-low-ttl", "the URL filter", AtGateways(requests::decoy_with_low_ttl);
    "overlapping-segments", "the URL filter", AtGateways(requests::overlapping_segments);
    "urgent-data", "the URL filter", AtGateways(requests::urgent_data);
    "request-in-ip-fragments", "the URL filter", AtGateways(requests::request_in_fragments);
    "second-quic-initial", "the URL filter", AtGateways(requests::second_initial);
    "dns-with-two-questions", "the URL filter", AtGateways(requests::two_questions);
    "one-byte-tls-records", "a worker's time", AtGateways(requests::one_byte_records);
    "quota-of-a-peer-20-h-ahead", "quotas", WithClock(Place::Gateways, clocks::quota_of_a_peer_ahead);
    "strangers-control-frames-at-an-edge", "flows of the edges", AtEdges(edges::control_frames);
    "poisoned-settings-in-etcd", "the settings of the cluster", AtEtcd(records::poisoned_settings);
    "poisoned-records-in-etcd", "the list of members", AtEtcd(records::poisoned_records);
    "syn-flood-at-an-edge", "the edge's index and heartbeats", AtEdges(edges::syn_flood);
    "forged-fragments-of-a-connection", "the owner of a connection", AtEdges(edges::forged_fragments);
    "gossip-without-the-key", "the list of members", AtGossip(control::gossip_without_key);
    "member-a-day-ahead", "the list of members", WithClock(Place::Gossip, clocks::member_a_day_ahead);
}
