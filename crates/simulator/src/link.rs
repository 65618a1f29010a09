//! The behaviour of a link.

use std::time::Duration;

use flow::Instant;

use crate::random::Random;

/// Ethernet, IPv4 and UDP headers around a datagram.
const DATAGRAM_OVERHEAD_BYTES: u64 = 42;

/// The properties of a link. Chances are per thousand frames or datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkConfig {
    /// The delay of every transmission.
    pub delay: Duration,
    /// The maximum additional delay, uniformly distributed. It keeps the order.
    pub jitter: Duration,
    /// Lost.
    pub loss_per_mille: u32,
    /// Delivered twice.
    pub duplicate_per_mille: u32,
    /// Delayed so that later ones overtake it.
    pub reorder_per_mille: u32,
    /// One byte changed.
    pub corrupt_per_mille: u32,
}

/// One direction between two stations.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: LinkConfig,
    pub(crate) is_down: bool,
    /// Its rate and queue, if limited.
    pub(crate) rate: Option<Rate>,
    busy_until: Instant,
    random: Random,
    last_arrival: Instant,
}

/// The capacity of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    pub(crate) bytes_per_second: u64,
    /// The capacity of the queue; more is lost.
    pub(crate) queue_bytes: u64,
}

/// A transmission that will arrive.
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) is_corrupt: bool,
}

impl Link {
    pub(crate) const fn new(config: LinkConfig, random: Random) -> Self {
        Self { config, is_down: false, rate: None, busy_until: Instant::ZERO, random, last_arrival: Instant::ZERO }
    }

    /// When its queue will be empty: removing a limit does not speed up queued data.
    pub(crate) const fn drained_at(&self) -> Instant {
        self.busy_until
    }

    /// The arrivals of a transmission: none, one or two.
    pub(crate) fn carry(&mut self, now: Instant, length_bytes: usize) -> impl Iterator<Item = Arrival> + use<> {
        let config = self.config;
        let sent_at = if self.is_down { None } else { self.pass_queue(now, length_bytes as u64) };
        let lost = sent_at.is_none() || self.random.chance(config.loss_per_mille);
        let twice = self.random.chance(config.duplicate_per_mille);
        let copies = if lost { 0 } else { 1 + usize::from(twice) };
        let arrivals: Vec<_> = (0..copies).map(|_| self.arrival(sent_at.unwrap_or(now))).collect();
        arrivals.into_iter()
    }

    /// When the last byte has left; `None` if the queue has no room.
    fn pass_queue(&mut self, now: Instant, length_bytes: u64) -> Option<Instant> {
        let Some(rate) = self.rate else { return Some(now) };
        let takes = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / rate.bytes_per_second.max(1));
        let length_bytes = length_bytes + DATAGRAM_OVERHEAD_BYTES;
        if self.busy_until.saturating_since(now) > takes(rate.queue_bytes) {
            return None;
        }
        self.busy_until = self.busy_until.max(now) + takes(length_bytes);
        Some(self.busy_until)
    }

    fn arrival(&mut self, now: Instant) -> Arrival {
        let jitter = self.random.between(0, config_nanos(self.config.jitter));
        let mut at = now + self.config.delay + Duration::from_nanos(jitter);
        if self.random.chance(self.config.reorder_per_mille) {
            at = at + self.config.delay + Duration::from_nanos(self.random.between(0, 2_000_000));
        } else {
            at = at.max(self.last_arrival);
            self.last_arrival = at;
        }
        Arrival { at, is_corrupt: self.random.chance(self.config.corrupt_per_mille) }
    }

    /// Changes one byte behind the first `from` bytes.
    pub(crate) fn corrupt(&mut self, bytes: &mut [u8], from: usize) {
        if let Some(last) = bytes.len().checked_sub(1).filter(|last| *last >= from) {
            let at = self.random.between(from as u64, last as u64) as usize;
            bytes[at] ^= self.random.between(1, 255) as u8;
        }
    }
}

fn config_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(1);

    fn arrivals(config: LinkConfig) -> Vec<Vec<Instant>> {
        let mut link = Link::new(config, Random::new(3));
        (0..1000).map(|ms| link.carry(Instant::from_millis(ms), 100).map(|arrival| arrival.at).collect()).collect()
    }

    #[test]
    fn a_reliable_link_delivers_everything_once_and_in_order() {
        let all = arrivals(LinkConfig { delay: DELAY, jitter: 5 * DELAY, ..LinkConfig::default() });
        assert!(all.iter().all(|copies| copies.len() == 1));
        assert!(all.is_sorted());
    }

    #[test]
    fn a_slow_link_delays_queued_datagrams_and_drops_those_beyond_its_queue() {
        let mut link = Link::new(LinkConfig::default(), Random::new(3));
        link.rate = Some(Rate { bytes_per_second: 100_000, queue_bytes: 1_000 });
        let arrivals: Vec<_> = (0..20).flat_map(|_| link.carry(Instant::ZERO, 58)).map(|arrival| arrival.at).collect();
        assert_eq!(arrivals[0], Instant::from_millis(1), "100 bytes with their headers");
        assert_eq!(arrivals.last(), Some(&Instant::from_millis(11)), "the one behind 1000 queued bytes");
        assert_eq!(
            link.carry(Instant::from_millis(12), 58).map(|arrival| arrival.at).next(),
            Some(Instant::from_millis(13))
        );
    }

    #[test]
    fn faults_have_the_configured_frequency() {
        let lossy = arrivals(LinkConfig { delay: DELAY, loss_per_mille: 300, ..LinkConfig::default() });
        let lost = lossy.iter().filter(|copies| copies.is_empty()).count();
        assert!((250..350).contains(&lost), "{lost}");
        let shuffled = arrivals(LinkConfig { delay: DELAY, reorder_per_mille: 100, ..LinkConfig::default() });
        assert!(!shuffled.is_sorted());
        let doubled = arrivals(LinkConfig { delay: DELAY, duplicate_per_mille: 1000, ..LinkConfig::default() });
        assert!(doubled.iter().all(|copies| copies.len() == 2));
    }
}
