//! Every bound of a tunnel, and the relations between them.

use core::time::Duration;

/// Datagrams that the sender keeps until they are acknowledged. One more gives up the oldest.
pub const KEPT_DATAGRAMS_MAX: usize = 8192;
/// Datagrams that the receiver holds behind one that is missing. One more gives up what is missing.
pub const HELD_DATAGRAMS_MAX: usize = 8192;
/// Bytes of a datagram, from behind the UDP header on, at most.
pub const DATAGRAM_BYTES_MAX: u16 = 8972;
/// The least that a path must take in one datagram to be used: what every IPv6 path does.
pub const DATAGRAM_BYTES_MIN: u16 = 1232;
/// The same of a datagram before it is sealed.
pub const PLAIN_BYTES_MIN: u16 = DATAGRAM_BYTES_MIN - super::sealing::SEAL_BYTES;
/// Bytes that wait to be sent where the path's rate is known, as time at that rate. More are dropped: senders of TCP slow
/// down by that.
pub const BACKLOG_MAX: Duration = Duration::from_millis(100);
/// The same in bytes where the rate is not known, so that nothing waits but for the moment.
pub const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// The longest record: the longest packet with its envelope.
pub const RECORD_BYTES_MAX: usize = (1 << 16) + 64;
/// Packets restored or to be routed on that wait to be taken.
pub const RESTORED_PACKETS_MAX: usize = 4096;
/// Sessions of the other site that are over and are not taken up again.
pub const FORMER_SESSIONS_MAX: usize = 16;
/// Bytes that may be retransmitted at once, before they have been earned by what was sent.
pub const RECOVERY_BYTES_MAX: u64 = 256 * 1024;
/// Bytes of copies that may be sent at once, before they have been earned by what was saved.
pub const COPY_BYTES_MAX: u64 = 64 * 1024;
/// Records whose arrival is watched. Of more, headers are not remembered by the other end until some were acknowledged.
pub const MARKS_MAX: usize = 256;

/// A copy follows its datagram after so long: what is lost in one moment is lost together, and whatever is missing is asked for
/// a little later only ([`REORDER_WAIT`]).
pub const COPY_AFTER: Duration = Duration::from_millis(2);
/// Copies are sent for so long after something was lost.
pub const COPIES_AFTER_LOSS: Duration = Duration::from_secs(60);
/// An acknowledgement of what came in order may wait so long for more.
pub const ACK_DELAY: Duration = Duration::from_millis(8);
/// Missing datagrams are reported after so long, for packets may have overtaken each other.
pub const REORDER_WAIT: Duration = Duration::from_millis(3);
/// The acknowledgement is repeated after so long while datagrams are missing.
pub const ACK_REPEAT_INTERVAL: Duration = Duration::from_millis(15);
/// Datagrams in order that are acknowledged without waiting.
pub const ACK_EVERY: u32 = 32;
/// Keep-alives come so often …
pub const ALIVE_INTERVAL: Duration = Duration::from_millis(200);
/// … and so often before the other site has answered.
pub const HELLO_INTERVAL: Duration = Duration::from_millis(50);
/// After so long without an answer a tunnel tries with a session of a new name.
pub const RENAME_AFTER: Duration = Duration::from_secs(3);
/// The size of the largest datagram received is remembered for so long, and for twice as long at most.
pub const RECEIVED_SIZE_FOR: Duration = Duration::from_secs(2);
/// Blocks that went without a number are confirmed after so long, unless one with a number follows.
pub const CONFIRM_AFTER: Duration = Duration::from_millis(200);
/// A message between the codecs that must not be missing is repeated so long after it was found to be lost.
pub const REPEAT_AFTER: Duration = Duration::from_millis(50);
/// Acknowledgements that do not come for so long, and three round trips, mean that the path is broken.
pub const SILENCE_MAX: Duration = Duration::from_millis(300);

const _: () = assert!(KEPT_DATAGRAMS_MAX < u16::MAX as usize && HELD_DATAGRAMS_MAX >= KEPT_DATAGRAMS_MAX);
const _: () = assert!(COPY_AFTER.as_micros() < REORDER_WAIT.as_micros());
const _: () = assert!(PLAIN_BYTES_MIN as usize > super::datagram::DATA_HEADER_BYTES + 64);
