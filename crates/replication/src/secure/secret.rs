//! Secrets that operators give: wiped from memory when they are let go, and never shown.

use alloc::string::String;
use core::fmt;

use ring::digest;
use zeroize::Zeroizing;

/// Bytes of a pre-shared key.
pub const PRE_SHARED_KEY_BYTES: usize = 32;

/// The name of a key that must not be shown: the beginning of its hash. Of a random key that reveals nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId(pub [u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key that both nodes were given.
#[derive(Clone)]
pub struct PreSharedKey {
    bytes: Zeroizing<[u8; PRE_SHARED_KEY_BYTES]>,
    id: KeyId,
}

/// Why a text is not a pre-shared key. It does not show the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it does not hold a key: one line of {} hexadecimal digits, as `mainstay key` writes it", 2 * PRE_SHARED_KEY_BYTES)]
pub struct NotAKey;

impl PreSharedKey {
    /// The key with these bytes, which must have been drawn at random: a password is not a key.
    #[must_use]
    pub fn new(bytes: [u8; PRE_SHARED_KEY_BYTES]) -> Self {
        let bytes = Zeroizing::new(bytes);
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"mainstay pre-shared key");
        context.update(&*bytes);
        let mut id = KeyId([0; 4]);
        id.0.copy_from_slice(&context.finish().as_ref()[..4]);
        Self { bytes, id }
    }

    /// Reads a key as [`PreSharedKey::to_text`] writes it. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// It is something else, or more than one.
    pub fn from_text(text: &str) -> Result<Self, NotAKey> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (Some(line), None) = (lines.next(), lines.next()) else { return Err(NotAKey) };
        if line.len() != 2 * PRE_SHARED_KEY_BYTES || !line.is_ascii() {
            return Err(NotAKey);
        }
        let mut bytes = Zeroizing::new([0; PRE_SHARED_KEY_BYTES]);
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&line[2 * index..2 * index + 2], 16).map_err(|_| NotAKey)?;
        }
        Ok(Self::new(*bytes))
    }

    /// A secret for another purpose, which reveals nothing of the key: the first bytes of a hash of both.
    #[must_use]
    pub fn derive(&self, purpose: &[u8]) -> [u8; 16] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"mainstay derived secret");
        context.update(purpose);
        context.update(&*self.bytes);
        let mut derived = [0; 16];
        derived.copy_from_slice(&context.finish().as_ref()[..16]);
        derived
    }

    /// A key for another purpose, which reveals nothing of this one and cannot be used in its place.
    #[must_use]
    pub fn for_purpose(&self, purpose: &[u8]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"mainstay key for another purpose");
        context.update(purpose);
        context.update(&*self.bytes);
        let mut bytes = Zeroizing::new([0; PRE_SHARED_KEY_BYTES]);
        bytes.copy_from_slice(context.finish().as_ref());
        Self::new(*bytes)
    }

    /// The key as text, with a line's end.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        use core::fmt::Write;
        let mut text = Zeroizing::new(String::with_capacity(2 * PRE_SHARED_KEY_BYTES + 1));
        for byte in self.bytes.iter() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        text
    }

    /// What it is called.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    pub(super) fn bytes(&self) -> &[u8; PRE_SHARED_KEY_BYTES] {
        &self.bytes
    }
}

impl fmt::Debug for PreSharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreSharedKey({})", self.id)
    }
}

/// What a channel's randomness grows from: drawn from the system's generator, or known in a simulation.
#[derive(Clone)]
pub struct Seed(Zeroizing<[u8; 32]>);

impl Seed {
    /// The seed with these bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A seed of its own for each purpose.
    #[must_use]
    pub fn derive(&self, purpose: &[u8]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"mainstay seed");
        context.update(&*self.0);
        context.update(purpose);
        let mut derived = Zeroizing::new([0; 32]);
        derived.copy_from_slice(context.finish().as_ref());
        Self(derived)
    }

    /// The `number`-th block of what grows from it.
    pub(super) fn block(&self, number: u64) -> Zeroizing<[u8; 32]> {
        self.derive(&number.to_be_bytes()).0
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key = PreSharedKey::new([0xa7; 32]);
        let text = format!("# of the pair left and right\n\n{}", *key.to_text());
        assert_eq!(PreSharedKey::from_text(&text).unwrap().bytes(), key.bytes());
    }

    #[test]
    fn other_texts_are_refused_and_not_shown() {
        let key = PreSharedKey::new([0xa7; 32]).to_text();
        for text in ["", "secret", &key[1..], &format!("{}{}", *key, *key), &"ä".repeat(32), &"zz".repeat(32)] {
            let refusal = format!("{}", PreSharedKey::from_text(text).unwrap_err());
            assert!(refusal.contains("64 hexadecimal digits"), "{refusal}");
        }
    }

    #[test]
    fn keys_for_different_purposes_are_different_keys() {
        let key = PreSharedKey::new([0xa7; 32]);
        let (one, other) = (key.for_purpose(b"one"), key.for_purpose(b"other"));
        assert_eq!(one.bytes(), key.for_purpose(b"one").bytes());
        assert!(one.bytes() != other.bytes() && one.id() != key.id() && other.id() != key.id());
    }

    #[test]
    fn secrets_do_not_show_themselves() {
        let key = PreSharedKey::new([0xa7; 32]);
        for shown in [format!("{key:?}"), format!("{:?}", Seed::new([0xa7; 32]))] {
            assert!(!shown.to_lowercase().contains("a7a7") && !shown.contains("167, 167"), "{shown}");
        }
        assert_ne!(key.id(), PreSharedKey::new([0xa8; 32]).id());
    }
}
