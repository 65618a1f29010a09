//! What a node authenticates itself by, and its peers.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flow::NodeId;
use ring::digest;

use super::certificate::Certificates;
use super::secret::{KeyId, PreSharedKey};
use super::wire::Mode;

/// Pre-shared keys that a node may have at once: the one in use, and those before and after it.
pub const PRE_SHARED_KEYS_MAX: usize = 4;

/// Pre-shared keys, certificates, or both: then a peer needs both.
#[derive(Debug)]
pub struct Credentials {
    /// The first is used for what this node begins; any is accepted.
    keys: Vec<PreSharedKey>,
    certificates: Option<Certificates>,
    /// Without keys: one that everybody may know, for the handshake has a place for one.
    public_key: PreSharedKey,
}

/// Why credentials cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CredentialsError {
    /// There is nothing.
    #[error("neither a pre-shared key nor a certificate is given")]
    Nothing,
    /// Too many keys.
    #[error("{0} pre-shared keys are given: at most {PRE_SHARED_KEYS_MAX} are, so remove the oldest")]
    TooManyKeys(usize),
    /// A key is there twice.
    #[error("pre-shared key {0} is given twice: remove one of the two")]
    DuplicateKey(KeyId),
}

impl Credentials {
    /// Credentials of these parts.
    ///
    /// # Errors
    /// There are too few or too many.
    pub fn new(keys: Vec<PreSharedKey>, certificates: Option<Certificates>) -> Result<Self, CredentialsError> {
        if keys.is_empty() && certificates.is_none() {
            return Err(CredentialsError::Nothing);
        }
        if keys.len() > PRE_SHARED_KEYS_MAX {
            return Err(CredentialsError::TooManyKeys(keys.len()));
        }
        for (index, key) in keys.iter().enumerate() {
            if keys[..index].iter().any(|other| other.id() == key.id()) {
                return Err(CredentialsError::DuplicateKey(key.id()));
            }
        }
        let mut public = [0; 32];
        public.copy_from_slice(digest::digest(&digest::SHA256, b"mainstay channel without a pre-shared key").as_ref());
        Ok(Self { keys, certificates, public_key: PreSharedKey::new(public) })
    }

    /// Keys for another purpose, which follow from the pre-shared keys; `None` without pre-shared keys.
    #[must_use]
    pub fn for_purpose(&self, purpose: &[u8]) -> Option<Self> {
        let keys = self.keys.iter().map(|key| key.for_purpose(purpose)).collect();
        Self::new(keys, None).ok()
    }

    /// A number that equal credentials have in common, and that reveals nothing of them.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut context = digest::Context::new(&digest::SHA256);
        for key in &self.keys {
            context.update(b"key");
            context.update(key.bytes());
        }
        if let Some(certificates) = &self.certificates {
            certificates.public_bytes().for_each(|bytes| {
                context.update(b"certificate");
                context.update(bytes);
            });
            certificates.peer_names().for_each(|(id, name)| context.update(format!("{}{name}", id.0).as_bytes()));
        }
        let hash = context.finish();
        hash.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// What they are, for people: keys by their ids.
    #[must_use]
    pub fn describe(&self) -> String {
        match (self.keys.is_empty(), &self.certificates) {
            (true, _) => "certificates".into(),
            (false, None) => format!("pre-shared {}", self.key_names()),
            (false, Some(_)) => format!("certificates and pre-shared {}", self.key_names()),
        }
    }

    /// The ids of the pre-shared keys, in their order.
    pub fn key_ids(&self) -> impl Iterator<Item = KeyId> {
        self.keys.iter().map(PreSharedKey::id)
    }

    /// Whether the id is that of a secret key, not that of the one that everybody knows.
    pub(super) fn is_pre_shared(&self, id: KeyId) -> bool {
        id != self.public_key.id()
    }

    /// Whether there are pre-shared keys: then strangers' handshakes are refused without much work.
    pub(super) const fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    pub(super) const fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    pub(super) const fn mode(&self) -> Mode {
        Mode::new(self.has_keys(), self.certificates.is_some())
    }

    /// The key that this node begins handshakes under.
    pub(super) fn first_key(&self) -> &PreSharedKey {
        self.keys.first().unwrap_or(&self.public_key)
    }

    pub(super) fn key(&self, id: KeyId) -> Option<&PreSharedKey> {
        let keys = self.keys.iter().chain(self.keys.is_empty().then_some(&self.public_key));
        keys.into_iter().find(|key| key.id() == id)
    }

    /// The names of the pre-shared keys, for messages.
    pub(super) fn key_names(&self) -> String {
        let names: Vec<String> = self.key_ids().map(|id| format!("{id}")).collect();
        format!("{} {}", if names.len() == 1 { "key" } else { "keys" }, names.join(", "))
    }

    /// Whether the configuration names the peer, where that is needed.
    #[must_use]
    pub fn knows(&self, peer: NodeId) -> bool {
        self.certificates.as_ref().is_none_or(|certificates| certificates.peer_names().any(|(id, _)| id == peer))
    }
}
