//! The configuration of `mainstay sync`.

mod conntrackd;
mod filter;
mod kernel;

use std::ops::Range;

use replication::deferral::Config;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::RawReplication;
use super::super::raw::sync::RawSync;
use super::super::validated::sync as validated;
use super::super::validated::sync::{Events, Mode, Native, StartRole, SyncConfig};
use super::super::validated::{Node, Replication};
use super::cluster::{own_address, replication};
use super::common::{BATCH_DELAY, BATCH_DELAY_DEFAULT, choice, ranged};
use super::{control, lone_node, security};

/// Where the control API of `mainstay sync` listens by default: beside a gateway's.
pub const CONTROL_SOCKET_DEFAULT: &str = "/run/mainstay/sync.sock";

pub(crate) fn validate(raw: &RawSync, diagnostics: &mut Diagnostics<'_>) -> SyncConfig {
    let node = lone_node(
        raw.node.as_ref(),
        CONTROL_SOCKET_DEFAULT,
        [
            "remove it: peers are named one by one",
            "remove priority: keepalived has it",
            "remove announce_refresh: keepalived has it",
        ],
        diagnostics,
    );
    let mode = choice("cluster.mode", raw.cluster.mode.as_ref(), &Mode::ALL, diagnostics);
    let role = start_role(raw, mode, diagnostics);
    let replication = raw.replication.as_ref().and_then(|section| native(section, (&node, mode), diagnostics));
    let conntrackd = raw.conntrackd.as_ref().and_then(|section| conntrackd::conntrackd(section, &node, diagnostics));
    if let (Some(conntrackd), Some(native), Some(section)) = (&conntrackd, &replication, &raw.conntrackd)
        && native.replication.peers.iter().any(|peer| peer.id == conntrackd.peer_id)
    {
        let mistake = Mistake::new(
            format!("node {} is a peer of [replication] already", conntrackd.peer_id.0),
            "give the conntrackd an id of its own, or remove the peer that it has become",
        );
        diagnostics.error(section.get_ref().peer_id.span(), "conntrackd.peer_id", mistake);
    }
    if raw.replication.is_none() && raw.conntrackd.is_none() {
        let mistake = Mistake::new(
            "there is no peer for the kernel's connections",
            "add [replication] with a [[replication.peer]], or [conntrackd]",
        );
        diagnostics.error(0..0, "[replication]", mistake);
    }
    let kernel = kernel::kernel(&raw.kernel, diagnostics);
    let filter = filter::filter(&raw.filter, conntrackd.is_some(), diagnostics);
    if let Some(list) =
        raw.filter.tcp_states.as_ref().filter(|_| kernel.events == Events::Lean && filter.replicates_handshakes())
    {
        let mistake = Mistake::new(
            "of handshakes the kernel makes no events",
            "write events = \"all\" in [kernel], or leave syn_sent, syn_recv and syn_sent2 out",
        );
        diagnostics.warning(list.span(), "filter.tcp_states", mistake);
    }
    SyncConfig {
        kernel,
        mode,
        role,
        filter,
        replication,
        conntrackd,
        control: control::remote(raw.control.as_ref(), diagnostics),
        node,
    }
}

fn start_role(raw: &RawSync, mode: Mode, diagnostics: &mut Diagnostics<'_>) -> StartRole {
    let role = choice("cluster.role", raw.cluster.role.as_ref(), &StartRole::ALL, diagnostics);
    if mode == Mode::PrimaryBackup {
        return role;
    }
    if let Some(text) = raw.cluster.role.as_ref().filter(|_| role == StartRole::Backup) {
        let mistake = Mistake::new("where all nodes carry connections, none stands by", "remove role");
        diagnostics.error(text.span(), "cluster.role", mistake);
    }
    StartRole::Primary
}

