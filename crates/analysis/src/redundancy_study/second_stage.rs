//! A compression library on what redundancy elimination leaves.

use std::time::Duration;

use flow::Instant;
use redundancy::second_stage::{BUNDLE_BYTES_MAX, Bundler};

use super::compressors::{Library, Squeezer};
use super::packet::SiteDirection;

/// A library behind bundlers, one for each way.
pub(super) struct SecondStage {
    squeezer: Squeezer,
    bundlers: [Bundler; 2],
    /// Bytes gathered and not sent, by way.
    gathered_bytes: [usize; 2],
    out: Vec<u8>,
}

impl SecondStage {
    pub(super) fn new(library: Library, gather: Duration) -> Self {
        let bundlers = SiteDirection::ALL.map(|_| Bundler::new(gather, BUNDLE_BYTES_MAX));
        Self { squeezer: Squeezer::new(library), bundlers, gathered_bytes: [0; 2], out: Vec::new() }
    }

    /// Takes a packet. Returns what was saved of those that left.
    pub(super) fn handle(&mut self, now: Instant, way: SiteDirection, packet: &[u8]) -> i64 {
        if packet.is_empty() {
            return 0;
        }
        let is_due = self.bundlers[way as usize].poll_timeout().is_some_and(|due| due <= now);
        let is_full = !self.bundlers[way as usize].has_room(packet.len());
        let mut saved = if is_due || is_full { self.flush(way) } else { 0 };
        // What is too long for a bundle goes without.
        if self.bundlers[way as usize].handle_packet(now, packet).is_ok() {
            self.gathered_bytes[way as usize] += packet.len();
        }
        if self.bundlers[way as usize].poll_timeout().is_some_and(|due| due <= now) {
            saved += self.flush(way);
        }
        saved
    }

    /// What did not become smaller goes as it is, without a bundle.
    fn flush(&mut self, way: SiteDirection) -> i64 {
        let before = std::mem::take(&mut self.gathered_bytes[way as usize]);
        let is_sent = self.bundlers[way as usize].flush(&mut self.squeezer, &mut self.out);
        if is_sent { before.saturating_sub(self.out.len()) as i64 } else { 0 }
    }

    pub(super) fn finish(&mut self) -> i64 {
        SiteDirection::ALL.into_iter().map(|way| self.flush(way)).sum()
    }
}

#[cfg(test)]
mod tests {
    use redundancy::second_stage::GATHER_DEFAULT;

    use super::*;

    #[test]
    fn packets_of_ten_milliseconds_are_compressed_together_and_none_is_left_behind() {
        let text = b"which is the same again and again".repeat(10);
        let mut stage = SecondStage::new(Library::Gzip, GATHER_DEFAULT);
        let mut alone = SecondStage::new(Library::Gzip, Duration::ZERO);
        let mut saved = [0; 2];
        for ms in 0..30 {
            saved[0] += stage.handle(Instant::from_millis(ms), SiteDirection::Inbound, &text);
            saved[1] += alone.handle(Instant::from_millis(ms), SiteDirection::Inbound, &text);
        }
        assert_eq!(alone.finish(), 0, "nothing waits where nothing is gathered");
        saved[0] += stage.finish();
        let all = 30 * text.len() as i64;
        assert!(saved[0] > saved[1] && saved[1] > all / 2 && saved[0] < all, "{saved:?} of {all}");
    }
}
