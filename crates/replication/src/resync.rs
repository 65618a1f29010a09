//! Clearing out copies that their master no longer knows.
//!
//! A peer that tells all its connections anew leaves out those that have ended since. Copies told since the beginning
//! carry the current epoch's mark; after the end those with the other mark are removed, a part at a time, so that the
//! packet path never waits for a walk over the whole table.
//!
//! There are two marks only. A round that the peer gives up for another leaves copies with either, so that the next round
//! cannot have a mark of its own: it keeps the mark of the one that was given up, and what it leaves behind is cleared out
//! by a further round, for which the peer is asked.
//!
//! A node that holds the addresses removes none: it is to go on with all connections, whoever was their master. A peer
//! that handed over and started anew tells that it has none, and may well do so before this node has spoken for those
//! that it took over. They become this node's own, and end like these: when nothing comes for them.
//!
//! Nor does a node that stands by remove what a peer does not know because it has started anew: nobody has ended that, and
//! this node may be the only one that has it. It becomes this node's own as well, which sends it to the peer.

use flow::table::Slot;

/// Slots looked at in one step of the walk.
const SLOTS_PER_STEP: usize = 256;

/// The marks of one peer's copies.
#[derive(Debug, Default)]
pub struct Resync {
    epoch: bool,
    cursor: Option<Slot>,
    /// A round has begun and not all copies carry its mark.
    is_mixed: bool,
    /// Copies that an earlier round told, which was given up, carry the mark as well.
    needs_another: bool,
    /// All copies of the peer's are of what it has told since it last came.
    is_settled: bool,
    /// The peer has started anew, and copies are left of what it was before.
    has_restarted: bool,
    /// Copies were refused since the peer last began to tell all, for want of room.
    pub lacks_room: bool,
}

impl Resync {
    /// The mark that copies told now carry.
    #[must_use]
    pub const fn epoch(&self) -> bool {
        self.epoch
    }

    /// The peer begins to tell all: everything told so far is of the old epoch, unless the last one was given up.
    pub const fn start(&mut self) {
        if self.is_mixed {
            self.needs_another = true;
        } else {
            self.epoch = !self.epoch;
        }
        self.is_mixed = true;
        self.cursor = None;
        self.is_settled = false;
        self.lacks_room = false;
    }

    /// The peer has told all: what still carries the old mark is to go.
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

    /// Whether copies of what the peer was before it last started may be left.
    #[must_use]
    pub const fn has_restarted(&self) -> bool {
        self.has_restarted
    }

    /// Whether the peer has told all that it is master of since it last came, and no copy is left of what it was before.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether [`Resync::step`] has something to do.
    #[must_use]
    pub const fn is_sweeping(&self) -> bool {
        self.cursor.is_some()
    }

    /// Removes a part of what is to go, or makes it this node's own if it speaks for all connections: `sweep` gets the mark
    /// of what stays, where to begin, and how many slots to look at, and says where to go on. True when the peer must be asked
    /// to tell all once more.
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
