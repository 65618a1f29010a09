//! Connections in the terms of the Linux kernel's connection tracking.
//!
//! These types are common to ctnetlink (`packet-io`), the conntrackd wire format and the native messages
//! (`replication`), and the node that replicates the kernel's connections (`conntrack-sync`). Numbers are the kernel's
//! (`linux/netfilter/nf_conntrack_common.h`, `nf_conntrack_tcp.h`, `nfnetlink_conntrack.h`).

mod expectation;
mod status;
mod tcp;
mod tuple;

use alloc::boxed::Box;

pub use expectation::{Expectation, ExpectationNat};
pub use status::Status;
pub use tcp::{TcpFlags, TcpInfo, TcpSide, TcpState};
pub use tuple::{Discriminator, Tuple};

/// The maximum length of the name of a helper or of a helper's function, in bytes. The kernel's helpers have at most 15
/// (`NF_CT_HELPER_NAME_LEN` less its NUL); functions of expectations may have more (`nat-follow-master`).
pub const HELPER_NAME_BYTES_MAX: usize = 31;
/// Bytes of a connection's labels: 128 bits.
pub const LABELS_BYTES: usize = 16;

/// A connection as one message describes it: `None` means "not stated", not "absent".
///
/// An event of the kernel contains changes only, and always the tuples, the zone, the status and the timeout (except at
/// the end of a connection); a dump contains everything. Translation is not a separate field: it is the difference
/// between the reply tuple and the original's inverse.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The tuple of the first packet's direction.
    pub original: Tuple,
    /// The tuple of the opposite direction, on arrival.
    pub reply: Tuple,
    /// The zone of both tuples, or of one of them ([`Extra::zone_direction`]); 0 is the default. Connections in
    /// different zones may have equal tuples.
    pub zone: u16,
    /// The kernel's identifier of this connection: another one with the same tuples has another identifier, unless it
    /// reuses the memory. It is local to this kernel and never replicated.
    pub id: Option<u32>,
    /// The status bits of the connection.
    pub status: Option<Status>,
    /// Seconds until it expires without further packets.
    pub timeout_s: Option<u32>,
    /// The state of its protocol's automaton.
    pub protocol_info: Option<ProtocolInfo>,
    /// The mark set by the operator's rules.
    pub mark: Option<u32>,
    /// Rare properties.
    pub extra: Option<Box<Extra>>,
}

/// Rare properties; `None` if not stated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extra {
    /// The labels set by the operator's rules.
    pub labels: Option<[u8; LABELS_BYTES]>,
    /// Its helper (`ftp`).
    pub helper: Option<HelperName>,
    /// The original tuple of its master connection.
    pub master: Option<Tuple>,
    /// The helper's shift of TCP's numbers, original and reply.
    pub sequence_adjustment: Option<[SequenceAdjustment; 2]>,
    /// The numbers that a SYN proxy chose.
    pub syn_proxy: Option<SynProxy>,
    /// The only direction whose tuple is in the zone (`ct original zone set`); the other direction's is in the default zone.
    /// `None`: both are in it.
    pub zone_direction: Option<ZoneDirection>,
}

/// The direction of a zone that applies to one direction only (`NF_CT_ZONE_DIR_ORIG`, `NF_CT_ZONE_DIR_REPL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneDirection {
    /// That of the first packet.
    Original,
    /// The opposite direction.
    Reply,
}

/// The state of a protocol's automaton.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolInfo {
    /// TCP.
    Tcp(TcpInfo),
    /// SCTP: the state (`SCTP_CONNTRACK_*`), and each side's verification tag, original first.
    Sctp {
        /// The state.
        state: u8,
        /// The tags.
        verification_tags: [u32; 2],
    },
    /// DCCP: the state and whether the original side is the client (`CT_DCCP_ROLE_*`). Kernels since 2025 no longer
    /// track it; peers on older ones may.
    Dccp {
        /// The state.
        state: u8,
        /// The role.
        role: u8,
    },
}

/// The name of a helper, or of a function that an expectation calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HelperName {
    bytes: [u8; HELPER_NAME_BYTES_MAX],
    length_bytes: u8,
}

impl HelperName {
    /// The name, if valid: 1 to [`HELPER_NAME_BYTES_MAX`] bytes of printable ASCII.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        let fits = (1..=HELPER_NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic);
        let mut bytes = [0; HELPER_NAME_BYTES_MAX];
        fits.then(|| {
            bytes[..name.len()].copy_from_slice(name);
            Self { bytes, length_bytes: name.len() as u8 }
        })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.length_bytes)]).unwrap_or_default()
    }
}

/// A helper's shift of TCP's numbers in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SequenceAdjustment {
    /// The number at which the offset changed last.
    pub correction_position: u32,
    /// The offset before it.
    pub offset_before: u32,
    /// The offset after it.
    pub offset_after: u32,
}

/// The numbers that a SYN proxy chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SynProxy {
    /// The initial sequence number sent to the client.
    pub initial_sequence: u32,
    /// The server's.
    pub server_initial_sequence: u32,
    /// The difference between the time stamps of both.
    pub timestamp_offset: u32,
}

impl Entry {
    /// A connection with tuples only.
    #[must_use]
    pub const fn new(original: Tuple, reply: Tuple) -> Self {
        Self {
            original,
            reply,
            zone: 0,
            id: None,
            status: None,
            timeout_s: None,
            protocol_info: None,
            mark: None,
            extra: None,
        }
    }

    /// The state of TCP's automaton, if stated.
    #[must_use]
    pub const fn tcp(&self) -> Option<&TcpInfo> {
        match &self.protocol_info {
            Some(ProtocolInfo::Tcp(info)) => Some(info),
            _ => None,
        }
    }

    /// The direction of the zone; `None`: both.
    #[must_use]
    pub fn zone_direction(&self) -> Option<ZoneDirection> {
        self.extra.as_deref().and_then(|extra| extra.zone_direction)
    }

    /// The zone of the original tuple: with it the kernel finds the connection by that tuple.
    #[must_use]
    pub fn zone_of_original(&self) -> u16 {
        if self.zone_direction() == Some(ZoneDirection::Reply) { 0 } else { self.zone }
    }

    /// The rare properties, created if absent.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_with(Box::default)
    }

    /// Merges a newer description of the same connection; fields that it does not state stay.
    pub fn update(&mut self, newer: &Self) {
        fn take<T: Copy>(old: &mut Option<T>, new: Option<T>) {
            *old = new.or(*old);
        }
        (self.original, self.reply, self.zone) = (newer.original, newer.reply, newer.zone);
        take(&mut self.id, newer.id);
        take(&mut self.status, newer.status);
        take(&mut self.timeout_s, newer.timeout_s);
        take(&mut self.protocol_info, newer.protocol_info);
        take(&mut self.mark, newer.mark);
        if let Some(newer) = newer.extra.as_deref() {
            let extra = self.extra_mut();
            take(&mut extra.labels, newer.labels);
            take(&mut extra.helper, newer.helper);
            take(&mut extra.master, newer.master);
            take(&mut extra.sequence_adjustment, newer.sequence_adjustment);
            take(&mut extra.syn_proxy, newer.syn_proxy);
            take(&mut extra.zone_direction, newer.zone_direction);
        }
    }
}

#[cfg(test)]
mod tests;
