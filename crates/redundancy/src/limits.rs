//! All limits of this crate, and the relations between them.

/// The unit of a cache: a block begins at a multiple of so many bytes, and its number counts these units.
pub const GRANULE_BYTES: usize = 64;
/// The smallest cache.
pub const CACHE_BYTES_MIN: usize = 1 << 16;
/// The largest cache. A pointer on the wire has 30 bits, which must distinguish two successive turns of the ring.
pub const CACHE_BYTES_MAX: usize = 1 << 28;
/// The longest block. Longer ones are sent unchanged.
pub const BLOCK_BYTES_MAX: usize = u16::MAX as usize;
/// The maximum number of blocks encoded at once. More are encoded in batches.
pub const BATCH_BLOCKS_MAX: usize = 8;
/// The maximum size of a batch in bytes, so that its data stays in the processor's first-level cache.
pub const BATCH_BYTES_MAX: usize = 12 << 10;
/// The maximum number of pointers in a block; the rest of the block stays literal.
pub const MATCHES_MAX: usize = 4096;
/// The divisor of the part of a cache that is overwritten next and no longer referenced: so far packets may overtake
/// each other in flight.
pub const MARGIN_DIVISOR: usize = 16;
/// The maximum growth of incompressible data in thousandths, over any run of blocks from the first on.
pub const EXPANSION_PER_MILLE: usize = 3;
/// Bytes of consecutive plain blocks cached without a number. A further one carries its number, which reveals a loss
/// before much data is stored at a wrong position.
pub const IMPLIED_BYTES_MAX: usize = 1 << 14;
/// Granules of such a run: an encoder's blocks have at least 12 bytes, and one may leave the end of the ring unused.
pub(crate) const IMPLIED_GRANULES_MAX: u64 = (IMPLIED_BYTES_MAX / 12 + 2 * BLOCK_BYTES_MAX / GRANULE_BYTES) as u64;
/// The maximum allowance for shims of later blocks, in bytes: without it, a bound over all time would mean little after
/// a week.
pub const EXPANSION_CREDIT_BYTES_MAX: usize = 1 << 20;
/// The default number of flows with a recorded sequence number. Further flows evict others, whose blocks then count as
/// retransmissions.
pub const FLOWS_DEFAULT: usize = 4096;
/// The most such flows.
pub const FLOWS_MAX: usize = 1 << 20;

/// The maximum number of blocks that wait at the decoder for missing data. One more abandons the oldest.
pub const WAITING_BLOCKS_MAX: usize = 256;
/// The maximum bytes of their shims. More abandons the oldest.
pub const WAITING_BYTES_MAX: usize = 1 << 20;
/// The maximum number of ranges in one message.
pub const RANGES_MAX: usize = 64;
/// The maximum number of requested ranges that the encoder has queued. Further ones are omitted, and requested again.
pub const REQUESTS_MAX: usize = 256;
/// The maximum number of granules of one Fill, so that it fits a packet.
pub const FILL_GRANULES_MAX: usize = 16;
/// The maximum number of queued messages beside those with other bounds. Further ones are omitted.
pub const OUTBOX_MESSAGES_MAX: usize = 64;
/// The number of consecutive blocks a whole cache in the past after which the decoder discards its position instead of
/// them.
pub const STALE_BLOCKS_MAX: u32 = 64;

const _: () = assert!(CACHE_BYTES_MAX < 1 << 30 && CACHE_BYTES_MIN > 0);
const _: () = assert!(GRANULE_BYTES.is_power_of_two() && CACHE_BYTES_MIN.is_multiple_of(GRANULE_BYTES));
