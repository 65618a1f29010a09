//! `[port.router_advertisements]`, checked.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ::cluster::forwarding::RouterAdvertisements;
use flow::wire::router::RouterPreference;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake, Text};
use super::super::raw::RawRouterAdvertisements;
use super::super::validated::SharedAddress;
use super::super::value::{self, is_link_local};
use super::common::{choice, flag, ranged, within};
use super::parsed_list;

const KEY: &str = "port.router_advertisements";
/// Bounds of RFC 4861 section 6.2.1, with the longer times of RFC 8319.
const INTERVAL_MAX: RangeInclusive<Duration> = Duration::from_secs(4)..=Duration::from_secs(65_535);
const INTERVAL_MIN: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(49_151);
const LIFETIME: RangeInclusive<Duration> = Duration::ZERO..=flow::wire::router::ROUTER_LIFETIME_MAX;
const PREFIX_LIFETIME: RangeInclusive<Duration> = Duration::from_secs(1)..=value::DURATION_MAX;
/// An MTU that IPv6 allows (RFC 8200 section 5), of a frame that Ethernet carries.
const MTU_BYTES: RangeInclusive<u32> = 1280..=65_535;
const NAME_SERVERS_MAX: usize = 16;
const PREFERENCES: [(&str, RouterPreference); 3] =
    [("high", RouterPreference::High), ("medium", RouterPreference::Medium), ("low", RouterPreference::Low)];

/// The settings of a port's section, if it has one; `addresses` are the port's.
pub(super) fn router_advertisements(
    raw: Option<&Spanned<RawRouterAdvertisements>>,
    subject: &str,
    addresses: &[SharedAddress],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<RouterAdvertisements> {
    let absent = RawRouterAdvertisements::default();
    let settings = settings(raw.map_or(&absent, Spanned::get_ref), diagnostics);
    let section = raw?;
    if !addresses.iter().any(|own| is_link_local(own.prefix.addr())) {
        let mistake = Mistake::new(
            "routers are advertised from a shared link-local address, and the port has none",
            "add \"fe80::1/64\" to the port's addresses, or remove [port.router_advertisements]",
        );
        diagnostics.error(section.span(), subject, mistake);
    }
    let is_network = |own: &&SharedAddress| own.prefix.addr().is_ipv6() && !is_link_local(own.prefix.addr());
    if settings.is_autonomous && !addresses.iter().filter(is_network).any(|own| own.prefix.prefix_len() == 64) {
        let mistake = Mistake::new(
            "no shared address of the port is in an IPv6 network of 64 bits, so hosts make themselves no addresses",
            "add an address such as \"2001:db8::1/64\" to the port, or write autonomous = false",
        );
        diagnostics.warning(section.span(), subject, mistake);
    }
    Some(settings)
}

fn settings(raw: &RawRouterAdvertisements, diagnostics: &mut Diagnostics<'_>) -> RouterAdvertisements {
    let defaults = RouterAdvertisements::default();
    let key = |name: &str| format!("{KEY}.{name}");
    let interval_max =
        ranged(&key("interval_max"), raw.interval_max.as_ref(), defaults.interval_max, INTERVAL_MAX, diagnostics);
    let third = Duration::from_secs((interval_max.as_secs() / 3).max(INTERVAL_MIN.start().as_secs()));
    let interval_min =
        optional(&key("interval_min"), raw.interval_min.as_ref(), &INTERVAL_MIN, diagnostics).unwrap_or(third);
    if let Some(text) = raw.interval_min.as_ref().filter(|_| interval_min > interval_max * 3 / 4) {
        let mistake = Mistake::new(
            "the shortest time between advertisements is too close to the longest",
            format!("write at most {}, or raise interval_max", value::written_duration(interval_max * 3 / 4)),
        );
        diagnostics.error(text.span(), &key("interval_min"), mistake);
    }
    let thrice = (interval_max * 3).min(*LIFETIME.end());
    let lifetime = optional(&key("lifetime"), raw.lifetime.as_ref(), &LIFETIME, diagnostics).unwrap_or(thrice);
    if let Some(text) = raw.lifetime.as_ref().filter(|_| !lifetime.is_zero() && lifetime < interval_max) {
        let mistake = Mistake::new(
            "hosts would lose the router before the next advertisement",
            format!("write \"0s\" or at least {}", value::written_duration(interval_max)),
        );
        diagnostics.error(text.span(), &key("lifetime"), mistake);
    }
    let valid_lifetime = ranged(
        &key("valid_lifetime"),
        raw.valid_lifetime.as_ref(),
        defaults.valid_lifetime,
        PREFIX_LIFETIME,
        diagnostics,
    );
    let preferred = defaults.preferred_lifetime;
    let preferred_lifetime =
        ranged(&key("preferred_lifetime"), raw.preferred_lifetime.as_ref(), preferred, PREFIX_LIFETIME, diagnostics);
    if preferred_lifetime > valid_lifetime {
        let place = raw.preferred_lifetime.as_ref().or(raw.valid_lifetime.as_ref());
        let mistake = Mistake::new(
            "addresses would be preferred for longer than they are valid",
            format!("write a preferred_lifetime of at most {}", value::written_duration(valid_lifetime)),
        );
        diagnostics.error(place.map_or(0..0, Spanned::span), &key("preferred_lifetime"), mistake);
    }
    RouterAdvertisements {
        interval_max,
        interval_min,
        lifetime,
        preference: choice(&key("preference"), raw.preference.as_ref(), &PREFERENCES, diagnostics),
        is_managed: flag(&key("managed"), raw.managed, defaults.is_managed, diagnostics),
        has_other: flag(&key("other"), raw.other, defaults.has_other, diagnostics),
        is_on_link: flag(&key("on_link"), raw.on_link, defaults.is_on_link, diagnostics),
        is_autonomous: flag(&key("autonomous"), raw.autonomous, defaults.is_autonomous, diagnostics),
        valid_lifetime,
        preferred_lifetime,
        mtu_bytes: within(&key("mtu"), raw.mtu.as_ref(), None, MTU_BYTES, diagnostics),
        name_servers: name_servers(&key("name_servers"), &raw.name_servers, diagnostics),
        name_servers_lifetime: lifetime.max(thrice),
    }
}

/// A duration whose default is another key's.
fn optional(
    key: &str,
    text: Option<&Text>,
    range: &RangeInclusive<Duration>,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Duration> {
    diagnostics.describe(key, None, super::common::durations(range));
    text?;
    Some(ranged(key, text, *range.end(), range.clone(), diagnostics))
}

fn name_servers(key: &str, written: &[Text], diagnostics: &mut Diagnostics<'_>) -> Vec<Ipv6Addr> {
    if let Some(beyond) = written.get(NAME_SERVERS_MAX) {
        let mistake = Mistake::new(format!("there are more than {NAME_SERVERS_MAX} name servers"), "remove some");
        diagnostics.error(beyond.span(), key, mistake);
    }
    let server = |text: &String| match value::address(text)? {
        IpAddr::V6(address) if !address.is_multicast() && !address.is_unspecified() && !address.is_loopback() => {
            Ok(address)
        }
        other => Err(Mistake::new(
            format!("{other} is no IPv6 address of a name server"),
            "write one such as \"2001:db8::53\"",
        )),
    };
    parsed_list(key, written, server, diagnostics)
}
