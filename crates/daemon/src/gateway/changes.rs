//! What differs between the configuration in force and another, and which of it can change while packets pass.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::time::Duration;

use cluster::node::Reevaluation;

use config::validated::{
    Backups, Cluster, Compact, Config, FailureDetection, FastPath, Ftp, Function, Group, Membership, Node, OnReload,
    Peer, Port, Replication, Representation, Security, SharedAddress, Tracking, Workers,
};
use control::remote::RemoteAccess;
use network_functions::classifier::ClassifierConfig;

/// Names that a phrase lists; further ones are counted.
const NAMES_MAX: usize = 8;

/// Whether connections that begin are translated by both alike.
fn translate_alike(old: &Config, new: &Config) -> bool {
    let services = |config: &Config| config.services.iter().map(|service| service.config.clone()).collect::<Vec<_>>();
    old.chain == new.chain
        && old.nat_ports == new.nat_ports
        && old.nat_mapping_key == new.nat_mapping_key
        && old.source_nat == new.source_nat
        && old.destination_nat == new.destination_nat
        && services(old) == services(new)
}

/// The differences, a phrase each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Changes {
    /// Those that can be applied.
    pub(super) applicable: Vec<String>,
    /// Those that only a restart can apply.
    pub(super) needs_restart: Vec<String>,
    /// What of the connections that there are.
    pub(super) reevaluation: Reevaluation,
    /// What connections are translated to has changed.
    pub(super) translates_otherwise: bool,
}

impl Changes {
    /// What is otherwise in `new` than in `old`. Every field is named here, so that a new one cannot be forgotten.
    pub(super) fn between(old: &Config, new: &Config) -> Self {
        let Config {
            node,
            ports,
            groups,
            routes,
            connections_max,
            limits,
            timeouts,
            tracking,
            reachability,
            chain,
            classifier,
            firewall,
            firewall_log_per_s,
            on_reload,
            services,
            rate_limit,
            syn_proxy,
            url_filter,
            nat_ports: _,
            nat_mapping_key: _,
            nat_key: _,
            source_nat: _,
            destination_nat: _,
            related,
            ftp,
            workers: Workers { count, pin },
            fast_path:
                FastPath { enabled, hook, connections_max: fast_path_connections_max, restart_grace, pin_directory },
            cluster,
            membership,
            redundancy,
            control,
        } = old;
        let reevaluation = match new.on_reload {
            // Enabled only now, it covers the connections that earlier rules let in, too.
            _ if (chain, firewall, on_reload, related, url_filter)
                == (&new.chain, &new.firewall, &new.on_reload, &new.related, &new.url_filter) =>
            {
                Reevaluation::AsBefore
            }
            OnReload::Keep => Reevaluation::Keep,
            OnReload::Reevaluate => Reevaluation::Reevaluate,
        };
        let mut changes = Self {
            applicable: Vec::new(),
            needs_restart: Vec::new(),
            reevaluation,
            translates_otherwise: !translate_alike(old, new),
        };
        changes.node(node, &new.node);
        changes.groups(groups, &new.groups);
        changes.ports((ports, groups), (&new.ports, &new.groups));
        changes.restart("workers.count", count, &new.workers.count);
        changes.restart("workers.pin", pin, &new.workers.pin);
        changes.restart("fast_path.enabled", enabled, &new.fast_path.enabled);
        changes.restart("fast_path.hook", hook, &new.fast_path.hook);
        let connections = (fast_path_connections_max, &new.fast_path.connections_max);
        changes.restart("fast_path.connections_max", connections.0, connections.1);
        changes.restart("fast_path.restart_grace", restart_grace, &new.fast_path.restart_grace);
        changes.restart("fast_path.pin_directory", pin_directory, &new.fast_path.pin_directory);
        changes.list("route", routes, &new.routes, |route| route.to.to_string());
        changes.restart("limits.connections_max", connections_max, &new.connections_max);
        for ((key, before), (_, after)) in limits.entries().into_iter().zip(new.limits.entries()) {
            changes.restart(&format!("limits.{key}"), &before, &after);
        }
        for ((key, before), (_, after)) in timeouts.entries().into_iter().zip(new.timeouts.entries()) {
            changes.apply(&format!("timeouts.{key}"), &before, &after);
        }
        let Tracking { loose, liberal, reset_stray } = tracking;
        changes.apply("tracking.loose", loose, &new.tracking.loose);
        changes.apply("tracking.liberal", liberal, &new.tracking.liberal);
        changes.apply("tracking.reset_stray", reset_stray, &new.tracking.reset_stray);
        let reaches = [reachability.entries(ports), new.reachability.entries(&new.ports)];
        for ((key, before), (_, after)) in reaches[0].iter().zip(&reaches[1]) {
            changes.apply(&format!("reachability.{key}"), before, after);
        }
        changes.chain(old, new);
        changes.classifier(classifier, &new.classifier);
        changes.list("firewall rule", firewall, &new.firewall, |rule| rule.name.clone());
        changes.restart("firewall.log_per_s", firewall_log_per_s, &new.firewall_log_per_s);
        changes.apply("firewall.on_reload", on_reload, &new.on_reload);
        changes.apply("firewall.related", related, &new.related);
        changes.list("rate_limit rule", rate_limit, &new.rate_limit, |rule| rule.name.clone());
        changes.list("syn_proxy rule", &syn_proxy.rules, &new.syn_proxy.rules, |rule| rule.name.clone());
        changes.apply("syn_proxy.key", &syn_proxy.key, &new.syn_proxy.key);
        changes
            .list("url_filter list", &url_filter.lists, &new.url_filter.lists, |list| list.path.display().to_string());
        changes.apply("url_filter.server", &url_filter.server, &new.url_filter.server);
        changes.list("url_filter rule", &url_filter.rules, &new.url_filter.rules, |rule| rule.name.clone());
        changes.list("service", services, &new.services, |service| service.config.name.clone());
        changes.translations(old, new);
        changes.ftp(ftp, &new.ftp);
        changes.control(control.as_ref(), new.control.as_ref());
        changes.membership(membership, &new.membership);
        if *redundancy != new.redundancy {
            changes.needs_restart.push("[redundancy]".into());
        }
        match (cluster, &new.cluster) {
            (Some(old), Some(new)) => changes.cluster(old, new),
            (None, None) => {}
            (old, _) => {
                let verb = if old.is_some() { "removed" } else { "added" };
                changes.needs_restart.push(format!("[replication] {verb}"));
            }
        }
        changes
    }

