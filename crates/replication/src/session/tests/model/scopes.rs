//! What is explored: which things may happen, and how often.

use core::time::Duration;

use crate::session::SessionConfig;

/// What may go wrong or happen beside the traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A datagram is lost.
    Loss,
    /// A datagram is delivered and comes again.
    Duplication,
    /// A node's process ends and another begins, with nothing.
    Restart,
    /// Nothing gets through for as long as the peer's timeout.
    Partition,
    /// A node asks for a full synchronisation.
    Resync,
    /// A node leaves of its own will.
    Close,
}

/// How the random numbers of a node that starts anew relate to those it had before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Randomness {
    /// Always new.
    Fresh,
    /// Every second start draws what the first one drew, when the peer has learnt of the session between and nothing of the
    /// first is in flight any more. More than that is asked of the seed, which differs from start to start: one chance in 2^31
    /// that the number repeats within the time that a datagram may be in flight.
    EverySecondAlike,
}

/// The state in which the exploration begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// Both nodes have just been started; the first has so many connections.
    Cold(u32),
    /// Both are synchronised; the first has so many connections.
    Synchronised(u32),
}

/// The bounds of an exploration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub(super) session: SessionConfig,
    pub(super) beginning: Beginning,
    /// Slots of each node; as many tuples.
    pub(super) slots: [u32; 2],
    /// Changes of connections in all.
    pub(super) changes: u8,
    /// Faults in all, and of which kinds.
    pub(super) faults: u8,
    pub(super) kinds: &'static [Fault],
    pub(super) randomness: Randomness,
    /// Datagrams in flight: what happens with more is not looked at.
    pub(super) wire_max: usize,
    /// Whether time may go on while datagrams are in flight.
    pub(super) delay: bool,
    /// Whether a node may be called later than it asked for.
    pub(super) late: bool,
    /// Makes a message so long that each has a datagram of its own.
    pub(super) one_message_each: bool,
}

/// Times are whole milliseconds and few, so that states meet again; the round trip does not matter.
const SESSION: SessionConfig = SessionConfig {
    connections_max: 2,
    changes_queued_max: 2,
    deletions_max: 2,
    in_flight_messages_max: 4,
    resync_in_flight_messages_max: 2,
    datagram_bytes_max: 1024,
    ack_every_messages: 1,
    ack_delay: Duration::ZERO,
    batch_delay: Duration::ZERO,
    probe_timeout_min: Duration::from_millis(1),
    probe_timeout_max: Duration::from_millis(1),
    alive_interval: Duration::from_millis(2),
    peer_timeout: Duration::from_millis(4),
    compares_copies: false,
    hello_interval_min: Duration::from_millis(2),
    hello_interval_max: Duration::from_millis(2),
};

const SCOPE: Scope = Scope {
    session: SESSION,
    beginning: Beginning::Synchronised(1),
    slots: [2, 0],
    changes: 0,
    faults: 0,
    kinds: &[],
    randomness: Randomness::Fresh,
    wire_max: 3,
    delay: false,
    late: false,
    one_message_each: false,
};

const LINK: &[Fault] = &[Fault::Loss, Fault::Duplication];
const ANY: &[Fault] = &[Fault::Loss, Fault::Duplication, Fault::Restart, Fault::Partition, Fault::Resync, Fault::Close];

/// Acknowledgements wait for company, so does a change.
const PATIENT: SessionConfig = SessionConfig {
    ack_delay: Duration::from_millis(1),
    batch_delay: Duration::from_millis(1),
    ack_every_messages: 2,
    resync_in_flight_messages_max: 4,
    ..SESSION
};

/// Queues that are full at once.
const NARROW: SessionConfig =
    SessionConfig { changes_queued_max: 1, deletions_max: 1, in_flight_messages_max: 2, ..SESSION };

