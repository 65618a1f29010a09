//! `[limits]`, checked.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;

use super::super::diagnostic::Diagnostics;
use super::super::raw::RawLimits;
use super::super::validated::Limits;
use super::cluster::setting;
use super::common::{ranged, within};

/// The fragments of one packet take so much, and so much must fit.
const FRAGMENT_BYTES: RangeInclusive<u64> = 65_536..=1 << 30;
const FRAGMENTED_PACKETS: RangeInclusive<u64> = 1..=1 << 20;
const FRAGMENT_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

pub(super) fn limits(raw: &RawLimits, diagnostics: &mut Diagnostics<'_>) -> Limits {
    let defaults = Limits::default();
    let bits_v4 = u32::from(defaults.source_prefix_ipv4_bits);
    let bits_v6 = u32::from(defaults.source_prefix_ipv6_bits);
    let bits_v4 = setting!("limits", raw.source_prefix_ipv4_bits => number(bits_v4, 0..=32), diagnostics);
    let bits_v6 = setting!("limits", raw.source_prefix_ipv6_bits => number(bits_v6, 0..=128), diagnostics);
    let fragmented_packets = defaults.fragmented_packets_max;
    let fragmented_packets_per_source = defaults.fragmented_packets_per_source_max;
    let fragment_bytes = defaults.fragment_bytes_max;
    let fragment_bytes_per_source = defaults.fragment_bytes_per_source_max;
    let fragment_timeout = defaults.fragment_timeout;
    Limits {
        connections_per_source_max: setting!("limits", raw.connections_per_source_max => number(None, 1..=1 << 31), diagnostics),
        connections_per_source_per_second_max: setting!("limits", raw.connections_per_source_per_second_max => number(None, 1..=1_000_000), diagnostics),
        source_prefix_ipv4_bits: u8::try_from(bits_v4).unwrap_or(defaults.source_prefix_ipv4_bits),
        source_prefix_ipv6_bits: u8::try_from(bits_v6).unwrap_or(defaults.source_prefix_ipv6_bits),
        fragmented_packets_max: setting!("limits", raw.fragmented_packets_max => number(fragmented_packets, FRAGMENTED_PACKETS), diagnostics),
        fragmented_packets_per_source_max: setting!("limits", raw.fragmented_packets_per_source_max => number(fragmented_packets_per_source, FRAGMENTED_PACKETS), diagnostics),
        fragment_bytes_max: setting!("limits", raw.fragment_bytes_max => number(fragment_bytes, FRAGMENT_BYTES), diagnostics),
        fragment_bytes_per_source_max: setting!("limits", raw.fragment_bytes_per_source_max => number(fragment_bytes_per_source, FRAGMENT_BYTES), diagnostics),
        fragment_timeout: setting!("limits", raw.fragment_timeout => ranged(fragment_timeout, FRAGMENT_TIMEOUT), diagnostics),
    }
}

/// A number within a range, or its default, which may be that there is no limit.
fn number<D: Copy + From<u32> + Into<Option<u32>>>(
    subject: &str,
    written: Option<&Spanned<u64>>,
    default: D,
    range: RangeInclusive<u64>,
    diagnostics: &mut Diagnostics<'_>,
) -> D {
    let number: Option<u32> = default.into();
    diagnostics.describe(
        subject,
        number.map(|number| number.to_string()),
        format!("{} to {}", range.start(), range.end()),
    );
    if written.is_none() {
        return default;
    }
    let least = *range.start();
    u32::try_from(within(subject, written, least, range, diagnostics)).map_or(default, D::from)
}
