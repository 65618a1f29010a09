//! SYN cookies: the state of a half-open connection in the numbers of the SYN/ACK (RFC 4987 section 3.6), so that it costs no memory
//! and any node of the cluster can accept the client's ACK.
//!
//! ```text
//!   sequence number    31    29 28    26 25                                                   0
//!                     | epoch  |  MSS   |  hash of tuple, client's number, epoch, MSS, options |
//!
//!   timestamp value    31                                                 5   4  3             0
//!                     | time in ms, in steps of 32                         |SACK| window scale  |
//! ```
//!
//! The client returns the sequence number in each acknowledgement, and the timestamp value in the echo reply (RFC 7323). What does not
//! fit the sequence number travels in the timestamp; without timestamps a connection has neither window scaling nor SACK. All options
//! are covered by the hash: nobody can change them.
//!
//! **Time.** An epoch is 65.5 s of the clock since 1970, which the nodes of a cluster share closely enough. A cookie is accepted in its
//! epoch, in the next one, and in the one before (by a node whose clock is late): for 65 to 131 s.
//!
//! **Keys.** The hash is SipHash-2-4 (Aumasson and Bernstein) under a key of its own for each 64 epochs (70 minutes), derived from the
//! cluster's key. Where the cluster has several keys, the first makes cookies, and all are accepted: so a key can be replaced.

use core::fmt;
use core::hash::Hasher;
use core::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use flow::Tuple;
use siphasher::sip::SipHasher24;
use zerocopy::IntoBytes;

/// Keys under which cookies are accepted.
pub const COOKIE_KEYS_MAX: usize = 4;
/// Milliseconds of an epoch, as a power of two.
const EPOCH_MS_LOG2: u32 = 16;
/// Epochs under one derived key, as a power of two.
const KEY_EPOCHS_LOG2: u32 = 6;
/// The bits of an epoch in a cookie.
const EPOCH_BITS: u32 = 3;
/// The bits of the hash in a cookie.
const HASH_BITS: u32 = 26;
const MSS_BITS: u32 = 3;
const _: () = assert!(EPOCH_BITS + MSS_BITS + HASH_BITS == 32);

/// The maximum segment sizes that a cookie can express, in bytes. A client's is rounded down: a server must not send more.
pub const SEGMENT_SIZES_BYTES: [u16; 1 << MSS_BITS] = [216, 536, 1220, 1360, 1440, 1452, 1460, 8960];

/// The bits of a timestamp that carry options.
const TIMESTAMP_BITS: u32 = 5;
const TIMESTAMP_MASK: u32 = (1 << TIMESTAMP_BITS) - 1;
const SACK_BIT: u32 = 1 << 4;
/// A window scale that stands for none.
const NO_SCALE: u32 = 15;

/// How long after its SYN/ACK a cookie may still be accepted, in milliseconds.
pub const COOKIE_LIFETIME_MS_MAX: u64 = 2 << EPOCH_MS_LOG2;

/// A secret of the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CookieKey(pub [u64; 2]);

impl fmt::Debug for CookieKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CookieKey(secret)")
    }
}

impl CookieKey {
    /// The key of a period.
    fn of_period(self, period: u64) -> [u64; 2] {
        [0, 1].map(|half| {
            let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
            hasher.write(b"period");
            hasher.write_u64(period.to_be());
            hasher.write_u8(half);
            hasher.finish()
        })
    }
}

/// A secret of the cluster, with its key of the period that was used last: to derive one costs twice as much as to hash a SYN.
///
/// Workers share it without a lock. The first word checks the other two: a mixture of two periods does not pass, and the key is derived.
#[derive(Debug)]
struct DerivingKey {
    key: CookieKey,
    derived: [AtomicU64; 3],
}

impl DerivingKey {
    const fn new(key: CookieKey) -> Self {
        Self { key, derived: [const { AtomicU64::new(0) }; 3] }
    }

    /// The key of a period.
    fn of_period(&self, period: u64) -> [u64; 2] {
        let [check, first, second] = [0, 1, 2].map(|word| self.derived[word].load(Ordering::Relaxed));
        // Words that are all 0, as in the beginning, pass for no period.
        if check == !(period ^ first ^ second) {
            return [first, second];
        }
        let [first, second] = self.key.of_period(period);
        for (word, value) in self.derived.iter().zip([!(period ^ first ^ second), first, second]) {
            word.store(value, Ordering::Relaxed);
        }
        [first, second]
    }
}

impl Clone for DerivingKey {
    fn clone(&self) -> Self {
        Self::new(self.key)
    }
}

