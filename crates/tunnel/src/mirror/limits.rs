//! Every bound of mirroring, and the relations between them.

use core::time::Duration;

use redundancy::limits::{FILL_GRANULES_MAX, RANGES_MAX};

/// Nodes that follow at a time. More are not answered.
pub(super) const FOLLOWERS_MAX: usize = 4;
/// A mirror sends so often that it follows …
pub(super) const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);
/// … and a node that has not received that for so long sends it nothing more. A mirror likewise leaves a node that is
/// silent for so long.
pub(super) const FOLLOWED_FOR: Duration = Duration::from_secs(2);
/// A mirror goes over to another node that sends to it when the former is silent for so long.
pub(super) const SILENT_FOR: Duration = Duration::from_millis(500);
/// The positions of the streams are sent so often.
pub(super) const POSITIONS_INTERVAL: Duration = Duration::from_millis(200);
/// Ranges that a mirror was not given yet. More are left out: they are asked for again.
pub(super) const WANTED_RANGES_MAX: usize = 2048;
/// Of the rate, the part that may be used for what mirrors lack, as a divisor. What passes comes first.
pub(super) const GIVEN_SHARE: u64 = 4;
/// What may be given at once, in bytes, after a pause.
pub(super) const GIVEN_BURST_BYTES: i64 = 64 * 1024;
/// When nothing more may be given, it is looked again after so long.
pub(super) const GIVE_RETRY: Duration = Duration::from_millis(5);

/// Numbers looked at in one step of looking back for what is lacking.
pub(super) const LOOKED_AT_MAX: u64 = 1 << 16;
/// Pieces asked for at once: they come before more are asked for.
pub(super) const ASKED_GRANULES_MAX: u64 = 1024;
/// What was asked for and does not come in this time is asked for again in the next round.
pub(super) const ASKED_FOR: Duration = Duration::from_millis(100);
/// From the end of one round to the beginning of the next.
pub(super) const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Ranges that the leader does not have either. Of more it is not remembered: they count as lacking.
pub(super) const GONE_RANGES_MAX: usize = 1024;
/// A node that could take the addresses from a healthy one leaves them there until its mirror is whole, but no longer than this
/// after it began to stand by ...
pub(super) const FILLING_MAX: Duration = Duration::from_secs(60);
/// ... and no longer than this if no node feeds a mirror here.
pub(super) const LEADER_WAIT: Duration = Duration::from_secs(2);
/// Questions that wait to be sent. More are left out.
pub(super) const WANTS_MAX: usize = 64;

const _: () = assert!(ASKED_GRANULES_MAX as usize / FILL_GRANULES_MAX <= WANTED_RANGES_MAX);
const _: () = assert!(ASKED_GRANULES_MAX as usize / RANGES_MAX <= WANTS_MAX);
