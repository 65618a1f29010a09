//! The primitives that Noise is made of here: X25519 by curve25519-dalek, AES-256-GCM and SHA-256 by ring.
//!
//! Snow would bring primitives of its own; these are chosen because randomness comes in as an argument (ring draws its own
//! for X25519) and because ring's AES-GCM is the fastest at hand.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use curve25519_dalek::montgomery::MontgomeryPoint;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use zeroize::{Zeroize, Zeroizing};

use super::secret::Seed;

/// Bytes of an X25519 key.
pub(super) const POINT_BYTES: usize = 32;
/// Bytes that authenticate a ciphertext.
pub(super) const TAG_BYTES: usize = 16;
/// Bytes of a SHA-256 hash.
pub(super) const HASH_BYTES: usize = 32;

/// How often a point was multiplied: what handshakes cost, nearly all of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Multiplications(Arc<AtomicU64>);

impl Multiplications {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The primitives of one handshake, whose randomness grows from `seed`.
pub(super) struct Primitives {
    pub(super) seed: Seed,
    pub(super) multiplications: Multiplications,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom { seed: self.seed.clone(), next: 0 }))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let multiplications = self.multiplications.clone();
        let empty = || X25519 { private: Zeroizing::default(), public: [0; POINT_BYTES], multiplications };
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(empty()) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        let empty = || Sha256(digest::Context::new(&digest::SHA256));
        matches!(choice, HashChoice::SHA256).then(|| Box::new(empty()) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::new(AesGcm(None)) as Box<dyn Cipher>)
    }
}

/// Random bytes that grow from a seed: the seed hashed with a counter.
pub(super) struct SeededRandom {
    pub(super) seed: Seed,
    pub(super) next: u64,
}

impl SeededRandom {
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(HASH_BYTES) {
            let block = self.seed.block(self.next);
            self.next += 1;
            part.copy_from_slice(&block[..part.len()]);
        }
    }

    pub(super) fn number(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        u32::from_be_bytes(bytes)
    }
}

impl Random for SeededRandom {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        self.fill(bytes);
        Ok(())
    }
}

struct X25519 {
    private: Zeroizing<[u8; POINT_BYTES]>,
    public: [u8; POINT_BYTES],
    multiplications: Multiplications,
}

impl X25519 {
    fn derive_public(&mut self) {
        self.multiplications.note();
        self.public = MontgomeryPoint::mul_base_clamped(*self.private).to_bytes();
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        POINT_BYTES
    }

    fn priv_len(&self) -> usize {
        POINT_BYTES
    }

    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.derive_public();
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), snow::Error> {
        random.try_fill_bytes(&mut *self.private)?;
        self.derive_public();
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let point = public.first_chunk::<POINT_BYTES>().ok_or(snow::Error::Dh)?;
        self.multiplications.note();
        let mut shared = MontgomeryPoint(*point).mul_clamped(*self.private).to_bytes();
        // A point of low order makes a result that anybody knows (RFC 7748 section 6.1).
        let is_known = shared == [0; POINT_BYTES];
        out[..POINT_BYTES].copy_from_slice(&shared);
        shared.zeroize();
        if is_known { Err(snow::Error::Dh) } else { Ok(()) }
    }
}

struct Sha256(digest::Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        HASH_BYTES
    }

    fn reset(&mut self) {
        self.0 = digest::Context::new(&digest::SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..HASH_BYTES].copy_from_slice(self.0.clone().finish().as_ref());
    }
}

/// `None` before a key was set: snow never uses it then.
struct AesGcm(Option<LessSafeKey>);

/// The nonce of a counter (Noise revision 34, section 12.4).
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new);
    }

    fn encrypt(&self, counter: u64, associated: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, rest) = out.split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let key = self.0.as_ref().expect("snow sets a key before it encrypts");
        let tag = key
            .seal_in_place_separate_tag(nonce(counter), Aad::from(associated), text)
            .expect("a Noise message is far shorter than what a key may encrypt at once");
        rest[..TAG_BYTES].copy_from_slice(tag.as_ref());
        plaintext.len() + TAG_BYTES
    }

    fn decrypt(
        &self,
        counter: u64,
        associated: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, snow::Error> {
        let key = self.0.as_ref().ok_or(snow::Error::Decrypt)?;
        let length_bytes = ciphertext.len().checked_sub(TAG_BYTES).ok_or(snow::Error::Decrypt)?;
        if let Some(in_place) = out.get_mut(..ciphertext.len()) {
            in_place.copy_from_slice(ciphertext);
            key.open_in_place(nonce(counter), Aad::from(associated), in_place).map_err(|_| snow::Error::Decrypt)?;
        } else {
            // Where the caller has room for the text alone: in handshakes, which are rare.
            let mut copy = ciphertext.to_vec();
            key.open_in_place(nonce(counter), Aad::from(associated), &mut copy).map_err(|_| snow::Error::Decrypt)?;
            out[..length_bytes].copy_from_slice(&copy[..length_bytes]);
        }
        Ok(length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x25519() -> Box<dyn Dh> {
        let primitives = Primitives { seed: Seed::new([7; 32]), multiplications: Multiplications::default() };
        primitives.resolve_dh(&DHChoice::Curve25519).unwrap()
    }

    /// RFC 7748 section 6.1.
    #[test]
    fn x25519_is_that_of_the_rfc() {
        let hex = |text: &str| -> std::vec::Vec<u8> {
            (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
        };
        let mut alice = x25519();
        alice.set(&hex("77076d0a7318a57d3c16c17251b26645df4c2f92ebc099a2a89ec0e4e7b0a52e"));
        let bob_public = hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        let mut bob = x25519();
        bob.set(&hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"));
        assert_eq!(bob.pubkey(), bob_public);
        let (mut one, mut other) = ([0; 32], [0; 32]);
        alice.dh(&bob_public, &mut one).unwrap();
        bob.dh(alice.pubkey(), &mut other).unwrap();
        assert_eq!(one, other);
    }

    #[test]
    fn a_point_of_low_order_is_refused() {
        let mut own = x25519();
        own.generate(&mut SeededRandom { seed: Seed::new([1; 32]), next: 0 }).unwrap();
        let mut out = [0; 32];
        assert!(own.dh(&[0; 32], &mut out).is_err());
        assert!(own.dh(&[1; 31], &mut out).is_err(), "too short");
    }

    #[test]
    fn randomness_is_its_seeds_and_does_not_repeat() {
        let draw = |seed: u8| {
            let mut random = SeededRandom { seed: Seed::new([seed; 32]), next: 0 };
            let mut bytes = [0; 100];
            random.fill(&mut bytes);
            bytes
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1)[..32], draw(1)[32..64]);
    }
}
