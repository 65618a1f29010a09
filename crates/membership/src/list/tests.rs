//! Records and settings in any order, and the limits of a list.

use std::format;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::record::VERSION_END;

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
    let refused = membership.handle_record(at(1), member(1, 1)).unwrap_err();
    assert_eq!(refused, Refused::Older { id: NodeId(1), version: 1, known: 2 });
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
    assert_eq!(membership.handle_settings(settings(2, 1)), Ok(()));
    let older = Refused::OlderSettings { version: 1, known: 2 };
    assert_eq!(membership.handle_settings(settings(1, 9)), Err(older));
    for backups in [0, 9] {
        let differ = Err(Refused::SettingsDiffer { version: 2 });
        assert_eq!(membership.handle_settings(settings(2, backups)), differ, "whichever is greater");
    }
    assert_eq!(membership.handle_settings(settings(2, 1)), Ok(()), "the same ones");
    assert_eq!(membership.handle_settings(Settings::default()), Ok(()), "none at all");
    assert_eq!(changes(&mut membership, at(0), true), [Change::Settings(settings(2, 1))]);
    assert_eq!(changes(&mut membership, at(0), true), []);
}

#[test]
fn settings_with_a_poisoned_version_can_be_taken_back() {
    let settings = |version| Settings { version, ..Settings::default() };
    let poisoned = settings(VERSION_END - 1);
    let mut membership = membership();
    membership.restore_settings(poisoned);
    assert_eq!(membership.handle_listed_settings(at(0), Some(settings(4))), Ok(()), "the source counts, not the file");
    assert_eq!(membership.settings(), settings(4));

    // Deleted and written again.
    assert_eq!(membership.handle_listed_settings(at(1), Some(poisoned)), Ok(()));
    let older = Err(Refused::OlderSettings { version: 5, known: VERSION_END - 1 });
    assert_eq!(membership.handle_listed_settings(at(2), Some(settings(5))), older);
    assert_eq!(membership.handle_listed_settings(at(3), None), Ok(()));
    assert_eq!(membership.settings(), poisoned, "what is deleted stays in force");
    assert_eq!(membership.handle_listed_settings(at(4), Some(settings(5))), Ok(()));
    assert_eq!(membership.settings(), settings(5));

    // Written over, for as long as members are kept.
    assert_eq!(membership.handle_listed_settings(at(5), Some(poisoned)), Ok(()));
    for second in [10, 69] {
        let older = Err(Refused::OlderSettings { version: 6, known: VERSION_END - 1 });
        assert_eq!(membership.handle_listed_settings(at(second), Some(settings(6))), older);
    }
    assert_eq!(membership.handle_listed_settings(at(70), Some(settings(6))), Ok(()));
    assert_eq!(membership.settings(), settings(6));
}

/// A record that a node has published while its clock was a day ahead, and that of its next run.
fn ahead_and_right(state: MemberState) -> (Member, Member) {
    let ahead = Member { state, replication: "192.0.2.99:1".parse().unwrap(), ..member(1, 86_400_000) };
    (ahead, member(1, 5))
}

#[test]
fn a_member_whose_clock_was_ahead_returns_as_a_peer_when_its_lease_has_ended() {
    for state in MemberState::ALL {
        let (ahead, right) = ahead_and_right(state);
        let mut membership = membership();
        membership.handle_all_records(at(0), [ahead.clone()], |refused| panic!("{refused}"));
        let _ = changes(&mut membership, at(0), false);
        membership.handle_all_records(at(1), [], |refused| panic!("{refused}"));
        membership.handle_all_records(at(2), [right.clone()], |refused| panic!("{refused}"));
        let _ = changes(&mut membership, at(2), false);
        let peers: Vec<_> = membership.peers().map(|(member, _)| member.clone()).collect();
        assert_eq!(peers, [right], "{state:?}");
    }
}

