//! A filter that a node tells on for one that is gone.
//!
//! A node that has taken over makes connections again as their packets come. Those that have sent nothing yet are in no filter
//! but the one that the gone node told, which whoever stands by for the new one has never heard, or has lost with its own
//! restart. So the new one tells it on as it was, under the secret that it was told with, in a stream beside its own. Of a
//! connection that is back its entry is taken out, where it has one of its own.

use filters::{Secret, Shape};
use flow::{NodeId, Tuple};

use super::config::{CompactConfig, CompactConfigError, Representation, UpdateRule};
use super::hearing::Hearing;
use super::held::{Held, Known};
use super::receiver::CompactReceiver;
use super::sender::CompactSender;
use super::source::Source;
use super::wire::Announcement;

/// Filters of gone nodes that a node tells on at the same time: a connection may be idle through as many failovers, and one
/// more.
pub const HEIRLOOMS_MAX: usize = 3;
/// A budget's part that they may take, each: what is told of living connections goes before.
const BUDGET_PART: u64 = 4;

/// A filter as a node that is gone told it last.
pub struct Heirloom {
    announcement: Announcement,
    held: Held,
}

impl Heirloom {
    pub(super) const fn shape(&self) -> Shape {
        self.announcement.shape
    }
}

impl CompactReceiver {
    /// What distinguishes the last filter that the peer sent from all others; `None`: there is none, or nothing is in it.
    #[must_use]
    pub fn heirloom_epoch(&self) -> Option<u64> {
        let hearing = self.received()?;
        (hearing.held.occupied() > 0).then(|| hearing.announcement.epoch())
    }

    /// The last filter that was received whole; of a peer that was gone before its first one was, what was received of that.
    fn received(&self) -> Option<&Hearing> {
        self.current.as_ref().or(self.staging.as_ref())
    }

    /// A copy of the last filter that the peer sent, to be sent on.
    #[must_use]
    pub fn heirloom(&self) -> Option<Heirloom> {
        let hearing = self.received()?;
        let mut held = Held::new(hearing.announcement.shape).ok()?;
        for (index, word) in (0..).zip(hearing.held.memory().words()) {
            if *word != 0 && held.admits(index, *word) {
                held.put(index, *word);
            }
        }
        Some(Heirloom { announcement: hearing.announcement, held })
    }
}

impl CompactSender {
    /// Tells `heirloom` on to these nodes, with the datagrams and a part of the budget of this node's own stream.
    ///
    /// # Errors
    /// There are too many peers.
    pub fn of_heirloom(heirloom: Heirloom, own: &CompactConfig, peers: &[NodeId]) -> Result<Self, CompactConfigError> {
        let Announcement { representation, symbols, secret, .. } = heirloom.announcement;
        let config = CompactConfig {
            representation,
            symbols,
            secret,
            update: UpdateRule::Immediate { batch: CompactConfig::BATCH_USUAL },
            budget_bytes_per_second: own
                .budget_bytes_per_second
                .map(|budget| (budget / BUDGET_PART).max(own.datagram_bytes_max as u64)),
            ..*own
        };
        let shape = heirloom.shape();
        let source = Source::inherited(Secret::new(secret), representation, heirloom.held);
        Self::with_source(config, shape, source, peers)
    }

    /// What tells this filter from all others.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.common().epoch
    }

    /// Entries that there can be in a filter that is told on: counted, which takes as long as reading it.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.source.inherited_filter().map_or(0, |(_, held)| held.occupied())
    }

    /// How a filter that is told on represents connections.
    #[must_use]
    pub const fn representation(&self) -> Representation {
        self.config().representation
    }

    /// What is known of a connection in a filter that is told on.
    #[must_use]
    pub fn lookup_inherited(&self, original: &Tuple) -> Option<Known> {
        let (representation, held) = self.source.inherited_filter()?;
        held.lookup(representation, self.source.secret(), original)
    }

    /// The connection is back: where it has an entry of its own in a filter that is told on, it is taken out.
    pub fn take_inherited(&mut self, original: &Tuple) {
        self.source.take_inherited(original);
    }
}
