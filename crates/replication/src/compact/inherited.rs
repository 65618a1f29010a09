//! Inherited filters: a node re-advertises the filter of a dead one.
//!
//! After a take-over, connections are restored as their packets arrive. Those that have sent nothing yet are only in the dead node's
//! filter, which the new standby has never received, or has lost by its restart. So the active node re-advertises that filter, with its
//! original hash key, in a stream beside its own, and removes the entries of restored connections where each has its own.

use filters::{Secret, Shape};
use flow::{NodeId, Tuple};

use super::config::{CompactConfig, CompactConfigError, Representation, UpdateRule};
use super::held::{Held, Known};
use super::incoming::Incoming;
use super::receiver::CompactReceiver;
use super::sender::CompactSender;
use super::source::Source;
use super::wire::Announcement;

/// Share of the budget for each inherited filter: one part in so many. Updates of live connections have priority.
const BUDGET_PART: u64 = 4;

/// The last filter of a dead node.
pub struct InheritedFilter {
    announcement: Announcement,
    held: Held,
}

impl InheritedFilter {
    pub(super) const fn shape(&self) -> Shape {
        self.announcement.shape
    }
}

impl CompactReceiver {
    /// Identifies the last filter of the peer; `None`: there is none, or it is empty.
    #[must_use]
    pub fn inherited_epoch(&self) -> Option<u64> {
        let incoming = self.received()?;
        (incoming.held.occupied() > 0).then(|| incoming.announcement.epoch())
    }

    /// The last whole filter, or the part of the first one that has arrived.
    fn received(&self) -> Option<&Incoming> {
        self.current.as_ref().or(self.staging.as_ref())
    }

    /// A copy of the last filter of the peer, to be re-advertised.
    #[must_use]
    pub fn inherited(&self) -> Option<InheritedFilter> {
        let incoming = self.received()?;
        let mut held = Held::new(incoming.announcement.shape).ok()?;
        for (index, word) in (0..).zip(incoming.held.memory().words()) {
            if *word != 0 && held.admits(index, *word) {
                held.put(index, *word);
            }
        }
        Some(InheritedFilter { announcement: incoming.announcement, held })
    }
}

impl CompactSender {
    /// Re-advertises `inherited` to these nodes, with the datagram size and a part of the budget of this node's own stream.
    ///
    /// # Errors
    /// There are too many peers.
    pub fn of_inherited(
        inherited: InheritedFilter,
        own: &CompactConfig,
        peers: &[NodeId],
    ) -> Result<Self, CompactConfigError> {
        let Announcement { representation, symbols, secret, .. } = inherited.announcement;
        let config = CompactConfig {
            representation,
            symbols,
            secret,
            update: UpdateRule::Immediate { batch: CompactConfig::BATCH_USUAL, establishment_at_once: false },
            budget_bytes_per_second: own
                .budget_bytes_per_second
                .map(|budget| (budget / BUDGET_PART).max(own.datagram_bytes_max as u64)),
            ..*own
        };
        let shape = inherited.shape();
        let source = Source::inherited(Secret::new(secret), representation, inherited.held);
        Self::with_source(config, shape, source, peers)
    }

    /// Identifies this filter among all others.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.common().epoch
    }

    /// Upper bound of the entries of an inherited filter. Reads all of it.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.source.inherited_filter().map_or(0, |(_, held)| held.occupied())
    }

    /// How the filter represents connections.
    #[must_use]
    pub const fn representation(&self) -> Representation {
        self.config().representation
    }

    /// The entry of a connection in an inherited filter.
    #[must_use]
    pub fn lookup_inherited(&self, original: &Tuple) -> Option<Known> {
        let (representation, held) = self.source.inherited_filter()?;
        held.lookup(representation, self.source.secret(), original)
    }

    /// Removes a restored connection from an inherited filter, if it has its own entry there.
    pub fn take_inherited(&mut self, original: &Tuple) {
        self.source.take_inherited(original);
    }
}
