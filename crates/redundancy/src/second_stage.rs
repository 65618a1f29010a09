//! The second stage: the remaining bytes are compressed, packet by packet or several together (RE, section 2.3: the
//! gains add).
//!
//! A [`Bundler`] gathers packets for a time, 10 ms in RE, or not at all, and passes them to a [`Compressor`], which a
//! library outside this crate implements.
//!
//! ```text
//! +--------+--------+--------+--------+
//! |version | stage  | bytes expanded  |  then, compressed if stage is not 0:
//! +--------+--------+--------+--------+
//! | bytes  …of a packet, u16 | packet …    as often as there are packets
//! ```

use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;

use crate::wire::take;

/// The version of this format.
pub const BUNDLE_VERSION: u8 = 1;
/// Bytes before a bundle.
pub const BUNDLE_HEADER_BYTES: usize = 4;
/// The maximum bytes of the packets in a bundle, each with its length. More packets begin another one.
pub const BUNDLE_BYTES_MAX: usize = u16::MAX as usize;
/// The gathering time of RE.
pub const GATHER_DEFAULT: Duration = Duration::from_millis(10);

/// A compression library.
pub trait Compressor {
    /// Its number in a bundle: 1 for zstd, 2 for LZ4.
    fn stage(&self) -> u8;

    /// Appends the compressed `input` to `out`. Returns false on failure; `out` is then unusable.
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool;

    /// Appends the decompressed data of `expanded_bytes` to `out`. Returns false for invalid input; `out` is then
    /// unusable, but has not grown by more.
    fn expand(&mut self, input: &[u8], expanded_bytes: usize, out: &mut Vec<u8>) -> bool;
}

impl<C: Compressor + ?Sized> Compressor for alloc::boxed::Box<C> {
    fn stage(&self) -> u8 {
        (**self).stage()
    }

    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        (**self).compress(input, out)
    }

    fn expand(&mut self, input: &[u8], expanded_bytes: usize, out: &mut Vec<u8>) -> bool {
        (**self).expand(input, expanded_bytes, out)
    }
}

/// Why a bundle cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BundleError {
    /// It is too short or too long.
    #[error("the bundle's length contradicts its header")]
    Length,
    /// The version is unknown.
    #[error("the bundle has version {0}, and only 1 is supported: the sender is of another release")]
    Version(u8),
    /// The compressor is unavailable on this side.
    #[error(
        "the bundle is compressed in way {0}, which is not configured here: both sides must have the same second stage"
    )]
    Stage(u8),
    /// The library's failure.
    #[error("the bundle cannot be expanded: it was damaged in transit, or the sender misbehaves")]
    Compressed,
}

/// A packet that does not fit any bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a packet of {0} bytes does not fit a bundle: send it unbundled")]
pub struct TooLong(pub usize);

/// Gathers and compresses.
#[derive(Clone, Debug)]
pub struct Bundler {
    gather: Duration,
    bundle_bytes_max: usize,
    gathered: Vec<u8>,
    due_at: Option<Instant>,
}

impl Bundler {
    /// Gathers for `gather`, zero for packet by packet, up to a maximum of bytes, lengths included.
    #[must_use]
    pub const fn new(gather: Duration, bundle_bytes_max: usize) -> Self {
        let bundle_bytes_max = if bundle_bytes_max < BUNDLE_BYTES_MAX { bundle_bytes_max } else { BUNDLE_BYTES_MAX };
        Self { gather, bundle_bytes_max, gathered: Vec::new(), due_at: None }
    }

    /// Whether a packet still fits the bundle. If not, the caller must call [`Bundler::flush`] first.
    #[must_use]
    pub const fn has_room(&self, packet_bytes: usize) -> bool {
        self.gathered.is_empty() || self.gathered.len() + 2 + packet_bytes <= self.bundle_bytes_max
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// No bundle can hold it, or this one has no room left.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> Result<(), TooLong> {
        if packet.len() + 2 > BUNDLE_BYTES_MAX || !self.has_room(packet.len()) {
            return Err(TooLong(packet.len()));
        }
        self.gathered.extend_from_slice(&(packet.len() as u16).to_be_bytes());
        self.gathered.extend_from_slice(packet);
        self.due_at.get_or_insert(now + self.gather);
        Ok(())
    }

    /// When [`Bundler::poll_transmit`] has a bundle.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due_at
    }

    /// Writes the bundle, if it is due, into `out`, replacing earlier content.
    pub fn poll_transmit(&mut self, now: Instant, compressor: &mut impl Compressor, out: &mut Vec<u8>) -> bool {
        self.due_at.is_some_and(|due| due <= now) && self.flush(compressor, out)
    }

    /// Writes the bundle now. Returns false if nothing was gathered.
    pub fn flush(&mut self, compressor: &mut impl Compressor, out: &mut Vec<u8>) -> bool {
        out.clear();
        if self.gathered.is_empty() {
            return false;
        }
        let [high, low] = (self.gathered.len() as u16).to_be_bytes();
        out.extend_from_slice(&[BUNDLE_VERSION, compressor.stage(), high, low]);
        let is_smaller =
            compressor.compress(&self.gathered, out) && out.len() < BUNDLE_HEADER_BYTES + self.gathered.len();
        if !is_smaller {
            out.clear();
            out.extend_from_slice(&[BUNDLE_VERSION, 0, high, low]);
            out.extend_from_slice(&self.gathered);
        }
        self.gathered.clear();
        self.due_at = None;
        true
    }
}

