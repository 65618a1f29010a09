//! The status bits of a connection.

/// The bits of a connection's status (`IPS_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Status(pub u32);

impl Status {
    /// It was expected.
    pub const EXPECTED: Self = Self(1 << 0);
    /// Packets were seen in both directions.
    pub const SEEN_REPLY: Self = Self(1 << 1);
    /// It is not evicted when the table is full.
    pub const ASSURED: Self = Self(1 << 2);
    /// Its first packet has left.
    pub const CONFIRMED: Self = Self(1 << 3);
    /// Its source is translated.
    pub const SOURCE_NAT: Self = Self(1 << 4);
    /// Its destination is translated.
    pub const DESTINATION_NAT: Self = Self(1 << 5);
    /// A helper shifts TCP's numbers.
    pub const SEQUENCE_ADJUST: Self = Self(1 << 6);
    /// Translation of the source has been decided.
    pub const SOURCE_NAT_DONE: Self = Self(1 << 7);
    /// Translation of the destination has been decided.
    pub const DESTINATION_NAT_DONE: Self = Self(1 << 8);
    /// It is being deleted.
    pub const DYING: Self = Self(1 << 9);
    /// Its timeout is fixed.
    pub const FIXED_TIMEOUT: Self = Self(1 << 10);
    /// It is a template of rules.
    pub const TEMPLATE: Self = Self(1 << 11);
    /// Helper and translation are set by the operator.
    pub const UNTRACKED: Self = Self(1 << 12);
    /// A rule chose its helper.
    pub const HELPER: Self = Self(1 << 13);
    /// A flow table forwards its packets: the kernel sends no events for them.
    pub const OFFLOAD: Self = Self(1 << 14);
    /// As [`Status::OFFLOAD`], in hardware.
    pub const HARDWARE_OFFLOAD: Self = Self(1 << 15);

    /// Whether all of `bits` are set.
    #[must_use]
    pub const fn contains(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// Whether any of `bits` is set.
    #[must_use]
    pub const fn intersects(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    /// The bits of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
