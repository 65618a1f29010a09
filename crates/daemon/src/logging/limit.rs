//! A limit on how often each place in the program logs, lest a fault that repeats itself fill the disk and hide what
//! else happens.
//!
//! An entry above its place's limit is counted instead of written; [`PlaceLimits::report_suppressed`] logs their number
//! afterwards. What functions log on behalf of rules passes: each rule has its own limit
//! (`network_functions::log`).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flow::{Instant, RateLimit, TokenBucket};
use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Seconds' worth of entries that may come at once.
const BURST_S: u32 = 5;
/// Places with a limit each. A program has far fewer, fixed when it is compiled; those beyond share a limit.
const PLACES_MAX: usize = 4096;
/// How long entries are kept back before it is said how many they were.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(1);
/// The target of entries that are limited where they are made, or that report the number of suppressed ones.
pub const UNLIMITED_TARGET: &str = "mainstay::unlimited";
/// No entries are kept back.
const NOTHING: u64 = u64::MAX;

/// Where time comes from.
type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// What is known of a place.
struct Place {
    bucket: TokenBucket,
    suppressed: u64,
    metadata: &'static Metadata<'static>,
}

/// The limits of all places.
pub struct PlaceLimits {
    limit: Option<RateLimit>,
    clock: Clock,
    places: Mutex<HashMap<Option<Identifier>, Place>>,
    /// When it is next said how many entries were kept back, in nanoseconds; [`NOTHING`] while none are.
    summary_at_ns: AtomicU64,
}

impl fmt::Debug for PlaceLimits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PlaceLimits").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl PlaceLimits {
    /// Limits of `entries_per_s` for each place, and of five times as many at once; `None` lets all through.
    #[must_use]
    pub fn new(entries_per_s: Option<u32>, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self {
            limit: entries_per_s.map(|per_s| RateLimit::new(per_s, per_s.saturating_mul(BURST_S))),
            clock: Box::new(clock),
            places: Mutex::default(),
            summary_at_ns: AtomicU64::new(NOTHING),
        }
    }

    /// Whether an entry of this place may be written now; counts it if not.
    fn admit(&self, metadata: &'static Metadata<'static>) -> bool {
        let Some(limit) = self.limit.filter(|_| metadata.target() != UNLIMITED_TARGET) else { return true };
        let now = (self.clock)();
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let identifier = metadata.callsite();
        let has_room = places.len() < PLACES_MAX || places.contains_key(&Some(identifier.clone()));
        let place = places.entry(has_room.then_some(identifier));
        let place = place.or_insert_with(|| Place { bucket: TokenBucket::default(), suppressed: 0, metadata });
        let may = place.bucket.take(now, &limit);
        if !may {
            place.suppressed += 1;
            let at_ns = (now + SUMMARY_INTERVAL).as_nanos();
            self.summary_at_ns.fetch_min(at_ns, Ordering::Relaxed);
        }
        may
    }

    /// Logs, for each place whose entries were kept back, how many they were. To be called again and again: without
    /// effect and cheap until a second has passed since the first of them, unless this is the `last` call.
    pub fn report_suppressed(&self, now: Instant, last: bool) {
        let due_ns = self.summary_at_ns.load(Ordering::Relaxed);
        if due_ns == NOTHING || (due_ns > now.as_nanos() && !last) {
            return;
        }
        self.summary_at_ns.store(NOTHING, Ordering::Relaxed);
        let suppressed: Vec<(&Metadata<'_>, u64)> = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let places = places.values_mut().filter(|place| place.suppressed > 0);
            places.map(|place| (place.metadata, std::mem::take(&mut place.suppressed))).collect()
        };
        // The lock is free again: these entries come back through the layer.
        for (metadata, suppressed) in suppressed {
            let place = format!("{}:{}", metadata.file().unwrap_or("?"), metadata.line().unwrap_or(0));
            tracing::warn!(
                target: UNLIMITED_TARGET,
                suppressed,
                level = %metadata.level(),
                place,
                "entries like earlier ones were not logged"
            );
        }
    }
}

/// The layer that keeps entries back.
#[derive(Clone, Debug)]
pub struct LimitLayer(pub Arc<PlaceLimits>);

impl<S: Subscriber> Layer<S> for LimitLayer {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        self.0.admit(event.metadata())
    }
}

#[cfg(test)]
mod tests;
