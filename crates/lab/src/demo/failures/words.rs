//! The nodes' status, read as an operator's scripts would read it: fields that a node does not have are null.

use serde::Serialize;
use serde_json::Value;

/// A node's status, as the control API has it; nothing of one that does not answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct NodeStatus(pub(super) Option<Value>);

/// What is shown of a node's status during a failure.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct StatusWords {
    /// The node.
    pub node: &'static str,
    /// Its role; none while it does not answer.
    pub role: Option<String>,
    /// Whether a peer could take over without losing connections.
    pub ready: Option<bool>,
    /// The reasons why not.
    pub not_ready: Vec<String>,
    /// The reason why it takes no addresses over, if it is passive.
    pub passive: Option<String>,
    /// Whether a peer is up on service paths alone, without replication; null where it reports no paths.
    pub degraded: Option<bool>,
    /// Whether a peer may hold the same addresses: `none`, `suspected` or `confirmed`; null where it does not report
    /// that.
    pub split_brain: Option<String>,
    /// Ports that are down; null where it reports no ports' carriers.
    pub ports_down: Option<Vec<String>>,
    /// Paths to its peers with their states; null where it reports none.
    pub paths: Option<Vec<String>>,
    /// Next hops that are lost; null where it tracks none.
    pub next_hops_lost: Option<Vec<String>>,
}

impl NodeStatus {
    fn at(&self, pointer: &str) -> &Value {
        self.0.as_ref().and_then(|status| status.pointer(pointer)).unwrap_or(&Value::Null)
    }

    /// Its role; empty while it does not answer.
    pub(super) fn role(&self) -> &str {
        self.at("/node/role").as_str().unwrap_or_default()
    }

    /// Since when it has it, in nanoseconds of the monotonic clock.
    pub(super) fn role_since_ns(&self) -> Option<u64> {
        self.at("/node/role_since_ns").as_u64()
    }

    /// Whether a peer could take over.
    pub(super) fn is_ready(&self) -> Option<bool> {
        self.at("/takeover/ready").as_bool()
    }

    /// What is in the way of that.
    pub(super) fn not_ready(&self) -> Vec<String> {
        self.at("/takeover/obstacles").as_array().into_iter().flatten().map(plain).collect()
    }

    /// Whether every peer is up and has acknowledged all that was replicated to it.
    pub(super) fn is_synchronised(&self) -> bool {
        let mut peers = self.peers().peekable();
        peers.peek().is_some() && peers.all(|peer| peer["synchronised"] == true && peer["detector"] == "up")
    }

    /// Why it takes no addresses over; nothing while it may.
    pub(super) fn passive(&self) -> Option<&str> {
        self.at("/node/passive").as_str()
    }

    /// Whether a peer is up on service paths alone, without replication; nothing where it reports no paths.
    pub(super) fn degraded(&self) -> Option<bool> {
        let is_degraded = |peer: &Value| {
            let paths = peer["paths"].as_array()?;
            let is_up = |is_replication: bool| {
                let mut of_kind = paths.iter().filter(|path| (path["path"] == "replication") == is_replication);
                of_kind.any(|path| path["state"] == "up")
            };
            (!paths.is_empty()).then(|| !is_up(true) && is_up(false))
        };
        self.peers().filter_map(is_degraded).reduce(|one, other| one || other)
    }

    /// The split-brain state with peers that may hold the same addresses: of several, the worst.
    fn split_brain(&self) -> Option<&str> {
        let words = self.peers().filter_map(|peer| peer["split_brain"].as_str().filter(|word| !word.is_empty()));
        words.max_by_key(|word| *word != "none")
    }

    /// Whether it reports that two nodes may be active, or are.
    pub(super) fn names_split_brain(&self) -> bool {
        self.split_brain().is_some_and(|word| word != "none")
    }

    fn peers(&self) -> impl Iterator<Item = &Value> {
        self.at("/peers").as_array().into_iter().flatten()
    }

    /// Whether it reports that a port is down.
    pub(super) fn has_port_down(&self, port: &str) -> bool {
        self.ports_down().is_some_and(|down| down.iter().any(|name| name == port))
    }

    fn ports_down(&self) -> Option<Vec<String>> {
        let ports = self.at("/ports").as_array()?;
        let known: Vec<_> =
            ports.iter().filter_map(|port| Some((port["name"].as_str()?, port["up"].as_bool()?))).collect();
        let down = known.iter().filter(|(_, is_up)| !is_up).map(|(name, _)| (*name).to_owned());
        (!known.is_empty()).then(|| down.collect())
    }

