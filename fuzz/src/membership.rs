//! Records of members and settings as another program wrote them, and datagrams of gossip.

use std::net::SocketAddr;
use std::time::Duration;

use flow::{Instant, NodeId};
use membership::gossip::{Gossip, GossipEvent};
use membership::{Limits, MEMBERS_MAX, Member, Membership, Settings};

const OWN: &str = "name=own replication=192.0.2.1:3781 detection=192.0.2.1:3784 version=1";

/// Lines, each led by a byte with the member's number: records, settings, and datagrams for a node that gossips.
pub fn run(data: &[u8]) {
    let mut membership = Membership::new(NodeId(0), Limits::default());
    let address = SocketAddr::from(([192, 0, 2, 1], 3785));
    let own = Member::parse(NodeId(0), OWN).expect("it is right");
    let mut now = Instant::ZERO;
    let mut gossip = Gossip::new(address, own, Settings::default(), vec![address], 1, now);
    for line in data.split(|byte| *byte == b'\n') {
        now = now + Duration::from_millis(100);
        let Some((number, rest)) = line.split_first() else { continue };
        if let Ok(member) = Member::parse_bytes(NodeId(*number), rest) {
            let written = member.to_string();
            assert_eq!(Member::parse(member.id, &written).as_ref(), Ok(&member), "{written}");
            let _ = membership.handle_record(now, member);
        }
        if let Ok(settings) = Settings::parse_bytes(rest) {
            assert_eq!(Settings::parse(&settings.to_string()), Ok(settings));
            let _ = membership.handle_settings(settings);
            let _ = membership.handle_listed_settings(now, Some(settings));
        }
        let _ = gossip.handle_datagram(now, rest);
        gossip.handle_timeout(now);
        while let Some(event) = gossip.poll_event() {
            if let GossipEvent::Recorded(member) = event {
                let _ = membership.handle_record(now, member);
            }
        }
        while gossip.poll_transmit().is_some() {}
        while membership.poll_change(now, |id| id.0 % 2 == 0).is_some() {}
        assert!(membership.peers().count() < MEMBERS_MAX);
    }
}