/// Replication to other nodes of Mainstay: a gateway's section, without what is about packets.
fn native(
    section: &Spanned<RawReplication>,
    (node, mode): (&Node, Mode),
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Native> {
    let raw = section.get_ref();
    if raw.peer.is_empty() {
        let mistake = Mistake::new("no peer is named", "add a [[replication.peer]] or remove the section");
        diagnostics.error(section.span(), "[replication]", mistake);
    }
    let of_gateways = [
        ("representation", raw.representation.as_ref().map(Spanned::span)),
        ("start", raw.start.as_ref().map(Spanned::span)),
        ("hold_first_reply", raw.hold_first_reply.as_ref().map(Spanned::span)),
        ("wait_for_peer", raw.wait_for_peer.as_ref().map(Spanned::span)),
        ("symmetric", raw.symmetric.map(|_| section.span())),
        ("service_path_bytes_per_second", raw.service_path_bytes_per_second.as_ref().map(Spanned::span)),
        ("backups", raw.backups.as_ref().map(Spanned::span)),
    ];
    let of_filters = [
        ("experimental", raw.experimental.as_ref().map(Spanned::span)),
        ("budget_bytes_per_second", raw.budget_bytes_per_second.as_ref().map(Spanned::span)),
        ("filter", raw.filter.as_ref().map(Spanned::span)),
        ("recovery", raw.recovery.as_ref().map(Spanned::span)),
    ];
    refuse(
        &of_filters,
        &Mistake::new(
            "the kernel's connections are replicated precisely: they could not be restored from a filter's entries",
            "remove it",
        ),
        diagnostics,
    );
    refuse(
        &of_gateways,
        &Mistake::new(
            "it is about packets, which the kernel forwards here",
            "remove it; [filter] selects the connections that are replicated",
        ),
        diagnostics,
    );
    diagnostics.describe_refused("replication.peer.failure_detection_address");
    for peer in &raw.peer {
        if let Some(text) = &peer.get_ref().failure_detection_address {
            let mistake = Mistake::new("keepalived finds out who is dead, not this node", "remove it");
            diagnostics.error(text.span(), "replication.peer", mistake);
        }
    }
    let local = own_address("replication.local", &raw.local, &[], diagnostics)?;
    let replication = replication(raw, local, node, diagnostics);
    check_lazy(raw, mode, &replication, diagnostics);
    let security = security::security(raw, &replication, diagnostics);
    let replication = super::super::validated::Replication { security, ..replication };
    let batch_delay =
        ranged("replication.batch_delay", raw.batch_delay.as_ref(), BATCH_DELAY_DEFAULT, BATCH_DELAY, diagnostics);
    Some(validated::Native { replication, batch_delay })
}

/// Finds a deferral that the kernel's connections cannot have.
fn check_lazy(raw: &RawReplication, mode: Mode, replication: &Replication, diagnostics: &mut Diagnostics<'_>) {
    let Some(written) = &raw.lazy else { return };
    let contradictions = [
        (
            matches!(replication.lazy, Some(Config::Dynamic(_))),
            "the kernel forwards, and the share of time that this process works does not follow its load",
            "write a duration as threshold",
        ),
        (
            mode == Mode::MultiPrimary,
            "packets of one connection may come to several nodes, whose kernels must have it at once",
            "remove it, or write mode = \"primary-backup\" in [cluster]",
        ),
    ];
    for (_, problem, remedy) in contradictions.iter().filter(|(is_so, ..)| *is_so) {
        diagnostics.error(written.span(), "[replication.lazy]", Mistake::new(*problem, *remedy));
    }
}

/// Refuses keys and sections of `[replication]` that only a gateway's file has.
fn refuse(keys: &[(&str, Option<Range<usize>>)], mistake: &Mistake, diagnostics: &mut Diagnostics<'_>) {
    for (key, span) in keys {
        let subject = format!("replication.{key}");
        diagnostics.describe_refused(&subject);
        if let Some(span) = span {
            diagnostics.error(span.clone(), &subject, mistake.clone());
        }
    }
}