/// What `cargo test` explores.
pub(super) const EVERY_DAY: [(&str, Scope); 12] = [
    (
        "two nodes that begin, on a bad link, and restart",
        Scope {
            beginning: Beginning::Cold(1),
            faults: 2,
            kinds: &[Fault::Loss, Fault::Duplication, Fault::Restart],
            ..SCOPE
        },
    ),
    ("a bad link", Scope { changes: 2, faults: 2, kinds: LINK, wire_max: 2, ..SCOPE }),
    ("a bad link, and both send", Scope { slots: [1, 1], changes: 2, faults: 1, kinds: LINK, ..SCOPE }),
    ("a slow link", Scope { changes: 1, faults: 1, kinds: LINK, wire_max: 2, delay: true, ..SCOPE }),
    ("nodes called late", Scope { changes: 1, faults: 1, kinds: ANY, late: true, wire_max: 2, ..SCOPE }),
    ("any two faults", Scope { changes: 1, faults: 2, kinds: ANY, wire_max: 2, ..SCOPE }),
    (
        "two ends and a fault",
        Scope {
            changes: 2,
            faults: 1,
            kinds: &[Fault::Restart, Fault::Partition, Fault::Resync, Fault::Close],
            wire_max: 2,
            ..SCOPE
        },
    ),
    ("restarts", Scope { changes: 1, faults: 2, kinds: &[Fault::Restart, Fault::Loss], ..SCOPE }),
    (
        "restarts with a session of before",
        Scope { changes: 1, faults: 2, kinds: &[Fault::Restart], randomness: Randomness::EverySecondAlike, ..SCOPE },
    ),
    (
        "a message in each datagram",
        Scope {
            beginning: Beginning::Synchronised(2),
            changes: 2,
            faults: 1,
            kinds: LINK,
            one_message_each: true,
            ..SCOPE
        },
    ),
    (
        "full queues",
        Scope {
            session: NARROW,
            beginning: Beginning::Synchronised(2),
            changes: 2,
            faults: 1,
            kinds: LINK,
            wire_max: 2,
            ..SCOPE
        },
    ),
    (
        "acknowledgements and changes that wait",
        Scope { session: PATIENT, changes: 1, faults: 1, kinds: LINK, wire_max: 2, ..SCOPE },
    ),
];

/// The same, further.
pub(super) const DEEP: [(&str, Scope); 9] = [
    (
        "two nodes that begin, on a bad and slow link, and restart",
        Scope {
            beginning: Beginning::Cold(1),
            faults: 2,
            kinds: &[Fault::Loss, Fault::Duplication, Fault::Restart],
            wire_max: 2,
            delay: true,
            ..SCOPE
        },
    ),
    ("a bad link", Scope { changes: 3, faults: 3, kinds: LINK, wire_max: 2, ..SCOPE }),
    ("a bad link, and both send", Scope { slots: [1, 1], changes: 3, faults: 2, kinds: LINK, ..SCOPE }),
    ("a slow link", Scope { changes: 1, faults: 1, kinds: LINK, wire_max: 3, delay: true, ..SCOPE }),
    ("any three faults", Scope { changes: 1, faults: 3, kinds: ANY, wire_max: 2, ..SCOPE }),
    ("restarts", Scope { changes: 2, faults: 3, kinds: &[Fault::Restart, Fault::Loss], ..SCOPE }),
    (
        "restarts with a session of before",
        Scope {
            changes: 1,
            faults: 3,
            kinds: &[Fault::Restart],
            randomness: Randomness::EverySecondAlike,
            wire_max: 2,
            delay: true,
            ..SCOPE
        },
    ),
    (
        "acknowledgements and changes that wait",
        Scope { session: PATIENT, changes: 2, faults: 2, kinds: LINK, wire_max: 2, ..SCOPE },
    ),
    (
        "full queues",
        Scope {
            session: NARROW,
            beginning: Beginning::Synchronised(2),
            changes: 3,
            faults: 2,
            kinds: LINK,
            wire_max: 3,
            ..SCOPE
        },
    ),
];
