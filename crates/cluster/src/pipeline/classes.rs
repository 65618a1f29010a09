//! Counters of traffic classes. The class of a connection is read from its record, so packets count that no function sees.

use flow::Connection;
use network_functions::chain::Chain;
use network_functions::class::Class;

/// What a node has of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassTraffic {
    /// Connections in the table, replicas included. Those of [`Class::Unknown`] are not counted: they are the rest.
    pub connections: u64,
    /// Packets of its connections, each under the class at that time.
    pub packets: u64,
    /// Bytes of these packets, from the IP header on.
    pub bytes: u64,
}

/// The traffic of each class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassCounters {
    /// The position of the class in a record's functions; `None` without a classifier.
    position: Option<usize>,
    /// The packets at hand were counted when they came first, and are not counted again.
    pub(super) is_counted: bool,
    counted: [ClassTraffic; Class::COUNT],
}

impl ClassCounters {
    pub(super) fn new(chain: &Chain) -> Self {
        Self { position: chain.class_position(), ..Self::default() }
    }

    /// Connections have the layout of this chain from now on.
    pub(super) fn follow(&mut self, chain: &Chain) {
        self.position = chain.class_position();
    }

    /// The class of a connection; `None` if none are counted.
    #[inline(always)]
    pub(super) fn class(&self, connection: &Connection) -> Option<Class> {
        self.position.map(|position| Class::from_number(connection.functions[position]))
    }

    #[inline(always)]
    pub(super) fn note_packets(&mut self, connection: &Connection, packets: u64, bytes: u64) {
        if let Some(class) = self.class(connection) {
            let counted = &mut self.counted[class.index()];
            counted.packets += packets;
            counted.bytes += bytes;
        }
    }

    /// A record has entered the table.
    #[inline(always)]
    pub(super) fn note_entered(&mut self, connection: &Connection) {
        if let Some(class) = self.class(connection) {
            self.add(class);
        }
    }

    /// A record has left the table.
    #[inline(always)]
    pub(super) fn note_left(&mut self, connection: &Connection) {
        if let Some(class) = self.class(connection) {
            self.subtract(class);
        }
    }

    /// A packet may have changed the class of a connection in the table.
    #[inline(always)]
    pub(super) fn note_processed(&mut self, before: Option<Class>, connection: &Connection) {
        if let (Some(before), Some(after)) = (before, self.class(connection))
            && before != after
        {
            self.subtract(before);
            self.add(after);
        }
    }

    const fn add(&mut self, class: Class) {
        self.counted[class.index()].connections += 1;
    }

    const fn subtract(&mut self, class: Class) {
        let connections = &mut self.counted[class.index()].connections;
        *connections = connections.wrapping_sub(1);
    }

    /// The traffic of each class, with that which `below` saw; `None` without a classifier.
    pub(super) fn traffic(&self, below: Option<&Self>) -> Option<[ClassTraffic; Class::COUNT]> {
        self.position?;
        let mut whole = self.counted;
        whole[Class::Unknown.index()].connections = 0;
        for (all, below) in whole.iter_mut().zip(below.iter().flat_map(|below| &below.counted)) {
            all.packets += below.packets;
            all.bytes += below.bytes;
        }
        Some(whole)
    }
}