impl PartialEq for DerivingKey {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for DerivingKey {}

/// What a client and the proxy have agreed on, as far as a cookie shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientOptions {
    /// The index of the maximum segment size that the client accepts in [`SEGMENT_SIZES_BYTES`].
    pub segment_size_index: u8,
    /// The shift of the windows that the client advertises; `None` without window scaling.
    pub window_scale: Option<u8>,
    /// The client permits selective acknowledgements.
    pub sack_permitted: bool,
    /// Segments carry timestamps.
    pub timestamps: bool,
}

impl ClientOptions {
    /// The index of the largest size that is not above `bytes`; the smallest for less than all.
    #[must_use]
    pub fn index_of_segment_size(bytes: u16) -> u8 {
        SEGMENT_SIZES_BYTES.iter().rposition(|size| *size <= bytes).unwrap_or(0) as u8
    }

    /// The maximum segment size that the client accepts, in bytes.
    #[must_use]
    pub fn segment_size_bytes(&self) -> u16 {
        SEGMENT_SIZES_BYTES[usize::from(self.segment_size_index) % SEGMENT_SIZES_BYTES.len()]
    }

    /// The options that need the timestamp, as its low bits.
    fn in_timestamp(&self) -> u32 {
        let scale = self.window_scale.map_or(NO_SCALE, u32::from);
        if self.sack_permitted { SACK_BIT | scale } else { scale }
    }

    fn of(segment_size_index: u32, timestamp: Option<u32>) -> Self {
        let bits = timestamp.map_or(NO_SCALE, |value| value & TIMESTAMP_MASK);
        let scale = bits & !SACK_BIT;
        Self {
            segment_size_index: segment_size_index as u8,
            window_scale: (scale != NO_SCALE).then_some(scale as u8),
            sack_permitted: bits & SACK_BIT != 0,
            timestamps: timestamp.is_some(),
        }
    }
}

/// The numbers of a SYN/ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    /// The sequence number.
    pub sequence: u32,
    /// The timestamp value; `None` without timestamps.
    pub timestamp: Option<u32>,
}

/// Why a cookie is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// It is of another epoch. Whether it was ever made is not checked.
    Expired,
    /// It was not made under these keys for this connection and these options.
    Invalid,
}

/// The keys of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CookieKeys(ArrayVec<DerivingKey, COOKIE_KEYS_MAX>);

impl CookieKeys {
    /// Cookies are made under `first`. Of `others`, the first [`COOKIE_KEYS_MAX`] − 1 are accepted.
    #[must_use]
    pub fn new(first: CookieKey, others: impl IntoIterator<Item = CookieKey>) -> Self {
        Self(core::iter::once(first).chain(others).take(COOKIE_KEYS_MAX).map(DerivingKey::new).collect())
    }

    /// The cookie for a client's SYN with `tuple` and the number `client_sequence`. Options that need timestamps are left out of one
    /// without. `unix_ms` is the time since 1970.
    #[must_use]
    pub fn make(&self, unix_ms: u64, tuple: &Tuple, client_sequence: u32, options: &ClientOptions) -> Cookie {
        let epoch = unix_ms >> EPOCH_MS_LOG2;
        let timestamp = options.timestamps.then_some((unix_ms as u32) & !TIMESTAMP_MASK | options.in_timestamp());
        let segment_size = u32::from(options.segment_size_index);
        let kept = ClientOptions::of(segment_size, timestamp);
        let hash = hash(&self.0[0], epoch, tuple, client_sequence, &kept);
        let sequence = ((epoch as u32) << (32 - EPOCH_BITS)) | (segment_size << HASH_BITS) | hash;
        Cookie { sequence, timestamp }
    }

    /// The options of the client that acknowledges a cookie.
    ///
    /// # Errors
    /// [`Rejection`].
    pub fn verify(
        &self,
        unix_ms: u64,
        tuple: &Tuple,
        client_sequence: u32,
        cookie: Cookie,
    ) -> Result<ClientOptions, Rejection> {
        let now = unix_ms >> EPOCH_MS_LOG2;
        let epoch = epoch_of(now, cookie.sequence).ok_or(Rejection::Expired)?;
        let options = ClientOptions::of(cookie.sequence >> HASH_BITS & ((1 << MSS_BITS) - 1), cookie.timestamp);
        let expected = cookie.sequence & ((1 << HASH_BITS) - 1);
        let is_made_under = |key: &DerivingKey| hash(key, epoch, tuple, client_sequence, &options) == expected;
        if self.0.iter().any(is_made_under) { Ok(options) } else { Err(Rejection::Invalid) }
    }
}