    fn node(&mut self, old: &Node, new: &Node) {
        let Node { id, name, nodes, priority, announce_refresh, control_socket, metrics, log, log_format, log_per_s } =
            old;
        self.restart("node.id", &id.0, &new.id.0);
        self.apply("node.name", name, &new.name);
        self.restart("node.nodes", nodes, &new.nodes);
        self.apply("node.priority", priority, &new.priority);
        self.apply("node.announce_refresh", announce_refresh, &new.announce_refresh);
        self.restart("node.control_socket", control_socket, &new.control_socket);
        self.restart("node.metrics", metrics, &new.metrics);
        self.apply("node.log", &log.name(), &new.log.name());
        self.restart("node.log_format", log_format, &new.log_format);
        self.restart("node.log_per_s", log_per_s, &new.log_per_s);
    }

    /// What clients must show is read anew by every reload.
    fn control(&mut self, old: Option<&RemoteAccess>, new: Option<&RemoteAccess>) {
        let (Some(old), Some(new)) = (old, new) else {
            self.restart("control.listen", &old.map(|access| access.listen), &new.map(|access| access.listen));
            return;
        };
        let RemoteAccess { listen, tokens, identity, client_authority, clients } = old;
        self.restart("control.listen", listen, &new.listen);
        self.apply("control.tokens", tokens, &new.tokens);
        self.apply("control.certificate", identity, &new.identity);
        self.apply("control.client_authority", client_authority, &new.client_authority);
        self.list("control client", clients, &new.clients, |(name, _)| name.clone());
    }

    fn groups(&mut self, old: &[Group], new: &[Group]) {
        let names = |groups: &[Group]| groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>();
        if names(old) != names(new) {
            // The nodes know them by their names, and this node's addresses by their places.
            self.restart("groups", &names(old), &names(new));
            return;
        }
        for (old, new) in old.iter().zip(new) {
            let Group { name, priority, preempt } = old;
            self.apply(&format!("priority of group {name:?}"), priority, &new.priority);
            self.apply(&format!("preempt of group {name:?}"), preempt, &new.preempt);
        }
    }

