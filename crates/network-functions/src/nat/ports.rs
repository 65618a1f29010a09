//! The order of candidate ports.

use crate::port_range::PortRange;

/// The maximum number of candidate ports of a connection; then it is refused. It bounds the work of a packet when ports
/// are scarce: with a share `f` of them in use, a connection is refused with probability f^128 at most (0.1 % at 95 %).
pub const PORT_PROBES_MAX: usize = 128;

/// Primes above every number of ports: steps of such a length visit every port once before repeating.
const STEPS: [u32; 8] = [65537, 69001, 73939, 78541, 84017, 90001, 97001, 104_003];

/// The ports of `range` in the order of `hash`, each once.
pub(crate) fn candidates(range: PortRange, hash: u64) -> impl Iterator<Item = u16> {
    let count = u64::from(range.count());
    let start = (hash & 0xffff_ffff) % count;
    let step = u64::from(STEPS[usize::try_from(hash >> 61).unwrap_or(0)]) % count;
    (0..count).filter_map(move |probe| u16::try_from(u64::from(range.first()) + (start + probe * step) % count).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn the_steps_are_primes_above_every_number_of_ports() {
        for step in STEPS {
            assert!(step > 65536, "{step}");
            assert!((2..).take_while(|divisor| divisor * divisor <= step).all(|divisor| step % divisor != 0), "{step}");
        }
    }

    proptest! {
        #[test]
        fn every_candidate_is_in_the_range_and_none_comes_twice(a in 0u16.., b in 0u16.., hash: u64) {
            let range = PortRange::new(a.min(b), a.max(b)).unwrap();
            let mut ports: Vec<u16> = candidates(range, hash).take(PORT_PROBES_MAX).collect();
            prop_assert!(ports.iter().all(|&port| range.contains(port)));
            let probes = ports.len();
            prop_assert_eq!(probes, PORT_PROBES_MAX.min(range.count() as usize));
            ports.sort_unstable();
            ports.dedup();
            prop_assert_eq!(ports.len(), probes);
        }
    }
}
