//! Records and settings in any order, and the limits of a list.

use std::format;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const FORGET_AFTER: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn member(id: u8, version: u64) -> Member {
    let text = format!("replication=192.0.2.{id}:3780 detection=192.0.2.{id}:3784 version={version}");
    Member::parse(NodeId(id), &text).unwrap()
}

fn membership() -> Membership {
    Membership::new(NodeId(0), Limits { nodes: 4, forget_after: FORGET_AFTER })
}

fn changes(membership: &mut Membership, now: Instant, is_up: bool) -> Vec<Change> {
    core::iter::from_fn(|| membership.poll_change(now, |_| is_up)).collect()
}

#[test]
fn members_join_change_and_leave() {
    let mut membership = membership();
    membership.handle_record(at(0), member(1, 1)).unwrap();
    membership.handle_record(at(0), member(2, 1)).unwrap();
    assert_eq!(changes(&mut membership, at(0), true), [Change::Joined(NodeId(1)), Change::Joined(NodeId(2))]);
    assert_eq!(changes(&mut membership, at(0), true), []);

    membership.handle_record(at(1), Member { state: MemberState::Draining, ..member(1, 2) }).unwrap();
    assert_eq!(changes(&mut membership, at(1), true), [Change::Drained(NodeId(1), true)]);
    membership.handle_record(at(1), member(1, 1)).unwrap();
    assert_eq!(changes(&mut membership, at(1), true), [], "an older record changes nothing");
    membership.handle_record(at(2), Member { replication: "192.0.2.9:1".parse().unwrap(), ..member(2, 2) }).unwrap();
    assert_eq!(changes(&mut membership, at(2), true), [Change::Moved(NodeId(2))]);

    membership.handle_record(at(3), Member { state: MemberState::Left, ..member(1, 3) }).unwrap();
    assert_eq!(changes(&mut membership, at(3), true), [Change::Left(NodeId(1), Departure::Announced)]);
    assert_eq!(membership.peers().count(), 1);
    membership.handle_record(at(4), member(1, 4)).unwrap();
    assert_eq!(changes(&mut membership, at(4), true), [Change::Joined(NodeId(1))], "it comes back");
}

#[test]
fn an_expired_lease_removes_no_peer_that_is_up() {
    let mut membership = membership();
    membership.handle_record(at(0), member(1, 1)).unwrap();
    let _ = changes(&mut membership, at(0), true);
    membership.handle_all_records(at(1), [], |refused| panic!("{refused}"));
    assert_eq!(changes(&mut membership, at(1_000_000), true), []);
    // It crashes: it is forgotten when it has been down for some time.
    let down_at = 1_000_001;
    assert_eq!(changes(&mut membership, at(down_at), false), []);
    assert_eq!(membership.poll_timeout(), Some(at(down_at + 60)));
    assert_eq!(changes(&mut membership, at(down_at + 59), false), []);
    // That it comes up in between counts.
    assert_eq!(changes(&mut membership, at(down_at + 59), true), []);
    assert_eq!(changes(&mut membership, at(down_at + 61), false), []);
    let forgotten = Change::Left(NodeId(1), Departure::Forgotten);
    assert_eq!(changes(&mut membership, at(down_at + 121), false), [forgotten]);
    assert_eq!(membership.poll_timeout(), None);
    // The same record is put again, as a keep-alive that was late does.
    membership.handle_record(at(down_at + 122), member(1, 1)).unwrap();
    assert_eq!(changes(&mut membership, at(down_at + 122), false), [Change::Joined(NodeId(1))]);
}

#[test]
fn a_recorded_member_that_is_down_stays_a_peer() {
    let mut membership = membership();
    membership.handle_record(at(0), member(1, 1)).unwrap();
    let _ = changes(&mut membership, at(0), false);
    assert_eq!(changes(&mut membership, at(1_000_000), false), []);
    assert_eq!(membership.poll_timeout(), None);
}