    fn ports(&mut self, (old, old_groups): (&[Port], &[Group]), (new, new_groups): (&[Port], &[Group])) {
        let names = |ports: &[Port]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
        if names(old) != names(new) {
            // Connections and rules refer to ports by their places.
            self.restart("ports", &names(old), &names(new));
            return;
        }
        for (old, new) in old.iter().zip(new) {
            let Port {
                id: _,
                name,
                interface,
                backend,
                addresses,
                mss_clamp,
                reverse_path,
                router_advertisements,
                redirect_peer,
            } = old;
            self.restart(&format!("interface of port {name:?}"), interface, &new.interface);
            self.restart(&format!("backend of port {name:?}"), backend, &new.backend);
            self.restart(&format!("redirect_peer of port {name:?}"), redirect_peer, &new.redirect_peer);
            self.apply(&format!("mss_clamp of port {name:?}"), mss_clamp, &new.mss_clamp);
            self.apply(&format!("reverse_path of port {name:?}"), reverse_path, &new.reverse_path);
            self.apply(
                &format!("router_advertisements of port {name:?}"),
                router_advertisements,
                &new.router_advertisements,
            );
            let what = format!("port {name:?}: address");
            let described = |addresses: &[SharedAddress], groups: &[Group]| -> Vec<String> {
                addresses.iter().map(|address| describe(address, groups)).collect()
            };
            let (before, after) = (described(addresses, old_groups), described(&new.addresses, new_groups));
            self.list(&what, &before, &after, Clone::clone);
        }
    }

    /// New tables decide about connections that are not settled, and about those that begin.
    fn classifier(&mut self, old: &ClassifierConfig, new: &ClassifierConfig) {
        let ClassifierConfig { rules, has_built_in, packets_max, dscp } = old;
        self.whole("classifier.rule", rules, &new.rules);
        self.apply("classifier.built_in", has_built_in, &new.has_built_in);
        self.apply("classifier.packets_max", packets_max, &new.packets_max);
        self.apply("classifier.mark", dscp, &new.dscp);
    }

    fn ftp(&mut self, old: &Ftp, new: &Ftp) {
        let Ftp { ports, loose, privileged_ports, timeout } = old;
        self.apply("ftp.ports", ports, &new.ports);
        self.apply("ftp.loose", loose, &new.loose);
        self.apply("ftp.privileged_ports", privileged_ports, &new.privileged_ports);
        self.apply("ftp.timeout", timeout, &new.timeout);
    }

    fn cluster(&mut self, old: &Cluster, new: &Cluster) {
        let Cluster { replication, failure_detection } = old;
        self.replication(replication, &new.replication);
        let FailureDetection {
            local,
            interval,
            multiplier,
            interval_while_down,
            startup_hold,
            preempt,
            service_paths,
            edges_max,
            plain_edges,
        } = failure_detection;
        let new = &new.failure_detection;
        self.restart("failure_detection.local", local, &new.local);
        self.apply("failure_detection.interval", interval, &new.interval);
        self.apply("failure_detection.multiplier", multiplier, &new.multiplier);
        self.apply("failure_detection.interval_while_down", interval_while_down, &new.interval_while_down);
        self.apply("failure_detection.startup_hold", startup_hold, &new.startup_hold);
        self.apply("failure_detection.preempt", preempt, &new.preempt);
        self.restart("failure_detection.service_paths", service_paths, &new.service_paths);
        self.restart("failure_detection.edges_max", edges_max, &new.edges_max);
        self.restart("failure_detection.plain_edges", plain_edges, &new.plain_edges);
    }

