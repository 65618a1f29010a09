//! The classifier's state of a connection.

use alloc::vec::Vec;
use core::mem::offset_of;

use flow::wire::tlv::{self, TlvError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::class::Class;
use crate::function::{FlowState, state_attribute};

/// Bits of [`ClassState::flags`].
pub(super) mod flags {
    /// The classifier was in the chain when the connection began, or has settled it since.
    pub(in super::super) const BEGUN: u8 = 1;
    /// The class does not change any more.
    pub(in super::super) const SETTLED: u8 = 2;
    /// The class is that of the port.
    pub(in super::super) const BY_PORT: u8 = 4;
    /// The beginning of the client's stream is known.
    pub(in super::super) const HAS_START: u8 = 8;
    /// A rule denies the connection under its class.
    pub(in super::super) const DENIED: u8 = 16;
    /// The payload is TLS, HTTP or QUIC.
    pub(in super::super) const CARRIER: u8 = 32;
    /// The client's first bytes have been read.
    pub(in super::super) const CLIENT_READ: u8 = 64;
    /// The server's first bytes have been read.
    pub(in super::super) const REPLY_READ: u8 = 128;
}

/// The class of a connection, and how far its payload has been inspected. Seven bytes, so that the states of all functions fit a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ClassState {
    /// [`Class::number`]. It is the first byte: [`Chain::class`](crate::chain::Chain::class) reads it without the function.
    class: u8,
    /// Bits of [`flags`].
    flags: u8,
    /// Packets with payload that were inspected by this node.
    pub(super) inspected: u8,
    /// The sequence number of the client's first byte, where [`flags::HAS_START`].
    start: [u8; 4],
}

const _: () = assert!(offset_of!(ClassState, class) == 0 && size_of::<ClassState>() == 7);

/// Flags of this node's inspection, which mean nothing to another.
const INSPECTION: u8 = flags::CLIENT_READ | flags::REPLY_READ;

mod attribute {
    //! Attributes of the state.
    /// Class and flags, a byte each.
    pub(super) const CLASS: u16 = 1;
    /// The sequence number of the client's first byte, u32; only while the class is not settled.
    pub(super) const START: u16 = 2;
}

impl ClassState {
    /// A connection that begins with this class.
    pub(super) const fn new(class: Class) -> Self {
        Self { class: class.number(), flags: flags::BEGUN, inspected: 0, start: [0; 4] }
    }

    /// The class.
    #[must_use]
    pub const fn class(&self) -> Class {
        Class::from_number(self.class)
    }

    /// Whether the class does not change any more.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.has(flags::SETTLED)
    }

    pub(super) const fn was_begun(&self) -> bool {
        self.has(flags::BEGUN)
    }

    /// Whether all of these flags are set.
    pub(super) const fn has(&self, all: u8) -> bool {
        self.flags & all == all
    }

    pub(super) const fn set(&mut self, flags: u8) {
        self.flags |= flags;
    }

    pub(super) const fn clear(&mut self, flags: u8) {
        self.flags &= !flags;
    }

    pub(super) const fn set_class(&mut self, class: Class, is_by_port: bool) {
        self.class = class.number();
        self.clear(flags::BY_PORT);
        if is_by_port {
            self.set(flags::BY_PORT);
        }
    }

    /// The payload is TLS, HTTP or QUIC: a connection to an unknown port is of the Web.
    pub(super) const fn confirm_carrier(&mut self) {
        self.set(flags::CARRIER);
        if matches!(self.class(), Class::Unknown) {
            self.set_class(Class::Web, false);
        }
    }

    /// A client's SYN has this sequence number.
    pub(super) const fn begin_stream(&mut self, sequence: u32) {
        self.start = sequence.wrapping_add(1).to_be_bytes();
        self.set(flags::HAS_START);
    }

    /// The sequence number of the client's first byte.
    pub(super) const fn start(&self) -> Option<u32> {
        if self.has(flags::HAS_START) { Some(u32::from_be_bytes(self.start)) } else { None }
    }

    /// What other nodes must know: all but how much was inspected.
    pub(super) const fn replicated(&self) -> (u8, u8, Option<u32>) {
        if self.is_settled() {
            (self.class, self.flags & !(INSPECTION | flags::HAS_START), None)
        } else {
            (self.class, self.flags & !INSPECTION, self.start())
        }
    }
}

impl FlowState for ClassState {
    const ATTRIBUTE: u16 = state_attribute::CLASSIFIER;

    fn encode(&self, out: &mut Vec<u8>) {
        let (class, flags, start) = self.replicated();
        if (class, flags) != (0, 0) {
            tlv::put_fixed::<8>(out, attribute::CLASS, 2, |bytes| bytes[4..6].copy_from_slice(&[class, flags]));
        }
        if let Some(start) = start {
            tlv::put_fixed::<8>(out, attribute::START, 4, |bytes| bytes[4..].copy_from_slice(&start.to_be_bytes()));
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        let mut has_start = false;
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            match kind {
                attribute::CLASS => {
                    let &[class, flags] = value else { return Err(TlvError::ValueSize(kind)) };
                    state.class = Class::from_number(class).number();
                    // The first reply that another node sees is not the server's first one.
                    state.flags = (flags & !flags::CLIENT_READ) | flags::REPLY_READ;
                }
                attribute::START => {
                    state.start = value.try_into().map_err(|_| TlvError::ValueSize(kind))?;
                    has_start = true;
                }
                _ => {}
            }
        }
        if !has_start {
            state.clear(flags::HAS_START);
        }
        Ok(state)
    }
}
