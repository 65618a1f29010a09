//! A network function of one's own on two nodes: each connection may carry a number of bytes, and a killed node changes nothing about it.
//!
//! `cargo run --example byte_quota`; docs/writing-a-function.md explains it.

use std::error::Error;

use network_functions::prelude::*;
use simulator::pair::Pair;

flow_state! {
    /// What a connection has used of its quota.
    struct Used: state_attribute::PRIVATE_FIRST {
        1 => bytes: u64,
    }
}

/// Drops the packets of a connection that has carried its bytes.
struct ByteQuota {
    bytes_max: u64,
}

impl NetworkFunction for ByteQuota {
    type State = Used;

    fn name(&self) -> &'static str {
        "byte_quota"
    }

    fn on_init(&self, _: &mut Context<'_>, _: &Packet<'_, '_>) -> Result<Used, DropReason> {
        Ok(Used::default())
    }

    fn on_packet(&self, used: &mut Used, _: &mut Context<'_>, packet: &mut Packet<'_, '_>, _: Direction) -> Verdict {
        let bytes = u64::from(packet.headers.l3_bytes);
        if used.bytes + bytes > self.bytes_max {
            return Verdict::Drop(DropReason::QuotaExceeded);
        }
        used.bytes += bytes;
        Verdict::Forward
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let chain = || ChainBuilder::new().push(ByteQuota { bytes_max: 10_000 }).build();
    let mut pair = Pair::start([chain()?, chain()?])?;

    // A datagram of 972 bytes is a packet of 1000: ten fit the quota.
    let payload = [7; 972];
    let mut arrived = 0;
    for number in 0..20 {
        if number == 6 {
            let killed = pair.active();
            pair.kill_active()?;
            println!("node {killed:?} is killed, node {:?} is active", pair.active());
        }
        let direction = if number % 2 == 0 { Direction::Original } else { Direction::Reply };
        let has_arrived = pair.send(4000, direction, &payload)?;
        println!("packet {number}: {}", if has_arrived { "arrived" } else { "dropped" });
        arrived += usize::from(has_arrived);
    }
    // Another connection has a quota of its own.
    let other = pair.send(4001, Direction::Original, &payload)?;
    println!("{arrived} of 20 packets arrived, 10 fit the quota");
    if (arrived, other) == (10, true) { Ok(()) } else { Err("the quota was not kept".into()) }
}