    fn replication(&mut self, old: &Replication, new: &Replication) {
        let Replication {
            local,
            representation,
            compact,
            start,
            hold_first_reply,
            wait_for_peer,
            is_symmetric,
            datagram_bytes_max,
            service_path_bytes_per_s,
            in_flight_messages_max,
            ack_every_messages,
            ack_delay,
            alive_interval,
            peer_timeout,
            lazy,
            backups,
            peers,
            security,
        } = old;
        self.restart("replication.local", local, &new.local);
        let is_precise = |representation: Representation| {
            matches!(representation, Representation::PreciseSelective | Representation::PreciseEager)
        };
        if is_precise(*representation) && is_precise(new.representation) {
            self.apply("replication.representation", representation, &new.representation);
        } else {
            self.restart("replication.representation", representation, &new.representation);
        }
        self.compact(compact.as_ref(), new.compact.as_ref());
        if representation.is_compact() {
            // A filter's entries would be of both kinds.
            self.restart("replication.start", &start.name(), &new.start.name());
        } else {
            self.apply("replication.start", &start.name(), &new.start.name());
        }
        self.apply("replication.hold_first_reply", hold_first_reply, &new.hold_first_reply);
        self.apply("replication.wait_for_peer", wait_for_peer, &new.wait_for_peer);
        self.restart("replication.symmetric", is_symmetric, &new.is_symmetric);
        self.restart("replication.datagram_bytes_max", datagram_bytes_max, &new.datagram_bytes_max);
        self.apply(
            "replication.service_path_bytes_per_second",
            service_path_bytes_per_s,
            &new.service_path_bytes_per_s,
        );
        self.restart("replication.in_flight_messages_max", in_flight_messages_max, &new.in_flight_messages_max);
        self.restart("replication.ack_every_messages", ack_every_messages, &new.ack_every_messages);
        let durations: [(&str, &Duration, &Duration); 3] = [
            ("ack_delay", ack_delay, &new.ack_delay),
            ("alive_interval", alive_interval, &new.alive_interval),
            ("peer_timeout", peer_timeout, &new.peer_timeout),
        ];
        for (key, before, after) in durations {
            self.restart(&format!("replication.{key}"), before, after);
        }
        let lazy = [lazy.as_ref(), new.lazy.as_ref()].map(config::lazy::entries);
        for ((key, before), (_, after)) in lazy[0].iter().zip(&lazy[1]) {
            self.apply(&format!("replication.lazy.{key}"), before, after);
        }
        self.backups(backups.as_ref(), new.backups.as_ref());
        self.security(security.as_ref(), new.security.as_ref());
        let named = |peer: &Peer| format!("node {}", peer.id.0);
        let differing = list_phrase("replication.peer", peers, &new.peers, named);
        // The streams of a filter are divided among the peers when the filter is made.
        if representation.is_compact() {
            self.needs_restart.extend(differing);
        } else {
            self.applicable.extend(differing);
        }
    }

    /// The other keys are those by which nodes find connections: nodes that differ in them do not.
    fn backups(&mut self, old: Option<&Backups>, new: Option<&Backups>) {
        let are_there = old.is_some() && new.is_some();
        let entries = [old, new].map(config::backups::entries);
        for ((key, before), (_, after)) in entries[0].iter().zip(&entries[1]) {
            let (what, applies) = (format!("replication.backups.{key}"), matches!(*key, "count" | "edge_nodes"));
            if are_there && applies { self.apply(&what, before, after) } else { self.restart(&what, before, after) }
        }
    }

    fn membership(&mut self, old: &Membership, new: &Membership) {
        let Membership { source, state_file, forget_after, start_wait: _ } = old;
        if source == &new.source {
            self.restart("membership.state_file", state_file, &new.state_file);
            self.restart("membership.forget_after", forget_after, &new.forget_after);
        } else if source.name() == new.source.name() {
            self.needs_restart.push("[membership]".into());
        } else {
            self.restart("membership.source", &source.name(), &new.source.name());
        }
    }

    /// Where only one of the two has a filter, the representations differ, which is reported already.
    fn compact(&mut self, old: Option<&Compact>, new: Option<&Compact>) {
        let (Some(old), Some(new)) = (old, new) else { return };
        for ((key, before), (_, after)) in old.entries().into_iter().zip(new.entries()) {
            self.restart(&format!("replication.{key}"), &before, &after);
        }
    }

    /// Whether NAT comes or goes is a change of the translations.
    fn chain(&mut self, old: &Config, new: &Config) {
        let translates = |config: &Config| config.chain.contains(&Function::Nat);
        let (before, after) = (names(&old.chain), names(&new.chain));
        if translates(old) != translates(new) && (is_compact(old) || is_compact(new)) {
            self.restart("chain", &before, &after);
        } else {
            self.apply("chain", &before, &after);
        }
    }

