//! What a link does to what is sent over it.

use std::time::Duration;

use flow::Instant;

use crate::random::Random;

/// How a link treats what it carries. Chances are per thousand frames or datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkConfig {
    /// Time that everything takes.
    pub delay: Duration,
    /// Up to so much more, evenly spread. What is sent in order still arrives in order.
    pub jitter: Duration,
    /// Lost.
    pub loss_per_mille: u32,
    /// Delivered twice.
    pub duplicate_per_mille: u32,
    /// Held up so that what was sent later overtakes it.
    pub reorder_per_mille: u32,
    /// One byte changed.
    pub corrupt_per_mille: u32,
}

/// One direction between two stations.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: LinkConfig,
    pub(crate) is_cut: bool,
    random: Random,
    last_arrival: Instant,
}

/// A copy that will arrive.
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) is_corrupt: bool,
}

impl Link {
    pub(crate) const fn new(config: LinkConfig, random: Random) -> Self {
        Self { config, is_cut: false, random, last_arrival: Instant::ZERO }
    }

    /// The arrivals of what is sent now: none, one or two.
    pub(crate) fn carry(&mut self, now: Instant) -> impl Iterator<Item = Arrival> + use<> {
        let config = self.config;
        let lost = self.is_cut || self.random.chance(config.loss_per_mille);
        let twice = self.random.chance(config.duplicate_per_mille);
        let copies = if lost { 0 } else { 1 + usize::from(twice) };
        let arrivals: Vec<_> = (0..copies).map(|_| self.arrival(now)).collect();
        arrivals.into_iter()
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
        (0..1000).map(|ms| link.carry(Instant::from_millis(ms)).map(|arrival| arrival.at).collect()).collect()
    }

    #[test]
    fn a_sound_link_delivers_everything_once_and_in_order() {
        let all = arrivals(LinkConfig { delay: DELAY, jitter: 5 * DELAY, ..LinkConfig::default() });
        assert!(all.iter().all(|copies| copies.len() == 1));
        assert!(all.is_sorted());
    }

    #[test]
    fn faults_come_about_as_often_as_asked() {
        let lossy = arrivals(LinkConfig { delay: DELAY, loss_per_mille: 300, ..LinkConfig::default() });
        let lost = lossy.iter().filter(|copies| copies.is_empty()).count();
        assert!((250..350).contains(&lost), "{lost}");
        let shuffled = arrivals(LinkConfig { delay: DELAY, reorder_per_mille: 100, ..LinkConfig::default() });
        assert!(!shuffled.is_sorted());
        let doubled = arrivals(LinkConfig { delay: DELAY, duplicate_per_mille: 1000, ..LinkConfig::default() });
        assert!(doubled.iter().all(|copies| copies.len() == 2));
    }
}
