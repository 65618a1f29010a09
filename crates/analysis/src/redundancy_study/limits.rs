//! Every bound of the study.

/// Packets handed from the reader to those who study them at once.
pub const BATCH_PACKETS_MAX: usize = 1024;
/// Bytes of their payload. One packet beyond fills the batch.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Batches that wait for each who studies; the reader waits when there are more.
pub const BATCHES_WAITING_MAX: usize = 4;
/// Jobs that go over a capture together. Fewer would read it more often, more would lose more when the study is interrupted.
pub const JOBS_TOGETHER_MAX: usize = 12;

/// Flows whose client and sequence numbers are remembered. A flow beyond displaces one that has the same place.
pub const FLOWS_MAX: usize = 1 << 16;
/// Addresses that are counted at a site. Of more it is said that there are at least so many.
pub const HOSTS_MAX: usize = 1 << 16;

/// Pairs of a client and a server whose caches are followed. Packets of others are counted.
pub const PAIRS_MAX: usize = 1 << 16;
/// Bytes of each way that SAMPLEBYTE's table is trained on.
pub const TRAINING_BYTES: usize = 1 << 21;

/// Matched chunks whose hits are counted. When there are more, every second is let go, chosen by its hash, and each that stays
/// stands for twice as many.
pub const CHUNKS_MAX: usize = 1 << 18;
/// Bins of a volume over time. When there are more, two become one.
pub const TIMELINE_BINS_MAX: usize = 1 << 18;
/// Scales of a wavelet analysis: of 10 ms, the last is longer than three years.
pub const SCALES_MAX: usize = 34;
/// A pause of so many of the shortest bins begins the wavelet analysis anew: an hour.
pub const PAUSE_BINS_MAX: u64 = 360_000;

/// Streams of HTTP that are reassembled at once. A stream beyond displaces the one that was quiet the longest.
pub const HTTP_STREAMS_MAX: usize = 1024;
/// Bytes of a response's header. What is longer is no response.
pub const HTTP_HEAD_BYTES_MAX: usize = 1 << 16;
/// Bytes of an object that are compressed at once. Longer objects are compressed in pieces, which costs gzip (window of
/// 32 KB) next to nothing.
pub const HTTP_PIECE_BYTES_MAX: usize = 1 << 18;
/// Segments of a stream that wait for one before them. With one more the gap is given up.
pub const HTTP_WAITING_SEGMENTS_MAX: usize = 32;
/// Bytes of such segments.
pub const HTTP_WAITING_BYTES_MAX: usize = 1 << 17;

/// What a study may take by default for caches and indexes, all its threads together.
pub const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

const _: () = assert!(CHUNKS_MAX.is_power_of_two() && FLOWS_MAX.is_power_of_two());
const _: () = assert!(TIMELINE_BINS_MAX.is_multiple_of(2));
