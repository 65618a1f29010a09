//! Routing of QUIC packets by connection identifiers that name their server (draft-ietf-quic-load-balancers, unencrypted).
//!
//! ```text
//!   first octet              server id                nonce
//!   | config 3 | length 5 |  | server_id_bytes |      | nonce_bytes |
//! ```
//!
//! A client that changes its address or port has the identifier that its server gave it, so the packet names the server. The record of the
//! connection decides for known tuples; an identifier counts only where a new tuple begins. What names no server is balanced as any
//! datagram: a client chooses the identifier of its first packets at random.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The highest number of a configuration: 7 marks identifiers that name no server.
pub const QUIC_CONFIG_MAX: u8 = 6;
/// The longest identifier of a server, in bytes.
pub const SERVER_ID_BYTES_MAX: u8 = 15;
/// The lengths of the nonce, in bytes.
pub const NONCE_BYTES: core::ops::RangeInclusive<u8> = 4..=18;
/// The most that server identifier and nonce have together, in bytes: identifiers of version 1 have 20.
pub const ID_AND_NONCE_BYTES_MAX: u8 = 19;

/// The high bit of a long header (RFC 8999 section 5.1).
const LONG_HEADER: u8 = 0x80;
/// Bits of the first octet behind the number of the configuration.
const LENGTH_BITS: u32 = 5;
/// Where the length of the destination's identifier lies in a long header, behind first byte and version.
const LONG_LENGTH_AT: usize = 5;

/// How the connection identifiers of a service name its backends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuicConfig {
    /// The number in the first three bits of identifiers, 0 to [`QUIC_CONFIG_MAX`] (config rotation codepoint).
    pub config: u8,
    /// The length of server identifiers, 1 to [`SERVER_ID_BYTES_MAX`].
    pub server_id_bytes: u8,
    /// The length of what follows them, of [`NONCE_BYTES`].
    pub nonce_bytes: u8,
    /// The identifier of each backend, in the order of the backends.
    pub server_ids: Vec<Vec<u8>>,
}

impl QuicConfig {
    /// Whether the lengths are within their limits, and `backends` backends have distinct identifiers of that length.
    #[must_use]
    pub fn is_sound(&self, backends: usize) -> bool {
        let length = usize::from(self.server_id_bytes);
        let ids: alloc::collections::BTreeSet<&[u8]> = self.server_ids.iter().map(Vec::as_slice).collect();
        self.config <= QUIC_CONFIG_MAX
            && (1..=SERVER_ID_BYTES_MAX).contains(&self.server_id_bytes)
            && NONCE_BYTES.contains(&self.nonce_bytes)
            && self.server_id_bytes + self.nonce_bytes <= ID_AND_NONCE_BYTES_MAX
            && ids.len() == backends
            && self.server_ids.len() == backends
            && ids.iter().all(|id| id.len() == length)
    }

    /// The position of the backend that a datagram names, as the load balancer finds it.
    #[must_use]
    pub fn backend_of(&self, datagram: &[u8]) -> Option<usize> {
        QuicRoutes::new(self).named(datagram).map(|named| usize::from(named.backend))
    }
}

/// The backend that a packet names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Named {
    /// Its position.
    pub(super) backend: u16,
    /// The packet has a long header: of a handshake, whose client may have chosen the identifier at random.
    pub(super) is_handshake: bool,
}

/// The same, to be looked up.
#[derive(Debug)]
pub(super) struct QuicRoutes {
    config: u8,
    server_id_bytes: usize,
    identifier_bytes: usize,
    backends: BTreeMap<Vec<u8>, u16>,
}

impl QuicRoutes {
    pub(super) fn new(config: &QuicConfig) -> Self {
        let server_id_bytes = usize::from(config.server_id_bytes);
        Self {
            config: config.config,
            server_id_bytes,
            identifier_bytes: 1 + server_id_bytes + usize::from(config.nonce_bytes),
            backends: config.server_ids.iter().cloned().zip(0..).collect(),
        }
    }

    /// The backend that the first packet of a datagram names. `None`: it has no identifier of this configuration, or that of no backend.
    pub(super) fn named(&self, datagram: &[u8]) -> Option<Named> {
        let is_handshake = datagram.first()? & LONG_HEADER != 0;
        let identifier = if is_handshake {
            let length = usize::from(*datagram.get(LONG_LENGTH_AT)?);
            datagram.get(LONG_LENGTH_AT + 1..)?.get(..length)?
        } else {
            datagram.get(1..)?.get(..self.identifier_bytes)?
        };
        if identifier.len() < self.identifier_bytes || identifier[0] >> LENGTH_BITS != self.config {
            return None;
        }
        let backend = *self.backends.get(&identifier[1..=self.server_id_bytes])?;
        Some(Named { backend, is_handshake })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn config() -> QuicConfig {
        QuicConfig { config: 2, server_id_bytes: 2, nonce_bytes: 5, server_ids: vec![vec![0, 1], vec![0xab, 0xcd]] }
    }

    /// An identifier of the draft's plain form.
    fn identifier(config: u8, server: [u8; 2]) -> Vec<u8> {
        [&[config << LENGTH_BITS | 7][..], &server, b"nonce"].concat()
    }

    fn short(identifier: &[u8]) -> Vec<u8> {
        [&[0x40][..], identifier, b"protected"].concat()
    }

    fn long(identifier: &[u8]) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, identifier.len() as u8][..], identifier, &[0], b"protected"].concat()
    }

    #[test]
    fn short_and_long_headers_name_the_backend_of_their_identifier() {
        let routes = QuicRoutes::new(&config());
        for (position, server) in [[0, 1], [0xab, 0xcd]].into_iter().enumerate() {
            let (backend, identifier) = (position as u16, identifier(2, server));
            assert_eq!(routes.named(&short(&identifier)), Some(Named { backend, is_handshake: false }));
            assert_eq!(routes.named(&long(&identifier)), Some(Named { backend, is_handshake: true }));
        }
    }

    #[test]
    fn identifiers_of_other_configurations_servers_or_lengths_name_none() {
        let routes = QuicRoutes::new(&config());
        let unroutable = [identifier(1, [0, 1]), identifier(7, [0, 1]), identifier(2, [0, 2]), vec![]];
        for identifier in unroutable {
            assert_eq!((routes.named(&short(&identifier)), routes.named(&long(&identifier))), (None, None));
        }
        let whole = identifier(2, [0, 1]);
        assert_eq!(routes.named(&long(&whole[..7])), None, "too short");
        assert_eq!((routes.named(&[]), routes.named(&short(&whole)[..8])), (None, None));
        // An identifier may be longer: what follows is the server's.
        assert!(routes.named(&long(&[&whole[..], b"more"].concat())).is_some());
    }

    #[test]
    fn unsound_configurations_are_found() {
        assert!(config().is_sound(2));
        let changed = |change: &dyn Fn(&mut QuicConfig)| {
            let mut config = config();
            change(&mut config);
            config.is_sound(2)
        };
        assert!(!config().is_sound(3));
        assert!(!changed(&|config| config.config = 7));
        assert!(!changed(&|config| config.nonce_bytes = 3));
        assert!(!changed(&|config| config.nonce_bytes = 18));
        assert!(!changed(&|config| config.server_ids[0] = vec![1]));
        assert!(!changed(&|config| config.server_ids[0] = vec![0xab, 0xcd]));
    }

    proptest! {
        #[test]
        fn no_datagram_makes_it_panic(datagram: Vec<u8>) {
            let _ = QuicRoutes::new(&config()).named(&datagram);
        }
    }
}
