//! Clearing out replicas that their owner no longer knows.
//!
//! A peer's full synchronisation leaves out the connections that have ended since. Replicas received since its beginning carry
//! the current epoch's mark. After its end, replicas with the other mark are removed in parts, so that no packet waits for a
//! scan of the whole table.
//!
//! There are two marks only. A round that the peer gives up for another leaves replicas with either, so that the next round
//! cannot have a mark of its own: it keeps the mark of the one that was given up, and what it leaves behind is cleared out
//! by a further round, for which the peer is asked.
//!
//! A node that holds the addresses removes no replica: it is to go on with all connections, whatever their owner. A peer that
//! handed over and restarted sends none, possibly before this node has claimed those that it took over. They become this node's
//! own, and expire when no packet arrives for them.
//!
//! Nor does a standby node remove what a restarted peer does not know: that connection has not ended, and this node may hold
//! its only replica. The replica becomes this node's own as well, which sends it to the peer.

use flow::Instant;
use flow::table::Slot;

/// Slots looked at in one step of the walk.
const SLOTS_PER_STEP: usize = 256;

/// The marks of one peer's replicas.
#[derive(Debug, Default)]
pub struct Resync {
    epoch: bool,
    cursor: Option<Slot>,
    /// A round has begun and not all replicas carry its mark.
    is_mixed: bool,
    /// Replicas of an earlier round, which was given up, carry the mark as well.
    needs_another: bool,
    /// All replicas of the peer's connections were received since it last came.
    is_settled: bool,
    /// The peer has started anew, and replicas are left of what it was before.
    has_restarted: bool,
    /// When a replica was last refused for want of room, since the peer's full synchronisation began and the copies were alike.
    refused_at: Option<Instant>,
}

impl Resync {
    /// The mark of replicas that are received now.
    #[must_use]
    pub const fn epoch(&self) -> bool {
        self.epoch
    }

    /// The peer begins a full synchronisation: everything received so far is of the old epoch, unless the last one was given
    /// up.
    pub const fn start(&mut self) {
        if self.is_mixed {
            self.needs_another = true;
        } else {
            self.epoch = !self.epoch;
        }
        self.is_mixed = true;
        self.cursor = None;
        self.is_settled = false;
        self.refused_at = None;
    }

    /// A replica was refused for want of room.
    pub const fn note_refused(&mut self, now: Instant) {
        self.refused_at = Some(now);
    }

    /// The copies were compared at `agreed_at`, and nothing of the peer's is missing: what was refused before has come since, or ended.
    pub fn note_agreed(&mut self, agreed_at: Option<Instant>) {
        self.refused_at =
            self.refused_at.filter(|refused_at| agreed_at.is_none_or(|agreed_at| agreed_at <= *refused_at));
    }

    /// Whether replicas are missing for want of room.
    #[must_use]
    pub const fn lacks_room(&self) -> bool {
        self.refused_at.is_some()
    }

    /// The peer's full synchronisation is complete: replicas with the old mark are to be removed.
    pub const fn complete(&mut self) {
        self.cursor = Some(Slot(0));
    }

    /// The peer is away: what is left of it may be all that anybody has.
    pub const fn unsettle(&mut self) {
        self.is_settled = false;
    }

    /// The peer has started anew: what it does not name from now on it has not ended, but never known.
    pub const fn restart(&mut self) {
        self.is_settled = false;
        self.has_restarted = true;
    }

    /// Whether replicas of what the peer was before it last started may be left.
    #[must_use]
    pub const fn has_restarted(&self) -> bool {
        self.has_restarted
    }

    /// Whether the peer has sent all that it owns since it last came, and no older replica is left.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether [`Resync::step`] has something to do.
    #[must_use]
    pub const fn is_sweeping(&self) -> bool {
        self.cursor.is_some()
    }

    /// Removes a part of what is to go, or claims it if this node replicates for all connections. `sweep` gets the mark of what
    /// stays, where to begin, and how many slots to look at, and returns where to go on. True when the peer must be asked for
    /// another full synchronisation.
    #[must_use]
    pub fn step(&mut self, sweep: impl FnOnce(bool, Slot, usize) -> Option<Slot>) -> bool {
        let Some(cursor) = self.cursor else { return false };
        self.cursor = sweep(self.epoch, cursor, SLOTS_PER_STEP);
        if self.cursor.is_some() {
            return false;
        }
        self.is_mixed = false;
        self.is_settled = true;
        let needs_another = core::mem::take(&mut self.needs_another);
        self.has_restarted &= needs_another;
        needs_another
    }
}
