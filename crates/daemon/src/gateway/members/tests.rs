//! What becomes of the lists that a source of members delivers.

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
    let (id, own) = member(7, u64::MAX);
    let twin = own.map(|twin| Member { id: NodeId(0), ..twin });
    assert_eq!(id, NodeId(7));
    members.handle_list(list(vec![(NodeId(0), twin)]));
    assert!(members.status().refused.expect("it is reported").contains("node.id"));
}

#[test]
fn the_own_record_gets_a_higher_version_with_each_change() {
    let members = loaded();
    let before = members.own().version;
    members.set_own_state(MemberState::Draining);
    let draining = members.own();
    assert!(draining.version > before && draining.state == MemberState::Draining);
    members.supersede(draining.version + 1000);
    assert_eq!(members.own().version, draining.version + 1001);
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