    fn paths(&self) -> Option<Vec<String>> {
        let of_peer = |peer: &Value| peer["paths"].as_array().cloned();
        let paths: Vec<Value> = self.at("/peers").as_array()?.iter().filter_map(of_peer).flatten().collect();
        let text = |path: &Value| format!("{} {}", plain(&path["path"]), plain(&path["state"]));
        (!paths.is_empty()).then(|| paths.iter().map(text).collect())
    }

    /// Next hops that are lost; nothing where it tracks none.
    pub(super) fn next_hops_lost(&self) -> Option<Vec<String>> {
        let hops = self.at("/next_hops").as_array()?;
        Some(hops.iter().filter(|hop| hop["state"] == "lost").map(|hop| plain(&hop["address"])).collect())
    }

    /// What is shown of it.
    pub(super) fn words(&self, node: &'static str) -> StatusWords {
        StatusWords {
            node,
            role: self.0.is_some().then(|| self.role().to_owned()),
            ready: self.is_ready(),
            not_ready: self.not_ready(),
            passive: self.passive().map(str::to_owned),
            degraded: self.degraded(),
            split_brain: self.split_brain().map(str::to_owned),
            ports_down: self.ports_down(),
            paths: self.paths(),
            next_hops_lost: self.next_hops_lost(),
        }
    }
}

impl StatusWords {
    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let Some(role) = &self.role else { return format!("{} does not answer", self.node) };
        let mut text = format!("{} is {role}", self.node);
        let mut add = |label: &str, words: String| text.push_str(&format!("; {label}{words}"));
        match self.ready {
            Some(true) => add("ready", String::new()),
            _ if self.not_ready.is_empty() => {}
            _ => add("not ready: ", self.not_ready.join(", ")),
        }
        if self.degraded == Some(true) {
            add("degraded", String::new());
        }
        if let Some(word) = self.split_brain.as_ref().filter(|word| *word != "none") {
            add("split brain ", word.clone());
        }
        if let Some(reason) = &self.passive {
            add("passive: ", reason.clone());
        }
        for (label, lost) in [("down: ", &self.ports_down), ("next hop lost: ", &self.next_hops_lost)] {
            if let Some(lost) = lost.as_ref().filter(|lost| !lost.is_empty()) {
                add(label, lost.join(", "));
            }
        }
        text
    }
}

/// A value without JSON's quotes; of a list, its members.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(members) => members.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_that_lacks_the_newer_fields_is_read_by_the_older_ones() {
        let status = NodeStatus(Some(json!({
            "node": {"role": "active", "role_since_ns": 7},
            "takeover": {"ready": false, "obstacles": ["node 1 is down"]},
            "ports": [{"name": "inside"}],
            "peers": [{"detector": "down", "synchronised": false}],
        })));
        assert_eq!((status.role(), status.role_since_ns(), status.is_ready()), ("active", Some(7), Some(false)));
        assert!(status.degraded().is_none() && !status.names_split_brain() && !status.has_port_down("inside"));
        let words = status.words("a");
        assert_eq!((words.ports_down.as_ref(), words.paths.as_ref()), (None, None));
        assert_eq!(words.line(), "a is active; not ready: node 1 is down");
        assert_eq!(NodeStatus::default().words("b").line(), "b does not answer");
    }

    #[test]
    fn the_newer_fields_are_shown_where_they_are_set() {
        let status = NodeStatus(Some(json!({
            "node": {"role": "standby", "passive": "its key is another"},
            "takeover": {"ready": false, "obstacles": ["port inside is down"]},
            "ports": [{"name": "inside", "up": false}, {"name": "outside", "up": true}],
            "peers": [{
                "paths": [{"path": "replication", "state": "down"}, {"path": "inside", "state": "up"}],
                "split_brain": "suspected",
            }],
            "next_hops": [{"address": "192.0.2.1", "state": "lost"}, {"address": "192.0.2.2", "state": "reached"}],
        })));
        assert!(status.degraded() == Some(true) && status.names_split_brain() && status.has_port_down("inside"));
        assert!(!status.has_port_down("outside"));
        let words = status.words("b");
        assert_eq!(words.paths.as_deref(), Some(&["replication down".to_owned(), "inside up".to_owned()][..]));
        assert_eq!(
            words.line(),
            "b is standby; not ready: port inside is down; degraded; split brain suspected; passive: its key is another; \
             down: inside; next hop lost: 192.0.2.1"
        );
    }
}