#[test]
fn the_last_known_members_count_until_the_source_is_reached() {
    let mut membership = membership();
    membership.restore(at(0), member(1, 5)).unwrap();
    membership.restore(at(0), member(2, 5)).unwrap();
    assert_eq!(changes(&mut membership, at(0), true).len(), 2);
    membership.handle_all_records(at(1), [member(1, 5)], |refused| panic!("{refused}"));
    assert_eq!(changes(&mut membership, at(1), true), []);
    let presences: Vec<_> = membership.peers().map(|(_, presence)| presence).collect();
    assert_eq!(presences, [Presence::Recorded, Presence::AbsentSince(at(0))]);
}

#[test]
fn a_member_at_the_address_of_another_replaces_it() {
    let mut membership = membership();
    membership.handle_record(at(0), member(1, 1)).unwrap();
    let _ = changes(&mut membership, at(0), true);
    membership.handle_record(at(1), Member { id: NodeId(2), ..member(1, 2) }).unwrap();
    let replaced = Change::Left(NodeId(1), Departure::Replaced(NodeId(2)));
    assert_eq!(changes(&mut membership, at(1), true), [replaced, Change::Joined(NodeId(2))]);
}

#[test]
fn numbers_beyond_the_cluster_are_refused_and_the_nodes_own_record_is_no_peer() {
    let mut membership = membership();
    let refused = membership.handle_record(at(0), member(4, 1)).unwrap_err();
    assert!(format!("{refused}").contains("raise node.nodes"), "{refused}");
    membership.handle_record(at(0), member(0, 1)).unwrap();
    assert_eq!(changes(&mut membership, at(0), true), []);
}

#[test]
fn the_newest_settings_count() {
    let mut membership = membership();
    let settings = |version, backups| Settings { version, backups: Some(backups), edge_nodes: None, configuration: 0 };
    membership.handle_settings(settings(2, 1));
    membership.handle_settings(settings(1, 9));
    assert_eq!(changes(&mut membership, at(0), true), [Change::Settings(settings(2, 1))]);
    assert_eq!(changes(&mut membership, at(0), true), []);
}

fn any_member() -> impl Strategy<Value = Member> {
    let states = prop::sample::select(MemberState::ALL.to_vec());
    (1..4_u8, 0..4_u64, 1..6_u8, states).prop_map(|(id, version, host, state)| {
        let replication = core::net::SocketAddr::from(([192, 0, 2, host], 3780));
        Member { replication, state, ..member(id, version) }
    })
}

proptest! {
    #[test]
    fn any_order_of_records_converges(
        (records, shuffled) in prop::collection::vec(any_member(), 0..40)
            .prop_flat_map(|records| (Just(records.clone()), Just(records).prop_shuffle())),
    ) {
        let apply = |records: &[Member], is_polled: bool| {
            let mut membership = membership();
            for record in records {
                membership.handle_record(at(0), record.clone()).unwrap();
                if is_polled {
                    let _ = changes(&mut membership, at(0), true);
                }
            }
            membership
        };
        let (one, other) = (apply(&records, false), apply(&shuffled, true));
        let peers = |membership: &Membership| membership.peers().map(|(member, _)| member.clone()).collect::<Vec<_>>();
        prop_assert_eq!(peers(&one), peers(&other));
    }

    #[test]
    fn changes_lead_from_one_list_of_peers_to_the_next(records in prop::collection::vec(any_member(), 0..40)) {
        let mut membership = membership();
        let mut peers = [false; 4];
        for record in records {
            membership.handle_record(at(0), record).unwrap();
            for change in changes(&mut membership, at(0), true) {
                match change {
                    Change::Joined(id) => prop_assert!(!std::mem::replace(&mut peers[usize::from(id.0)], true)),
                    Change::Left(id, _) => prop_assert!(std::mem::replace(&mut peers[usize::from(id.0)], false)),
                    _ => {}
                }
            }
            let now: Vec<_> = membership.peers().map(|(member, _)| member.id.0).collect();
            let followed: Vec<_> = (0..4_u8).filter(|id| peers[usize::from(*id)]).collect();
            prop_assert_eq!(now, followed);
        }
    }

    #[test]
    fn records_survive_writing_and_reading(member in any_member()) {
        prop_assert_eq!(Member::parse(member.id, &format!("{member}")), Ok(member));
    }
}
