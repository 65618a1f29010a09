//! Connections and expectations as conntrackd's messages carry them: a run of attributes.
//!
//! An attribute is a length (u16, its own four bytes included, padding not), a type (u16) and a value, padded to four bytes;
//! all big-endian. What conntrackd has no words for is not written but refused ([`EncodeError`]); what is read and cannot be, or is
//! not known, makes the one message useless ([`ObjectError`]), as it would there.

mod attribute;
mod connection;
mod expectation;
#[cfg(test)]
mod tests;

pub use attribute::ATTRIBUTE_HEADER_BYTES;
pub use connection::{decode, encode};
pub use expectation::{decode as decode_expectation, encode as encode_expectation};

/// The longest object, in bytes: an expected connection of IPv6 with everything that can be said of one.
pub const OBJECT_BYTES_MAX: usize = 512;

/// Why an object cannot be read: the peer's fault, or it is newer than this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ObjectError {
    /// An attribute claims more bytes than there are, or fewer than its own header.
    #[error("an attribute's length does not fit the bytes that are there")]
    Length,
    /// An attribute has a value of a size that it cannot have.
    #[error("attribute {0} has a value of a wrong size")]
    ValueSize(u16),
    /// An attribute has a value that it cannot have, or that does not go with the others.
    #[error("attribute {0} has a value that it cannot have")]
    Value(u16),
    /// A needed attribute is not there.
    #[error("attribute {0} is missing")]
    Missing(u16),
    /// An attribute that this node knows nothing of.
    #[error("attribute {0} is not known")]
    Unknown(u16),
}

/// Why a connection or an expectation is not replicated: conntrackd's format cannot express it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// Addresses of different families in one tuple or object.
    #[error("its addresses are of different families")]
    Families,
    /// The reply is not the original's inverse with other addresses and ports.
    #[error("its reply cannot be derived from its original")]
    Reply,
    /// A protocol that conntrackd's format does not cover, or a state of another protocol.
    #[error("its protocol's state is of another protocol")]
    ProtocolInfo,
    /// A zone of one direction only.
    #[error("its zone is of one direction only")]
    ZoneDirection,
}
