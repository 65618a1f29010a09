//! `[[group]]` and `[[port.group]]`.

use cluster::{GROUPS_MAX, GroupId};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawConfig, RawPort, Text};
use super::super::validated::{Group, Node, Port};
use super::named;

pub(super) fn groups(raw: &RawConfig, node: &Node, diagnostics: &mut Diagnostics<'_>) -> Vec<Group> {
    if let Some(first_beyond) = raw.group.get(GROUPS_MAX) {
        let mistake =
            Mistake::new(format!("there are more than {GROUPS_MAX} groups"), "put addresses together in fewer");
        diagnostics.error(first_beyond.span(), "[[group]]", mistake);
    }
    // Several groups are for several nodes at work, also after one of them was away.
    let preempt_by_default = raw.group.len() > 1;
    let detection = raw.failure_detection.as_ref().map(Spanned::get_ref);
    let preempt = detection.and_then(|detection| detection.preempt).unwrap_or(preempt_by_default);
    let mut groups: Vec<Group> = Vec::new();
    for written in raw.group.iter().take(GROUPS_MAX).map(Spanned::get_ref) {
        let name = named("group.name", &written.name, diagnostics);
        if groups.iter().any(|other| other.identity() == Group::identity_of(&name)) {
            let mistake = Mistake::new("another group has this name", "give each group its own name");
            diagnostics.error(written.name.span(), &format!("group {name:?}"), mistake);
        }
        let priority = written.priority.unwrap_or(node.priority);
        groups.push(Group { name, priority, preempt: written.preempt.unwrap_or(preempt) });
    }
    if let (Some(second), None) = (raw.group.get(1), &raw.replication) {
        let mistake = Mistake::new(
            "there are several groups, but [replication] names no peer that could hold one",
            "this node will hold all of them: add [[replication.peer]], or leave one group",
        );
        diagnostics.warning(second.span(), "[[group]]", mistake);
    }
    groups
}

/// A port's addresses as they are written, each with its group.
pub(super) fn grouped_addresses<'a>(
    subject: &str,
    raw: &'a RawPort,
    groups: &[Group],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<(GroupId, &'a Text)> {
    if let (true, Some(first)) = (groups.len() > 1, raw.addresses.first()) {
        let mistake = Mistake::new(
            "there are several groups, and these addresses are of none",
            "list each under a [[port.group]] with the name of its group",
        );
        diagnostics.error(first.span(), subject, mistake);
    }
    let mut addresses: Vec<_> = raw.addresses.iter().map(|text| (GroupId::FIRST, text)).collect();
    let mut named: Vec<usize> = Vec::new();
    for written in raw.group.iter().map(Spanned::get_ref) {
        let Some(index) = groups.iter().position(|group| group.name == *written.name.get_ref()) else {
            let mistake = Mistake::new(
                format!("there is no group {:?}", written.name.get_ref()),
                "add a [[group]] with that name, or write the name of one that there is",
            );
            diagnostics.error(written.name.span(), subject, mistake);
            continue;
        };
        if named.contains(&index) {
            let mistake = Mistake::new("the port has this group twice", "list all its addresses in one place");
            diagnostics.error(written.name.span(), subject, mistake);
        }
        named.push(index);
        addresses.extend(written.addresses.iter().map(|text| (GroupId::at(index), text)));
    }
    addresses
}

/// Warns of groups that have no address.
pub(super) fn check_use(raw: &RawConfig, ports: &[Port], diagnostics: &mut Diagnostics<'_>) {
    for (index, written) in raw.group.iter().take(GROUPS_MAX).enumerate() {
        let is_used = ports.iter().flat_map(|port| &port.addresses).any(|address| address.group.index() == index);
        if !is_used {
            let name = &written.get_ref().name;
            let mistake = Mistake::new(
                "no port has an address of the group",
                "list its addresses under [[port.group]], or remove the group",
            );
            diagnostics.warning(name.span(), &format!("group {:?}", name.get_ref()), mistake);
        }
    }
}
