//! The outcomes of packets that the program saw.

use core::ops::Sub;

/// The outcome of a packet, by the index of its counter. All but [`Outcome::Forwarded`] and [`Outcome::Failed`] mean that
/// the packet went on to user space as it came in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum Outcome {
    /// Forwarded.
    Forwarded = 0,
    /// The program is switched off.
    Disabled = 1,
    /// The loader's heartbeat is too old.
    Heartbeat = 2,
    /// The frame is for a group, or for another link address than the interface's; of bridged ones, than the connection demands.
    Host = 3,
    /// The frame has a VLAN tag.
    Tagged = 4,
    /// Neither IPv4 nor IPv6 in Ethernet.
    Link = 5,
    /// IP options, extension headers, a fragment, or a malformed header.
    Network = 6,
    /// The time to live or hop limit of a routed packet is 1 or 0.
    Ttl = 7,
    /// Neither TCP nor UDP, or a malformed header.
    Transport = 8,
    /// A TCP segment with SYN, FIN, RST or URG, without ACK, or with a closed window.
    Flags = 9,
    /// TCP options other than timestamps and selective acknowledgements.
    Options = 10,
    /// No connection is installed with this tuple on this interface.
    Miss = 11,
    /// The connection or the next hop was replaced while it was read.
    Torn = 12,
    /// The connection was installed in another generation.
    Generation = 13,
    /// The next hop is not set.
    NextHop = 14,
    /// The packet is longer than the next hop's MTU.
    Mtu = 15,
    /// The segment is outside the windows.
    Window = 16,
    /// Too many processors changed the windows at once.
    Contended = 17,
    /// At XDP: the transport checksum covers the pseudo-header alone, and somebody is yet to complete it.
    Partial = 18,
    /// Dropped: the kernel refused a change half-way.
    Failed = 19,
}

impl Outcome {
    /// All outcomes, by the indices of their counters.
    pub const ALL: [Self; 20] = [
        Self::Forwarded,
        Self::Disabled,
        Self::Heartbeat,
        Self::Host,
        Self::Tagged,
        Self::Link,
        Self::Network,
        Self::Ttl,
        Self::Transport,
        Self::Flags,
        Self::Options,
        Self::Miss,
        Self::Torn,
        Self::Generation,
        Self::NextHop,
        Self::Mtu,
        Self::Window,
        Self::Contended,
        Self::Partial,
        Self::Failed,
    ];

    /// Its name in lower case, for a metric's label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Disabled => "disabled",
            Self::Heartbeat => "heartbeat",
            Self::Host => "host",
            Self::Tagged => "tagged",
            Self::Link => "link",
            Self::Network => "network",
            Self::Ttl => "ttl",
            Self::Transport => "transport",
            Self::Flags => "flags",
            Self::Options => "options",
            Self::Miss => "miss",
            Self::Torn => "torn",
            Self::Generation => "generation",
            Self::NextHop => "next_hop",
            Self::Mtu => "mtu",
            Self::Window => "window",
            Self::Contended => "contended",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

/// Packets by outcome, since the maps were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters(pub(crate) [u64; Outcome::ALL.len()]);

impl Counters {
    /// Packets with this outcome.
    #[must_use]
    pub const fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Each outcome with its packets.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL.into_iter().zip(self.0)
    }
}

impl Sub for Counters {
    type Output = Self;

    /// Packets since the earlier reading `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self(core::array::from_fn(|index| self.0[index].wrapping_sub(earlier.0[index])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_have_the_indices_of_their_counters() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }

    #[test]
    fn the_program_names_the_same_outcomes_in_the_same_order() {
        let source = include_str!("../bpf/fast_path.c");
        let (_, behind) = source.split_once("enum outcome {").unwrap();
        let (names, _) = behind.split_once('}').unwrap();
        let names: Vec<String> = names
            .lines()
            .filter_map(|line| line.split_once(',').map(|(name, _)| name.trim().to_lowercase()))
            .filter(|name| name != "outcomes")
            .collect();
        assert_eq!(names, Outcome::ALL.map(Outcome::name));
    }
}
