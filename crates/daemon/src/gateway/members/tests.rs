//! What becomes of the lists that a source of members delivers.

use membership::{VERSION_END, version_above};

use super::*;

const CONFIG: &str = include_str!("../../../../../examples/etcd.toml");

fn loaded() -> Arc<Members> {
    let config = config::parse("mainstay.toml", CONFIG).expect("it is right").config;
    Members::load(&config).expect("the members are elsewhere")
}

fn member(id: u8, version: u64) -> (NodeId, Result<Member, RecordError>) {
    let text = format!("replication=10.99.0.{}:3781 detection=10.99.0.{}:3784 version={version}", id + 1, id + 1);
    (NodeId(id), Member::parse(NodeId(id), &text))
}

fn list(members: Vec<(NodeId, Result<Member, RecordError>)>) -> List {
    List { members, settings: None }
}

fn settings(text: &str) -> List {
    List { members: Vec::new(), settings: Some(Settings::parse(text)) }
}

fn kinds(members: &Members) -> Vec<EventKind> {
    members.take_events().into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn peers_follow_the_source_and_stay_when_it_is_lost() {
    let members = loaded();
    let config = config::parse("mainstay.toml", CONFIG).expect("it is right").config;
    let peers = |members: &Members| {
        let applied = members.applied_to(&config);
        let ids = applied.cluster.expect("there is one").replication.peers;
        ids.iter().map(|peer| peer.id.0).collect::<Vec<_>>()
    };
    assert_eq!(peers(&members), [0; 0]);
    members.handle_list(list(vec![member(0, 1), member(1, 1), member(2, 1)]));
    assert_eq!(peers(&members), [1, 2], "this node is no peer of its own");
    assert_eq!(members.poll_changes().len(), 2);
    assert_eq!(kinds(&members), [EventKind::MemberJoined; 2]);

    members.note_unreachable("no quorum");
    members.note_unreachable("no quorum");
    assert_eq!(kinds(&members), [EventKind::MembershipLost], "once");
    assert_eq!(peers(&members), [1, 2]);
    let status = members.status();
    assert_eq!((status.reachable, status.error.as_deref()), (false, Some("no quorum")));

    // A lease has expired meanwhile; its node is up.
    members.note_peer(NodeId(1), true);
    members.handle_list(list(vec![member(2, 1)]));
    assert_eq!(members.poll_changes(), []);
    assert_eq!(kinds(&members), [EventKind::MembershipRestored]);
    assert_eq!(peers(&members), [1, 2]);
    let recorded: Vec<_> = members.status().members.iter().map(|member| member.recorded).collect();
    assert_eq!(recorded, [false, true]);
}

#[test]
fn records_that_cannot_be_used_are_reported() {
    let members = loaded();
    members.handle_list(list(vec![(NodeId(1), Err(RecordError::NotAPair)), member(2, 1)]));
    let status = members.status();
    assert!(status.refused.expect("it is reported").contains("node 1"));
    assert_eq!(status.members.len(), 1);
    assert_eq!(kinds(&members), [EventKind::Warning]);

    // The clock of node 2 was ahead: what it publishes now is older.
    members.handle_list(list(vec![member(2, 1_000)]));
    for _ in 0..3 {
        members.handle_list(list(vec![member(2, 7)]));
        let refused = members.status().refused.expect("it is reported");
        assert!(refused.contains("node 2, version 7") && refused.contains("1000"), "{refused}");
    }
    assert_eq!(kinds(&members), [EventKind::Warning], "once");
    members.handle_list(list(Vec::new()));
    members.handle_list(list(vec![member(2, 7)]));
    assert_eq!(members.status().refused, None, "its lease had ended");
    assert_eq!(members.status().members[0].version, 7);
}

#[test]
fn a_version_that_nothing_could_supersede_is_refused() {
    let members = loaded();
    members.handle_list(list(vec![member(1, u64::MAX), member(2, 1)]));
    assert_eq!(members.status().members.len(), 1);
    assert!(members.status().refused.expect("it is reported").contains("below 2^63"));
    members.handle_list(list(vec![member(1, 3), member(2, 1)]));
    assert_eq!((members.status().members.len(), members.status().refused), (2, None));
}

/// A record with this node's number, at the address of another.
fn twin(version: u64) -> List {
    let (_, record) = member(7, version);
    list(vec![(NodeId(0), record.map(|twin| Member { id: NodeId(0), ..twin }))])
}

#[test]
fn the_own_number_is_taken_back_from_a_former_run_whatever_its_address_but_not_from_a_node_that_goes_on_using_it() {
    let members = loaded();
    let ahead = members.own().version + 86_400_000;
    members.handle_list(twin(ahead));
    assert_eq!((members.own().version, members.status().refused, members.has_twin()), (ahead + 1, None, false));
    // It is another node, which has taken it back as well.
    for _ in 0..3 {
        members.handle_list(twin(ahead + 2));
        assert_eq!((members.own().version, members.has_twin()), (ahead + 1, true));
        assert!(members.status().refused.expect("it is reported").contains("node.id"));
    }
    let own = members.own();
    members.handle_list(list(vec![(own.id, Ok(own.clone()))]));
    assert_eq!((members.status().refused, members.has_twin()), (None, false), "the other node has another number now");
    // At this node's own address only it can have been, however often.
    for version in [ahead + 10, ahead + 20, VERSION_END - 1] {
        members.handle_list(list(vec![(own.id, Ok(Member { state: MemberState::Left, version, ..own.clone() }))]));
        assert_eq!((members.own().version, members.status().refused), (version_above(version), None));
    }
}

#[test]
fn the_own_record_gets_a_higher_version_with_each_change() {
    let members = loaded();
    let before = members.own().version;
    members.set_own_state(MemberState::Draining);
    let draining = members.own();
    assert!(draining.version > before && draining.state == MemberState::Draining);
    members.set_own_state(MemberState::Active);
    assert!(members.own().version > draining.version);
}

#[test]
fn settings_with_a_poisoned_version_can_be_taken_back() {
    let members = loaded();
    let known = |members: &Members| (members.settings().version, members.status().refused);
    members.handle_list(settings(&format!("version={} backups=2", VERSION_END - 1)));
    members.handle_list(settings("version=4 backups=1"));
    let (version, refused) = known(&members);
    assert_eq!(version, VERSION_END - 1);
    assert!(refused.expect("it is reported").contains("delete them"));
    members.handle_list(list(Vec::new()));
    members.handle_list(settings("version=4 backups=1"));
    assert_eq!(known(&members), (4, None));
    members.handle_list(settings("version=4 backups=8"));
    let (_, refused) = known(&members);
    assert!(refused.expect("it is reported").contains("two different settings of version 4"));
    assert_eq!(members.settings().backups, Some(1));
    members.handle_settings(Settings { version: 4, backups: Some(8), ..Settings::default() });
    assert_eq!(members.settings().backups, Some(1), "nor by gossip");
}

#[test]
fn the_settings_decide_about_backups_where_the_file_has_the_section() {
    const MANY: &str = include_str!("../../../../../examples/many-nodes.toml");
    let members = loaded();
    let file = config::parse("mainstay.toml", MANY).expect("it is right").config;
    let applied = |members: &Members| {
        let backups = members.applied_to(&file).cluster.expect("there is one").replication.backups;
        backups.map(|backups| (backups.count, backups.edge_nodes.iter().map(|node| node.0).collect::<Vec<_>>()))
    };
    assert_eq!(applied(&members), Some((1, vec![0, 1, 2, 3])), "there are no settings");
    members.handle_list(settings("version=1 backups=2"));
    assert_eq!(applied(&members), Some((2, vec![0, 1, 2, 3])));
    members.handle_list(settings("version=2 edge_nodes=0,1,2,3,4"));
    assert_eq!(applied(&members), Some((1, vec![0, 1, 2, 3, 4])));
    members.handle_list(settings("version=3 backups=9"));
    assert_eq!(applied(&members), Some((1, vec![0, 1, 2, 3, 4])), "as before");
    assert!(members.status().refused.expect("it is reported").contains("from 1 to 8"));
    let without = config::parse("mainstay.toml", CONFIG).expect("it is right").config;
    assert_eq!(members.applied_to(&without).cluster.expect("there is one").replication.backups, None);
}
