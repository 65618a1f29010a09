//! What the gateway draws at random.

use flow::HashKey;
use network_functions::syn_cookie::CookieKey;
use packet_io::random;

/// What is drawn at random when the gateway starts, and stays when its configuration changes.
#[derive(Clone, Copy)]
pub struct Secrets {
    pub(super) hash_key: HashKey,
    pub(super) seed: u64,
    /// A host keeps its port outside across a reload, as NAT and the FTP helper choose by the same key. Sources of rate limits are hashed
    /// by it, too.
    pub(super) nat_key: HashKey,
    pub(super) forwarding_seed: u64,
    /// For SYN cookies where there is no peer.
    pub(super) cookie_key: CookieKey,
}

impl Secrets {
    pub(super) fn draw() -> Self {
        Self {
            hash_key: HashKey([random::number(), random::number()]),
            seed: random::number(),
            nat_key: HashKey([random::number(), random::number()]),
            forwarding_seed: random::number(),
            cookie_key: CookieKey([random::number(), random::number()]),
        }
    }

    /// Those of another worker of the same node. NAT's key they have in common: an inside host is seen under the same outside
    /// address whichever worker its packets come to.
    pub(super) fn of_another_worker(&self) -> Self {
        Self { hash_key: HashKey([random::number(), random::number()]), seed: random::number(), ..*self }
    }

    /// The same each time: for a replay, which has no attackers and is to be repeatable.
    pub const fn known() -> Self {
        Self {
            hash_key: HashKey([1, 2]),
            seed: 3,
            nat_key: HashKey([4, 5]),
            forwarding_seed: 6,
            cookie_key: CookieKey([7, 8]),
        }
    }
}
