//! What happens to connections, for those who replicate them.

use flow::conntrack::Change;
use flow::table::Slot;
use flow::{NodeId, Tuple};
use replication::representation::precise::Ended;

/// A change of a connection that the backups may have to receive.
#[derive(Clone, Copy, Debug)]
pub enum TableChange {
    /// It began.
    Began {
        /// Where it lies.
        slot: Slot,
    },
    /// This node became its owner. The former one and the other backups must learn of it whatever state the connection is in:
    /// their own updates no longer count here.
    TakenOver {
        /// Where it lies.
        slot: Slot,
    },
    /// This node became its owner without a packet of it, because the former owner does not decide it any more.
    Claimed {
        /// Where it lies.
        slot: Slot,
        /// The former owner.
        former: NodeId,
    },
    /// A peer has sent the connection at this node's request, which makes this node the owner. The former owner must learn of it, backup or not.
    Pulled {
        /// Where it lies.
        slot: Slot,
        /// The peer.
        from: NodeId,
        /// The former owner, as the peer knew it.
        former: NodeId,
    },
    /// A function changed its state, or what is expected on its behalf changed: its backups must learn of it whatever
    /// state it is in.
    FunctionsChanged {
        /// Where it lies.
        slot: Slot,
    },
    /// It changed.
    Changed {
        /// Where it lies.
        slot: Slot,
        /// How much changed.
        change: Change,
        /// Its protocol's state before.
        previous_state: u8,
    },
    /// It ended; the slot may hold another connection by now.
    Ended {
        /// Where it lay.
        slot: Slot,
        /// Its name.
        ended: Ended,
    },
    /// What lies in the slot has another node for its owner, or had: a replica came, changed or went.
    Copied {
        /// Where it lies or lay.
        slot: Slot,
    },
    /// A connection that this node owned was replaced by a peer's connection with the same tuple: it has not ended.
    Displaced {
        /// Where it lay.
        slot: Slot,
        /// Its tuple.
        original: Tuple,
    },
    /// A peer replicated a connection that has ended here: the end must be sent to it.
    Refused {
        /// The peer.
        to: NodeId,
        /// The end, newer than the peer's word.
        ended: Ended,
    },
}