/// Opens a bundle: `packets` receives its packets one after another, each behind its length, for [`read`].
///
/// # Errors
/// It is malformed.
pub fn open(bundle: &[u8], compressor: &mut impl Compressor, packets: &mut Vec<u8>) -> Result<(), BundleError> {
    let mut body = bundle;
    let [version, stage, high, low] = take(&mut body).ok_or(BundleError::Length)?;
    let expanded_bytes = usize::from(u16::from_be_bytes([high, low]));
    packets.clear();
    if version != BUNDLE_VERSION {
        return Err(BundleError::Version(version));
    }
    match stage {
        0 => packets.extend_from_slice(body),
        own if own == compressor.stage() => {
            if !compressor.expand(body, expanded_bytes, packets) {
                return Err(BundleError::Compressed);
            }
        }
        other => return Err(BundleError::Stage(other)),
    }
    let lengths: usize = read(packets).map(|packet| packet.len() + 2).sum();
    if packets.len() == expanded_bytes && lengths == expanded_bytes { Ok(()) } else { Err(BundleError::Length) }
}

/// The packets of an opened bundle.
pub fn read(packets: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = packets;
    core::iter::from_fn(move || {
        let length = usize::from(u16::from_be_bytes(take(&mut rest)?));
        let (packet, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(packet)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of one byte.
    struct RunLengths;

    impl Compressor for RunLengths {
        fn stage(&self) -> u8 {
            200
        }

        fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
            for run in input.chunk_by(|one, other| one == other).flat_map(|run| run.chunks(255)) {
                out.extend_from_slice(&[run.len() as u8, run[0]]);
            }
            true
        }

        fn expand(&mut self, input: &[u8], expanded_bytes: usize, out: &mut Vec<u8>) -> bool {
            let (runs, rest) = input.as_chunks::<2>();
            let total: usize = runs.iter().map(|[length, _]| usize::from(*length)).sum();
            if total != expanded_bytes || !rest.is_empty() {
                return false;
            }
            runs.iter().for_each(|[length, byte]| out.resize(out.len() + usize::from(*length), *byte));
            true
        }
    }

    #[test]
    fn packets_of_ten_milliseconds_are_bundled_and_unbundled() {
        let mut bundler = Bundler::new(GATHER_DEFAULT, 4000);
        let (mut out, mut packets) = (Vec::new(), Vec::new());
        let at = Instant::from_millis;
        for (ms, packet) in [(0, [7; 300]), (4, [8; 300]), (9, [9; 300])] {
            bundler.handle_packet(at(ms), &packet).expect("there is room");
            assert!(!bundler.poll_transmit(at(ms), &mut RunLengths, &mut out));
        }
        assert_eq!(bundler.poll_timeout(), Some(at(10)));
        assert!(bundler.poll_transmit(at(10), &mut RunLengths, &mut out) && out.len() < 40);
        open(&out, &mut RunLengths, &mut packets).expect("it was made here");
        assert!(read(&packets).eq([[7; 300], [8; 300], [9; 300]]));
        assert!(!bundler.flush(&mut RunLengths, &mut out), "nothing is left");
    }

    #[test]
    fn incompressible_bundles_stay_plain_and_damaged_ones_are_refused() {
        let mut bundler = Bundler::new(Duration::ZERO, BUNDLE_BYTES_MAX);
        let packet: [u8; 100] = core::array::from_fn(|at| at as u8);
        bundler.handle_packet(Instant::ZERO, &packet).expect("there is room");
        let (mut out, mut packets) = (Vec::new(), Vec::new());
        assert!(bundler.poll_transmit(Instant::ZERO, &mut RunLengths, &mut out));
        assert_eq!((out[1], out.len()), (0, 4 + 2 + 100));
        assert_eq!(open(&out, &mut RunLengths, &mut packets), Ok(()));
        assert_eq!(open(&out[..50], &mut RunLengths, &mut packets), Err(BundleError::Length));
        out[1] = 1;
        assert_eq!(open(&out, &mut RunLengths, &mut packets), Err(BundleError::Stage(1)));
        out[1] = 200;
        assert_eq!(open(&out, &mut RunLengths, &mut packets), Err(BundleError::Compressed));
        assert_eq!(bundler.handle_packet(Instant::ZERO, &[0; 65_535]), Err(TooLong(65_535)));
    }
}
