//! How ready a node is, and what is wrong.

use conntrack_sync::{Obstacle, Readiness, SyncRole};
use packet_io::ctnetlink::Support;

use super::events::{injection_fails, split_brain};
use crate::describe;
use api::SyncReadiness;

/// How ready the node is, for keepalived and for operators.
pub(super) fn readiness(status: &conntrack_sync::SyncStatus, host: &Support) -> SyncReadiness {
    let Readiness { is_usable, obstacles } = &status.readiness;
    let clauses = |is_one: fn(&Obstacle) -> bool| -> Vec<String> {
        obstacles.iter().filter(|obstacle| is_one(obstacle)).map(ToString::to_string).collect()
    };
    let mut may_not_reasons = clauses(keeps_from_taking_over);
    may_not_reasons.extend(host.lacks.iter().filter(|lack| lack.is_fatal()).map(ToString::to_string));
    SyncReadiness {
        role: describe::sync_role(status.role),
        usable: *is_usable,
        not_usable_reasons: if *is_usable { Vec::new() } else { clauses(keeps_from_use) },
        // Who carries connections already does not lose them by going on.
        may_take_over: may_not_reasons.is_empty() || status.role == SyncRole::Primary,
        may_not_reasons,
        failover_safe: status.readiness.is_safe(),
        not_safe_reasons: clauses(|_| true),
    }
}

/// What this node knows is not all in its kernel.
fn keeps_from_use(obstacle: &Obstacle) -> bool {
    matches!(obstacle, Obstacle::NotInitialised | Obstacle::Pending(_) | Obstacle::NotInKernel(..))
}

/// Another node is the better one to carry connections. What is not among them does not last, or is no better elsewhere: a
/// silent peer must not keep this node from taking over, and neither must the fault that keepalived itself has reported.
fn keeps_from_taking_over(obstacle: &Obstacle) -> bool {
    matches!(
        obstacle,
        Obstacle::NotInitialised
            | Obstacle::NotInKernel(..)
            | Obstacle::IncompleteFromPeer(_)
            | Obstacle::NoRoom(_)
            | Obstacle::FewReplicated(_)
    )
}

/// What is wrong now, a sentence each, with what to do about it.
pub(super) fn troubles(status: &conntrack_sync::SyncStatus, host: &Support) -> Vec<String> {
    let mut troubles = Vec::new();
    for peer in &status.peers {
        if peer.is_split {
            troubles.push(split_brain(peer.id));
        }
        if !peer.is_up {
            troubles.push(format!(
                "node {} is unreachable: is it running, and the link between the nodes intact?",
                peer.id.0
            ));
        }
        if peer.lacks_room {
            troubles.push(format!(
                "node {}'s connections do not fit: raise kernel.connections_max to its value",
                peer.id.0
            ));
        }
    }
    troubles.extend(status.failing.map(injection_fails));
    let few = status.readiness.obstacles.iter().filter(|obstacle| matches!(obstacle, Obstacle::FewReplicated(_)));
    troubles.extend(few.map(ToString::to_string));
    if status.is_recovering {
        troubles.push("events of the kernel were lost, and are being made good by comparison: raise kernel.receive_buffer_max if this recurs".to_owned());
    }
    if status.connections >= status.connections_max {
        troubles.push("no more connections are remembered: raise kernel.connections_max, on all nodes".to_owned());
    }
    troubles.extend(host.lacks.iter().map(ToString::to_string));
    troubles
}

#[cfg(test)]
mod tests {
    use conntrack_sync::DumpResult;
    use packet_io::clock;
    use packet_io::ctnetlink::Lack;

    use super::*;
    use crate::sync::build;
    use config::sync::parse;

    #[test]
    fn a_node_may_take_over_once_it_knows_its_kernel_even_from_a_silent_peer_and_after_a_fault() {
        let text = "[node]\nid = 0\n[replication]\nlocal = \"127.0.0.1:3781\"\n[[replication.peer]]\nid = 1\n\
                    address = \"127.0.0.2:3781\"\n";
        let mut node = build::node(&parse("sync.toml", text).expect("it is right").config).expect("it can be made");
        let host = Support::default();
        let now = clock::now();
        let before = readiness(&node.status(now), &host);
        assert!(!before.may_take_over && !before.usable, "{before:?}");
        assert!(before.not_usable_reasons[0].contains("has not been read yet"), "{before:?}");

        assert!(node.poll_dump(now));
        node.handle_dump_ended(now, DumpResult::Complete);
        let alone = readiness(&node.status(now), &host);
        assert!(alone.may_take_over && alone.usable && !alone.failover_safe, "{alone:?}");
        assert_eq!(alone.not_safe_reasons, ["node 1 is unreachable"]);
        assert!(troubles(&node.status(now), &host)[0].contains("is it running"));

        node.set_role(now, SyncRole::Fault);
        assert!(readiness(&node.status(now), &host).may_take_over, "keepalived's fault could never end");
        let deaf = Support { lacks: vec![Lack::Events], ..Support::default() };
        let obstacles = readiness(&node.status(now), &deaf).may_not_reasons;
        assert!(obstacles[0].contains("nf_conntrack_events=1"), "{obstacles:?}");
    }
}
