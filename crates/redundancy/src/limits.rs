//! Every bound of this room, and the relations between them.

/// What a cache is divided into: a block begins at a multiple of so many bytes, and is numbered by it.
pub const GRANULE_BYTES: usize = 64;
/// The smallest cache.
pub const CACHE_BYTES_MIN: usize = 1 << 16;
/// The largest cache. A pointer on the wire has 30 bits, and must tell a cache's content from what it was a turn before.
pub const CACHE_BYTES_MAX: usize = 1 << 28;
/// The longest block. Longer ones pass as they are.
pub const BLOCK_BYTES_MAX: usize = u16::MAX as usize;
/// Blocks that are encoded at once. More are encoded in turns of so many ...
pub const BATCH_BLOCKS_MAX: usize = 8;
/// ... or so many bytes, so that what a turn reads and writes is still in the processor's first cache when it is read again.
pub const BATCH_BYTES_MAX: usize = 12 << 10;
/// Pointers in one block. What would need more stays as it is from there on.
pub const MATCHES_MAX: usize = 4096;
/// The part of a cache, as a divisor, that is next to be overwritten and no longer pointed to: so far may packets overtake
/// each other on their way.
pub const MARGIN_DIVISOR: usize = 16;
/// Thousandths by which what has nothing redundant in it may grow, over any run of blocks from the first on.
pub const EXPANSION_PER_MILLE: usize = 3;
/// Bytes of blocks in a row that go plain, remembered without a number. One more brings its number, so that a loss is found out
/// before much was filed in a wrong place.
pub const IMPLIED_BYTES_MAX: usize = 1 << 14;
/// Granules of such a run: an encoder's blocks have 12 bytes at least, and one may leave the end of the ring unused.
pub(crate) const IMPLIED_GRANULES_MAX: u64 = (IMPLIED_BYTES_MAX / 12 + 2 * BLOCK_BYTES_MAX / GRANULE_BYTES) as u64;
/// Savings that may be spent on shims of later blocks are forgotten beyond this, in bytes: a bound over all time would mean
/// little after a week.
pub const EXPANSION_CREDIT_BYTES_MAX: usize = 1 << 20;
/// Flows whose last sequence number is remembered, by default. Flows beyond displace others, and what is not remembered is
/// taken for a retransmission.
pub const FLOWS_DEFAULT: usize = 4096;
/// The most such flows.
pub const FLOWS_MAX: usize = 1 << 20;

/// Blocks that wait at the decoder for bytes that it lacks. One more abandons the oldest.
pub const WAITING_BLOCKS_MAX: usize = 256;
/// Bytes of their shims. More abandons the oldest.
pub const WAITING_BYTES_MAX: usize = 1 << 20;
/// Ranges in one message.
pub const RANGES_MAX: usize = 64;
/// Ranges that the encoder has been asked for and has not answered. More are left out: they are asked for again.
pub const REQUESTS_MAX: usize = 256;
/// Granules of one filling message, so that it fits a packet.
pub const FILL_GRANULES_MAX: usize = 16;
/// Messages that wait to be polled, beside those whose number is bounded by something else. More are left out.
pub const OUTBOX_MESSAGES_MAX: usize = 64;
/// Blocks in a row whose numbers lie a whole cache in the past until the decoder takes itself, and not them, to be wrong.
pub const STALE_BLOCKS_MAX: u32 = 64;

const _: () = assert!(CACHE_BYTES_MAX < 1 << 30 && CACHE_BYTES_MIN > 0);
const _: () = assert!(GRANULE_BYTES.is_power_of_two() && CACHE_BYTES_MIN.is_multiple_of(GRANULE_BYTES));
