//! What a connection is called in a filter.

use filters::{KeyHash, Secret};
use flow::Tuple;

/// A tuple's bytes, the same on every machine: addresses, ports in network order, protocol, version, discriminator.
pub(super) fn of_connection(secret: &Secret, tuple: &Tuple) -> KeyHash {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&tuple.source);
    bytes[16..32].copy_from_slice(&tuple.destination);
    bytes[32..34].copy_from_slice(&tuple.source_port.to_be_bytes());
    bytes[34..36].copy_from_slice(&tuple.destination_port.to_be_bytes());
    bytes[36..38].copy_from_slice(&[tuple.protocol, tuple.version]);
    bytes[38..].copy_from_slice(&tuple.discriminator.to_be_bytes());
    secret.hash(&bytes)
}

/// The two hosts and their protocol, without ports (MLCBF, section 2.2.1 C).
pub(super) fn of_hosts(secret: &Secret, tuple: &Tuple) -> KeyHash {
    let mut bytes = [0; 34];
    bytes[..16].copy_from_slice(&tuple.source);
    bytes[16..32].copy_from_slice(&tuple.destination);
    bytes[32..].copy_from_slice(&[tuple.protocol, tuple.version]);
    secret.hash(&bytes)
}
