//! The sources that exceed a limit most, in a small table without a lock.
//!
//! Each place keeps the source that has the majority of what hashes to it (Boyer and Moore's vote): another source takes one from its
//! count, and takes the place at zero. A source that exceeds the limit more than all others of its place together stays.

use core::net::{IpAddr, Ipv6Addr};
use core::sync::atomic::{AtomicU64, Ordering};

/// Sources that are known at a time.
pub const OFFENDERS_MAX: usize = 8;

/// A source beyond a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offender {
    /// Its address.
    pub source: IpAddr,
    /// How often it was beyond the limit, at least.
    pub times: u64,
}

/// A place; the address lies in two words.
#[derive(Debug, Default)]
struct Place {
    high: AtomicU64,
    low: AtomicU64,
    votes: AtomicU64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Offenders([Place; OFFENDERS_MAX]);

impl Offenders {
    /// A source was beyond the limit. Workers that do this for one place at the same time may lose one of the two.
    pub(super) fn note(&self, source: IpAddr) {
        let address = match source {
            IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
            IpAddr::V6(address) => u128::from(address),
        };
        let (high, low) = ((address >> 64) as u64, address as u64);
        let mixed = (high ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &self.0[(mixed >> 61) as usize % OFFENDERS_MAX];
        let votes = place.votes.load(Ordering::Relaxed);
        let is_its = place.high.load(Ordering::Relaxed) == high && place.low.load(Ordering::Relaxed) == low;
        if votes > 0 {
            place.votes.store(if is_its { votes.saturating_add(1) } else { votes - 1 }, Ordering::Relaxed);
            return;
        }
        place.high.store(high, Ordering::Relaxed);
        place.low.store(low, Ordering::Relaxed);
        place.votes.store(1, Ordering::Relaxed);
    }

    /// The sources, those that exceeded the limit most first.
    pub(super) fn view(&self) -> [Option<Offender>; OFFENDERS_MAX] {
        let mut found = [None; OFFENDERS_MAX];
        for (place, found) in self.0.iter().zip(&mut found) {
            let times = place.votes.load(Ordering::Relaxed);
            let [high, low] = [&place.high, &place.low].map(|word| u128::from(word.load(Ordering::Relaxed)));
            let source = IpAddr::V6(Ipv6Addr::from(high << 64 | low)).to_canonical();
            *found = (times > 0).then_some(Offender { source, times });
        }
        found.sort_by_key(|offender| core::cmp::Reverse(offender.map_or(0, |offender| offender.times)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_that_exceeds_a_limit_most_is_known_among_many() {
        let offenders = Offenders::default();
        for number in 0..1000_u32 {
            offenders.note(IpAddr::from([10, 0, (number >> 8) as u8, number as u8]));
            offenders.note(IpAddr::from([192, 0, 2, 66]));
            offenders.note("2001:db8::66".parse().unwrap());
        }
        let view = offenders.view();
        let known = view.iter().flatten().map(|offender| offender.source).take(2);
        let expected: [IpAddr; 2] = [[192, 0, 2, 66].into(), "2001:db8::66".parse().unwrap()];
        for source in known {
            assert!(expected.contains(&source), "{view:?}");
        }
        assert!(view[1].is_some_and(|second| second.times > 500), "{view:?}");
    }
}
