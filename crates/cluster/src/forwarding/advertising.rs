//! When routers are advertised to all hosts of a port (RFC 4861 section 6.2.4).

use alloc::vec::Vec;
use core::time::Duration;

use flow::random::SplitMix64;
use flow::wire::router::AdvertisedPrefix;
use flow::{Instant, PortId};

use super::address::is_link_local;
use super::config::{ADDRESSES_PER_PORT_MAX, Port};

/// The first advertisements of a router that has just begun come at least this often (RFC 4861 section 10) …
const INITIAL_INTERVAL_MAX: Duration = Duration::from_secs(16);
/// … so many of them.
const INITIAL_ADVERTISEMENTS: u8 = 3;
/// The least time between two advertisements to all hosts.
const BETWEEN_MULTICASTS_MIN: Duration = Duration::from_secs(3);
/// The longest time to the answer to a solicitation.
const ANSWER_DELAY_MAX: Duration = Duration::from_millis(500);

/// The longest time for which a network is advertised as deprecated. Hosts keep addresses for two hours whatever is advertised
/// (RFC 4862 section 5.5.3 (e)).
const DEPRECATED_FOR_MAX: Duration = Duration::from_secs(2 * 3600);

/// When a port's routers advertise themselves next, and did last.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    next: Instant,
    last: Option<Instant>,
    initial_left: u8,
}

/// A network that a port advertised until a reload.
#[derive(Clone, Copy, Debug)]
struct Deprecated {
    port: PortId,
    prefix: AdvertisedPrefix,
    until: Instant,
}

/// The schedules of all ports.
#[derive(Clone, Debug)]
pub(super) struct Advertising {
    /// By port; `None`: it advertises nothing.
    ports: Vec<Option<Schedule>>,
    /// At most [`ADDRESSES_PER_PORT_MAX`] for each port.
    deprecated: Vec<Deprecated>,
    jitter: SplitMix64,
}

impl Advertising {
    pub(super) fn new(seed: u64, ports: &[Port]) -> Self {
        let mut advertising = Self { ports: Vec::new(), deprecated: Vec::new(), jitter: SplitMix64::new(seed) };
        advertising.follow(Instant::ZERO, ports);
        advertising
    }

    /// The ports' settings are these from `now` on, and are said at once.
    pub(super) fn follow(&mut self, now: Instant, ports: &[Port]) {
        self.ports.resize(ports.len(), None);
        for (schedule, port) in self.ports.iter_mut().zip(ports) {
            let last = schedule.and_then(|schedule| schedule.last);
            let begun = Schedule { next: now, last, initial_left: INITIAL_ADVERTISEMENTS };
            *schedule = port.router_advertisements.is_some().then_some(begun);
        }
    }

    /// Networks that `before` advertised on a port and `after` does not are advertised as deprecated for some time (RFC 9096 section 3.5, L-13):
    /// their hosts begin no more connections from them.
    pub(super) fn deprecate(&mut self, now: Instant, before: &[Port], after: &[Port]) {
        for ((port, old), new) in (0..).map(PortId).zip(before).zip(after) {
            let advertised = advertised_prefixes(new);
            let is_advertised = |old: &AdvertisedPrefix| advertised.iter().any(|new| new.network() == old.network());
            self.deprecated.retain(|known| known.until > now && (known.port != port || !is_advertised(&known.prefix)));
            for prefix in advertised_prefixes(old).into_iter().filter(|old| !is_advertised(old)) {
                let until = now + prefix.valid_lifetime.min(DEPRECATED_FOR_MAX);
                self.deprecated.push(Deprecated { port, prefix, until });
            }
            let surplus = self.deprecated_of(port).count().saturating_sub(ADDRESSES_PER_PORT_MAX);
            let mut oldest = 0;
            self.deprecated.retain(|known| {
                oldest += usize::from(known.port == port);
                known.port != port || oldest > surplus
            });
        }
    }

    fn deprecated_of(&self, port: PortId) -> impl Iterator<Item = &Deprecated> {
        self.deprecated.iter().filter(move |known| known.port == port)
    }

    /// The networks of a port that its hosts are to leave: no new connections, and no addresses when the time is over.
    pub(super) fn deprecated(&self, now: Instant, port: PortId) -> impl Iterator<Item = AdvertisedPrefix> {
        self.deprecated_of(port).filter(move |known| known.until > now).map(move |known| AdvertisedPrefix {
            valid_lifetime: known.until.saturating_since(now),
            preferred_lifetime: Duration::ZERO,
            ..known.prefix
        })
    }

    /// Groups have come: hosts learn at once where their routers are.
    pub(super) fn begin(&mut self, now: Instant) {
        for schedule in self.ports.iter_mut().flatten() {
            *schedule = Schedule { next: now, last: None, initial_left: INITIAL_ADVERTISEMENTS };
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.ports.iter().flatten().map(|schedule| schedule.next).min()
    }

    /// A host that has no address yet has asked on a port.
    pub(super) fn note_solicited(&mut self, now: Instant, port: PortId) {
        let delay = self.jitter.between(0, ANSWER_DELAY_MAX.as_nanos() as u64);
        let Some(Some(schedule)) = self.ports.get_mut(usize::from(port.0)) else { return };
        let earliest = schedule.last.map_or(now, |last| (last + BETWEEN_MULTICASTS_MIN).max(now));
        schedule.next = schedule.next.min(earliest + Duration::from_nanos(delay));
    }

    /// The next port that is due by `now`, with its settings. The time after is set.
    pub(super) fn poll(&mut self, now: Instant, ports: &[Port]) -> Option<PortId> {
        let index = self.ports.iter().position(|schedule| schedule.is_some_and(|schedule| schedule.next <= now))?;
        let settings = ports.get(index)?.router_advertisements.as_ref()?;
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let least = nanos(settings.interval_min.min(settings.interval_max));
        let interval = Duration::from_nanos(self.jitter.between(least, nanos(settings.interval_max)));
        let schedule = self.ports[index].as_mut()?;
        let is_initial = schedule.initial_left > 0;
        let interval = if is_initial { interval.min(INITIAL_INTERVAL_MAX) } else { interval };
        let initial_left = schedule.initial_left.saturating_sub(1);
        *schedule = Schedule { next: now + interval, last: Some(now), initial_left };
        u8::try_from(index).ok().map(PortId)
    }
}

/// The networks of the port's shared addresses, each once; none if it advertises no routers. They are the same whichever node holds which
/// group.
pub(super) fn advertised_prefixes(port: &Port) -> Vec<AdvertisedPrefix> {
    let Some(settings) = &port.router_advertisements else { return Vec::new() };
    let mut advertised: Vec<AdvertisedPrefix> = Vec::new();
    for prefix in port.shared.iter().map(|shared| shared.prefix) {
        let entry = AdvertisedPrefix {
            prefix,
            is_on_link: settings.is_on_link,
            is_autonomous: settings.is_autonomous,
            valid_lifetime: settings.valid_lifetime,
            preferred_lifetime: settings.preferred_lifetime,
        };
        let is_known = advertised.iter().any(|known| known.network() == entry.network());
        if prefix.address.is_ipv6() && !is_link_local(prefix.address) && !is_known {
            advertised.push(entry);
        }
    }
    advertised
}