#[test]
fn a_member_whose_clock_was_ahead_returns_as_a_peer_when_the_newer_record_has_not_come_for_long() {
    for (state, is_listed) in MemberState::ALL.into_iter().flat_map(|state| [(state, true), (state, false)]) {
        let (ahead, right) = ahead_and_right(state);
        let older = Refused::Older { id: NodeId(1), version: 5, known: 86_400_000 };
        let mut membership = membership();
        membership.handle_record(at(0), ahead.clone()).unwrap();
        let _ = changes(&mut membership, at(0), false);
        let mut refused = Vec::new();
        if is_listed {
            membership.handle_all_records(at(10), [right.clone()], |it| refused.push(it));
        } else {
            refused.extend(membership.handle_record(at(10), right.clone()).err());
        }
        assert_eq!(refused, [older], "{state:?}");
        assert_eq!(changes(&mut membership, at(69), false), []);
        assert_eq!(membership.poll_timeout(), Some(at(70)), "{state:?}");
        let expected = if state == MemberState::Left { Change::Joined(NodeId(1)) } else { Change::Moved(NodeId(1)) };
        assert_eq!(changes(&mut membership, at(70), false), [expected], "{state:?}");
        assert_eq!(membership.peers().next().map(|(member, _)| member), Some(&right));
        membership.handle_record(at(71), ahead).unwrap();
        assert!(membership.peers().next().is_none_or(|(member, _)| *member != right), "a newer one counts, as ever");
    }
}

#[test]
fn a_list_that_has_only_an_older_record_counts_in_the_end_although_the_member_is_up() {
    let mut membership = membership();
    membership.handle_all_records(at(0), [member(1, 86_400_000)], |refused| panic!("{refused}"));
    let _ = changes(&mut membership, at(0), true);
    // Its lease ended, and it started, between two lists.
    let draining = Member { state: MemberState::Draining, ..member(1, 5) };
    for second in 1..=60 {
        membership.handle_all_records(at(second), [draining.clone()], |_| {});
        assert_eq!(changes(&mut membership, at(second), true), []);
    }
    assert_eq!(changes(&mut membership, at(61), true), [Change::Drained(NodeId(1), true)]);
    membership.handle_all_records(at(62), [member(1, 6)], |refused| panic!("{refused}"));
}

#[test]
fn a_replayed_old_record_removes_no_member_that_is_up() {
    let mut membership = membership();
    membership.handle_record(at(0), member(1, 9)).unwrap();
    let _ = changes(&mut membership, at(0), true);
    let old = Member { state: MemberState::Left, ..member(1, 3) };
    for second in 1..1000 {
        assert!(membership.handle_record(at(second), old.clone()).is_err());
        assert_eq!(changes(&mut membership, at(second), true), []);
    }
}

#[test]
fn a_member_that_left_and_is_forgotten_comes_back_with_any_version() {
    let (left, right) = ahead_and_right(MemberState::Left);
    let mut membership = membership();
    membership.handle_record(at(0), left).unwrap();
    membership.handle_absence(at(1), NodeId(1));
    // Failure detection has not been asked to follow it since: its last report stands.
    assert_eq!(changes(&mut membership, at(1), true), []);
    assert_eq!(changes(&mut membership, at(61), true), []);
    membership.handle_record(at(62), right).unwrap();
    assert_eq!(changes(&mut membership, at(62), false), [Change::Joined(NodeId(1))]);
}

#[test]
fn a_node_under_another_number_is_a_peer_although_its_former_clock_was_ahead() {
    let (ahead, right) = (member(1, 86_400_000), Member { id: NodeId(2), ..member(1, 5) });
    let mut membership = membership();
    membership.handle_all_records(at(0), [ahead], |refused| panic!("{refused}"));
    let _ = changes(&mut membership, at(0), true);
    membership.handle_all_records(at(1), [right], |refused| panic!("{refused}"));
    let replaced = Change::Left(NodeId(1), Departure::Replaced(NodeId(2)));
    assert_eq!(changes(&mut membership, at(1), true), [replaced, Change::Joined(NodeId(2))]);
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
                let _ = membership.handle_record(at(0), record.clone());
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
            let _ = membership.handle_record(at(0), record);
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