/// The epoch that a cookie names, if it is near enough to `now`.
fn epoch_of(now: u64, sequence: u32) -> Option<u64> {
    let named = u64::from(sequence >> (32 - EPOCH_BITS));
    [now, now.wrapping_sub(1), now.wrapping_add(1)].into_iter().find(|epoch| epoch % (1 << EPOCH_BITS) == named)
}

fn hash(key: &DerivingKey, epoch: u64, tuple: &Tuple, client_sequence: u32, options: &ClientOptions) -> u32 {
    let [first, second] = key.of_period(epoch >> KEY_EPOCHS_LOG2);
    let mut hasher = SipHasher24::new_with_keys(first, second);
    hasher.write(tuple.as_bytes());
    let bits = u64::from(options.in_timestamp()) << 16
        | u64::from(options.timestamps) << 8
        | u64::from(options.segment_size_index);
    hasher.write_u64((u64::from(client_sequence) << 32 | bits).to_be());
    hasher.write_u64(epoch.to_be());
    (hasher.finish() >> (64 - HASH_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tcp;

    const NOW_MS: u64 = 1_800_000_000_000;
    const EPOCH_MS: u64 = 1 << EPOCH_MS_LOG2;

    fn keys(secret: u64) -> CookieKeys {
        CookieKeys::new(CookieKey([secret, !secret]), [])
    }

    fn options() -> impl Strategy<Value = ClientOptions> {
        let size = 0u8..SEGMENT_SIZES_BYTES.len() as u8;
        (size, proptest::option::of(0u8..=14), any::<bool>(), any::<bool>()).prop_map(
            |(segment_size_index, window_scale, sack_permitted, timestamps)| ClientOptions {
                segment_size_index,
                window_scale: window_scale.filter(|_| timestamps),
                sack_permitted: sack_permitted && timestamps,
                timestamps,
            },
        )
    }

    #[test]
    fn the_key_of_a_period_is_the_same_whichever_was_used_before() {
        let (key, other) = (CookieKey([3, 4]), CookieKey([5, 6]));
        let used = DerivingKey::new(key);
        for period in [0, 7, 7, 8, 7, u64::MAX >> 22] {
            assert_eq!(used.of_period(period), key.of_period(period), "{period}");
            assert_ne!(used.of_period(period), other.of_period(period));
        }
        // As if another worker had written a part of the next period's words.
        let [first, _] = key.of_period(9);
        used.of_period(8);
        used.derived[1].store(first, Ordering::Relaxed);
        assert_eq!(used.of_period(8), key.of_period(8));
    }

    #[test]
    fn every_combination_of_options_comes_back() {
        let (keys, tuple) = (keys(1), tcp("10.0.0.2:4000", "192.0.2.1:80"));
        for segment_size_index in 0..SEGMENT_SIZES_BYTES.len() as u8 {
            for scale in 0..=15 {
                for (sack_permitted, timestamps) in [(false, true), (true, true), (false, false)] {
                    let window_scale = Some(scale).filter(|scale| *scale <= 14 && timestamps);
                    let sent = ClientOptions { segment_size_index, window_scale, sack_permitted, timestamps };
                    let cookie = keys.make(NOW_MS, &tuple, 77, &sent);
                    assert_eq!(keys.verify(NOW_MS, &tuple, 77, cookie), Ok(sent));
                }
            }
        }
    }

    #[test]
    fn without_timestamps_there_is_no_scaling_and_no_sack() {
        let tuple = tcp("10.0.0.2:4000", "192.0.2.1:80");
        let sent =
            ClientOptions { segment_size_index: 3, window_scale: Some(7), sack_permitted: true, timestamps: false };
        let cookie = keys(1).make(NOW_MS, &tuple, 77, &sent);
        let kept = ClientOptions { window_scale: None, sack_permitted: false, ..sent };
        assert_eq!(keys(1).verify(NOW_MS, &tuple, 77, cookie), Ok(kept));
    }

    #[test]
    fn segment_sizes_are_rounded_down() {
        let size = |bytes| {
            ClientOptions {
                segment_size_index: ClientOptions::index_of_segment_size(bytes),
                ..ClientOptions::default()
            }
            .segment_size_bytes()
        };
        assert_eq!(
            [100, 216, 535, 536, 1459, 1460, 8959, 65535].map(size),
            [216, 216, 216, 536, 1452, 1460, 1460, 8960]
        );
    }

    #[test]
    fn a_cookie_lasts_for_its_epoch_and_the_next() {
        let (keys, tuple) = (keys(1), tcp("[2001:db8::2]:4000", "[2001:db8::1]:80"));
        let begin = NOW_MS / EPOCH_MS * EPOCH_MS;
        let cookie = keys.make(begin, &tuple, 77, &ClientOptions::default());
        for (after_ms, expected) in [
            (0, Ok(())),
            (EPOCH_MS, Ok(())),
            (COOKIE_LIFETIME_MS_MAX - 1, Ok(())),
            (COOKIE_LIFETIME_MS_MAX, Err(Rejection::Expired)),
            (7 * EPOCH_MS - 1, Err(Rejection::Expired)),
            // Another cookie would have this epoch's number by now.
            (8 * EPOCH_MS, Err(Rejection::Invalid)),
        ] {
            assert_eq!(keys.verify(begin + after_ms, &tuple, 77, cookie).map(|_| ()), expected, "after {after_ms} ms");
        }
        assert!(keys.verify(begin - 1, &tuple, 77, cookie).is_ok(), "a node whose clock is late accepts it");
    }

    #[test]
    fn keys_of_two_periods_overlap() {
        let (keys, tuple) = (keys(1), tcp("10.0.0.2:4000", "192.0.2.1:80"));
        let period_ms = EPOCH_MS << KEY_EPOCHS_LOG2;
        let boundary = NOW_MS / period_ms * period_ms;
        let cookie = keys.make(boundary - 1, &tuple, 77, &ClientOptions::default());
        assert!(keys.verify(boundary + 1, &tuple, 77, cookie).is_ok());
        assert_ne!(CookieKey([1, 2]).of_period(1), CookieKey([1, 2]).of_period(2));
    }

    #[test]
    fn a_replaced_key_is_accepted_while_it_is_listed() {
        let (old, new) = (CookieKey([1, 2]), CookieKey([3, 4]));
        let tuple = tcp("10.0.0.2:4000", "192.0.2.1:80");
        let cookie = CookieKeys::new(old, []).make(NOW_MS, &tuple, 77, &ClientOptions::default());
        assert!(CookieKeys::new(new, [old]).verify(NOW_MS, &tuple, 77, cookie).is_ok());
        assert_eq!(CookieKeys::new(new, []).verify(NOW_MS, &tuple, 77, cookie), Err(Rejection::Invalid));
    }

    #[test]
    fn of_many_forged_cookies_hardly_one_is_accepted() {
        let (keys, tuple) = (keys(1), tcp("10.0.0.2:4000", "192.0.2.1:80"));
        let forged = |number: u32| number.wrapping_mul(0x9e37_79b9);
        let accepted = (0..200_000).filter(|number| {
            keys.verify(NOW_MS, &tuple, 77, Cookie { sequence: forged(*number), timestamp: None }).is_ok()
        });
        // Expected: 3 of 8 epochs, 2^-26 each, 0.001 in all.
        assert!(accepted.count() <= 1);
    }

    proptest! {
        #[test]
        fn cookies_of_any_client_come_back(
            options in options(), client_sequence: u32, unix_ms in 0u64..1 << 45, after_ms in 0u64..EPOCH_MS, secret: u64,
        ) {
            let (keys, tuple) = (keys(secret), tcp("10.0.0.2:4000", "192.0.2.1:80"));
            let cookie = keys.make(unix_ms, &tuple, client_sequence, &options);
            prop_assert_eq!(keys.verify(unix_ms + after_ms, &tuple, client_sequence, cookie), Ok(options));
            prop_assert_eq!(cookie.timestamp.is_some(), options.timestamps);
            prop_assert!(cookie.timestamp.is_none_or(|value| (unix_ms as u32).wrapping_sub(value & !31) < 32));
        }

        #[test]
        fn a_changed_cookie_is_rejected(options in options(), client_sequence: u32, bit in 0u32..32, what in 0u8..5) {
            let (keys, tuple) = (keys(9), tcp("10.0.0.2:4000", "192.0.2.1:80"));
            let mut cookie = keys.make(NOW_MS, &tuple, client_sequence, &options);
            let (mut changed, mut sequence) = (tuple, client_sequence);
            match what {
                0 => cookie.sequence ^= 1 << bit,
                1 => sequence ^= 1 << bit,
                2 => changed.source_port ^= 1 << (bit % 16),
                3 => changed.destination[12 + bit as usize % 4] ^= 1,
                _ => cookie.timestamp = match cookie.timestamp {
                    Some(value) => Some(value ^ 1 << (bit % TIMESTAMP_BITS)),
                    None => Some(0),
                },
            }
            prop_assert!(keys.verify(NOW_MS, &changed, sequence, cookie).is_err());
        }
    }
}
