//! What a node publishes of itself.

use core::time::Duration;

use flow::Instant;

use super::list::Refused;
use super::record::{Member, MemberState, VERSION_END, version_above};

/// A node's own record. Its versions are those of a wall clock, which may have been ahead once: whatever else is recorded under the node's
/// number, its record gets a higher version.
#[derive(Clone, Debug)]
pub struct OwnRecord {
    member: Member,
    /// See [`Limits::forget_after`](super::Limits::forget_after).
    forget_after: Duration,
    /// When another record had the number last, at another address, and the number was taken back.
    taken_back_at: Option<Instant>,
    has_twin: bool,
}

impl OwnRecord {
    /// That of a node that starts, at this time since 1970.
    #[must_use]
    pub fn new(member: Member, unix_time: Duration, forget_after: Duration) -> Self {
        let member = Member { version: version_at(unix_time), ..member };
        Self { member, forget_after, taken_back_at: None, has_twin: false }
    }

    /// The record.
    #[must_use]
    pub const fn member(&self) -> &Member {
        &self.member
    }

    /// Another node has this node's number, and goes on to use it: its record counts.
    #[must_use]
    pub const fn has_twin(&self) -> bool {
        self.has_twin
    }

    /// The node is to be something else to the others. True if it was not so before.
    pub fn set_state(&mut self, unix_time: Duration, state: MemberState) -> bool {
        let has_changed = self.member.state != state;
        if has_changed {
            self.member.state = state;
            self.member.version = version_at(unix_time).max(version_above(self.member.version));
        }
        has_changed
    }

    /// The record has at least this version from now on.
    pub fn raise_version(&mut self, version: u64) {
        self.member.version = self.member.version.max(version.min(VERSION_END - 1));
    }

    /// A record with the node's number. A former run, whose clock was ahead, or an operator has written a newer one than the node's: it is
    /// superseded, whatever its address. A node that has the same number by mistake does so, too. So at another address this is done once, until
    /// no such record has been seen for the time in which members are forgotten.
    ///
    /// # Errors
    /// Another node has the number.
    pub fn handle_record(&mut self, now: Instant, recorded: &Member) -> Result<(), Refused> {
        self.has_twin = false;
        if recorded.precedence(&self.member).is_le() {
            return Ok(());
        }
        let (id, address) = (self.member.id, recorded.replication);
        if address != self.member.replication {
            let former = self.taken_back_at.replace(now);
            self.has_twin = former.is_some_and(|at| now < at + self.forget_after);
        }
        if self.has_twin {
            return Err(Refused::OwnNumber { id, address });
        }
        self.member.version = version_above(recorded.version);
        Ok(())
    }
}

/// The version of a record that is made at this time since 1970.
fn version_at(unix_time: Duration) -> u64 {
    u64::try_from(unix_time.as_millis()).map_or(VERSION_END - 1, |time_ms| time_ms.min(VERSION_END - 1))
}

#[cfg(test)]
mod tests {
    use flow::NodeId;

    use super::*;

    const FORGET_AFTER: Duration = Duration::from_secs(600);
    const TODAY: Duration = Duration::from_secs(1_800_000_000);

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(1000 * seconds)
    }

    fn own() -> OwnRecord {
        let text = "replication=192.0.2.1:3780 detection=192.0.2.1:3784 version=0";
        OwnRecord::new(Member::parse(NodeId(1), text).unwrap(), TODAY, FORGET_AFTER)
    }

    fn recorded(own: &OwnRecord, host: u8, version: u64) -> Member {
        let replication = core::net::SocketAddr::from(([192, 0, 2, host], 3780));
        Member { replication, version, state: MemberState::Left, ..own.member().clone() }
    }

    #[test]
    fn a_newer_record_of_a_former_run_is_superseded_whatever_its_address() {
        for host in [1, 99] {
            let mut own = own();
            let ahead = own.member().version + 86_400_000;
            let former = recorded(&own, host, ahead);
            assert_eq!(own.handle_record(at(0), &former), Ok(()));
            assert_eq!((own.member().version, own.has_twin()), (ahead + 1, false), "host {host}");
            assert_eq!(own.handle_record(at(1), &former), Ok(()), "an older one by now");
            assert_eq!(own.member().version, ahead + 1);
        }
    }

    #[test]
    fn a_node_with_the_same_number_is_answered_once() {
        let (mut one, mut other) = (own(), own());
        other.member.replication = "192.0.2.99:3780".parse().unwrap();
        let mut refused = 0;
        for second in 0..10_000 {
            refused += u64::from(one.handle_record(at(second), &other.member.clone()).is_err());
            refused += u64::from(other.handle_record(at(second), &one.member.clone()).is_err());
        }
        assert_ne!(one.has_twin(), other.has_twin(), "one of them has the number");
        assert!(one.member.version.max(other.member.version) <= own().member.version + 3, "{one:?} {other:?}");
        assert!(refused > 9_990, "it is reported all the time: {refused}");
        // The twin gets another number: some time later a former record is no twin's.
        let (late, version) = (at(20_000), VERSION_END / 2);
        for own in [&mut one, &mut other] {
            let former = recorded(own, 7, version);
            assert_eq!(own.handle_record(late, &former), Ok(()));
            assert_eq!(own.member().version, version + 1);
        }
    }

    #[test]
    fn each_change_has_a_higher_version_until_there_is_none() {
        let mut own = own();
        let before = own.member().version;
        assert!(!own.set_state(TODAY, MemberState::Active));
        assert!(own.set_state(TODAY, MemberState::Draining));
        assert_eq!(own.member().version, before + 1);
        // The clock was set back.
        assert!(own.set_state(Duration::from_secs(1), MemberState::Left));
        assert_eq!(own.member().version, before + 2);
        own.raise_version(u64::MAX);
        assert!(own.set_state(Duration::MAX, MemberState::Active));
        assert_eq!(own.member().version, VERSION_END - 1);
    }
}