    /// The node that takes over translates a filter's entries by its own rules: they must not have changed meanwhile.
    fn translations(&mut self, old: &Config, new: &Config) {
        let applicable = self.applicable.len();
        self.apply("nat.ports", &old.nat_ports, &new.nat_ports);
        self.apply("nat.mapping_key", &old.nat_mapping_key, &new.nat_mapping_key);
        self.apply("nat.key", &old.nat_key, &new.nat_key);
        self.whole("nat.source", &old.source_nat, &new.source_nat);
        self.whole("nat.destination", &old.destination_nat, &new.destination_nat);
        if is_compact(old) || is_compact(new) {
            self.needs_restart.extend(self.applicable.drain(applicable..));
        }
    }

    /// Paths and times; what the files hold is compared when they have been read.
    fn security(&mut self, old: Option<&Security>, new: Option<&Security>) {
        match (old, new) {
            (Some(old), Some(new)) => {
                for ((key, before), (_, after)) in old.entries().into_iter().zip(new.entries()) {
                    self.apply(&format!("replication.security.{key}"), &before, &after);
                }
            }
            (None, None) => {}
            (old, new) => {
                let mode = |security: Option<&Security>| if security.is_some() { "encrypted" } else { "plain" };
                self.restart("replication.security.mode", &mode(old), &mode(new));
            }
        }
    }

    fn apply<T: PartialEq + Debug>(&mut self, what: &str, old: &T, new: &T) {
        self.applicable.extend(phrase(what, old, new));
    }

    fn restart<T: PartialEq + Debug>(&mut self, what: &str, old: &T, new: &T) {
        self.needs_restart.extend(phrase(what, old, new));
    }

    /// Items without names: the phrase has their number.
    fn whole<T: PartialEq>(&mut self, what: &str, old: &[T], new: &[T]) {
        if old != new {
            self.applicable.push(format!("{what}: {} before, {} now", rules(old.len()), rules(new.len())));
        }
    }

    fn list<T: PartialEq>(&mut self, what: &str, old: &[T], new: &[T], name: impl Fn(&T) -> String) {
        self.applicable.extend(list_phrase(what, old, new, name));
    }
}

/// Connections are replicated as entries of a filter.
fn is_compact(config: &Config) -> bool {
    config.cluster.as_ref().is_some_and(|cluster| cluster.replication.compact.is_some())
}

fn names(chain: &[Function]) -> Vec<&'static str> {
    let name = |function: &Function| Function::ALL.iter().find(|(_, known)| known == function).map(|(name, _)| *name);
    chain.iter().filter_map(name).collect()
}

/// An address, with its group where it has one by name.
fn describe(address: &SharedAddress, groups: &[Group]) -> String {
    match groups.get(address.group.index()) {
        Some(group) => format!("{} of group {:?}", address.prefix, group.name),
        None => address.prefix.to_string(),
    }
}

fn rules(number: usize) -> String {
    console::counted(number, "rule")
}

fn phrase<T: PartialEq + Debug>(what: &str, old: &T, new: &T) -> Option<String> {
    (old != new).then(|| format!("{what}: {old:?} before, {new:?} now"))
}

/// Which of the named items came, went and changed, and whether the order of the others is another.
fn list_phrase<T: PartialEq>(what: &str, old: &[T], new: &[T], name: impl Fn(&T) -> String) -> Option<String> {
    if old == new {
        return None;
    }
    let by_name = |items: &[T]| -> BTreeMap<String, usize> { items.iter().map(&name).zip(0..).collect() };
    let (before, after) = (by_name(old), by_name(new));
    let only_in = |items: &[T], others: &BTreeMap<String, usize>| -> Vec<String> {
        items.iter().map(&name).filter(|name| !others.contains_key(name)).collect()
    };
    let is_changed = |item: &&T| before.get(&name(item)).is_some_and(|index| old[*index] != **item);
    let parts = [
        ("added", only_in(new, &before)),
        ("removed", only_in(old, &after)),
        ("changed", new.iter().filter(is_changed).map(&name).collect()),
    ];
    let mut text = String::new();
    for (verb, names) in parts {
        if !names.is_empty() {
            let separator = if text.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{verb} {}", enumerate(&names));
        }
    }
    if text.is_empty() {
        text.push_str("in another order");
    }
    Some(format!("{what}: {text}"))
}

fn enumerate(names: &[String]) -> String {
    let listed = names[..names.len().min(NAMES_MAX)].join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
