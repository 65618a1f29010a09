//! `[limits]`, checked.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;

use super::super::diagnostic::{Findings, Mistake};
use super::super::raw::RawLimits;
use super::super::validated::Limits;
use super::super::value;

/// The fragments of one packet take so much, and so much must fit.
const FRAGMENT_BYTES: RangeInclusive<u64> = 65_536..=1 << 30;
const FRAGMENTED_PACKETS: RangeInclusive<u64> = 1..=1 << 20;
const FRAGMENT_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

pub(super) fn limits(raw: &RawLimits, findings: &mut Findings<'_>) -> Limits {
    let defaults = Limits::default();
    let mut number = |key: &str, written: &Option<Spanned<u64>>, range: RangeInclusive<u64>| {
        let written = written.as_ref()?;
        let count = *written.get_ref();
        if !range.contains(&count) {
            let mistake = Mistake::new(
                format!("{count} is out of range"),
                format!("choose a number from {} to {}", range.start(), range.end()),
            );
            findings.error(written.span(), &format!("limits.{key}"), mistake);
        }
        u32::try_from(count).ok()
    };
    let bits = |bits: Option<u32>, default: u8| bits.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(default);
    Limits {
        connections_per_source_max: number("connections_per_source_max", &raw.connections_per_source_max, 1..=1 << 31),
        connections_per_source_per_second_max: number(
            "connections_per_source_per_second_max",
            &raw.connections_per_source_per_second_max,
            1..=1_000_000,
        ),
        source_prefix_ipv4_bits: bits(
            number("source_prefix_ipv4_bits", &raw.source_prefix_ipv4_bits, 0..=32),
            defaults.source_prefix_ipv4_bits,
        ),
        source_prefix_ipv6_bits: bits(
            number("source_prefix_ipv6_bits", &raw.source_prefix_ipv6_bits, 0..=128),
            defaults.source_prefix_ipv6_bits,
        ),
        fragmented_packets_max: number("fragmented_packets_max", &raw.fragmented_packets_max, FRAGMENTED_PACKETS)
            .unwrap_or(defaults.fragmented_packets_max),
        fragmented_packets_per_source_max: number(
            "fragmented_packets_per_source_max",
            &raw.fragmented_packets_per_source_max,
            FRAGMENTED_PACKETS,
        )
        .unwrap_or(defaults.fragmented_packets_per_source_max),
        fragment_bytes_max: number("fragment_bytes_max", &raw.fragment_bytes_max, FRAGMENT_BYTES)
            .unwrap_or(defaults.fragment_bytes_max),
        fragment_bytes_per_source_max: number(
            "fragment_bytes_per_source_max",
            &raw.fragment_bytes_per_source_max,
            FRAGMENT_BYTES,
        )
        .unwrap_or(defaults.fragment_bytes_per_source_max),
        fragment_timeout: raw
            .fragment_timeout
            .as_ref()
            .and_then(|text| fragment_timeout(text, findings))
            .unwrap_or(defaults.fragment_timeout),
    }
}

fn fragment_timeout(text: &Spanned<String>, findings: &mut Findings<'_>) -> Option<Duration> {
    let checked = value::duration(text.get_ref()).and_then(|duration| {
        if FRAGMENT_TIMEOUT.contains(&duration) {
            Ok(duration)
        } else {
            Err(Mistake::new(
                format!("{:?} is out of range", text.get_ref()),
                "write a duration from \"100ms\" to \"60s\"",
            ))
        }
    });
    checked.map_err(|mistake| findings.error(text.span(), "limits.fragment_timeout", mistake)).ok()
}
