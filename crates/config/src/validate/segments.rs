//! `[replication.segments]`.

use std::ops::RangeInclusive;

use cluster::pipeline::{SegmentPolicy, SegmentsConfig};

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawConfig, RawReplication};
use super::super::segments::POLICIES;
use super::super::validated::{Replication, Representation};
use super::common::{choice, sized, within};

const SUBJECT: &str = "[replication.segments]";
const MEMORY_BYTES: RangeInclusive<usize> = 1 << 20..=64 << 30;
const BYTES_PER_S: RangeInclusive<u32> = 10_000..=u32::MAX;
const RESENDS_PER_S: RangeInclusive<u32> = 10..=10_000_000;

/// The replication of unacknowledged segments; `None`: there is none.
pub(super) fn segments(raw: &RawReplication, diagnostics: &mut Diagnostics<'_>) -> Option<SegmentsConfig> {
    let section = raw.segments.as_ref()?.get_ref();
    let defaults = SegmentsConfig::default();
    let policy = choice("replication.segments.policy", section.policy.as_ref(), &POLICIES, diagnostics);
    let memory = section.memory.as_ref();
    let memory_bytes_max =
        sized("replication.segments.memory", memory, defaults.memory_bytes_max, &MEMORY_BYTES, diagnostics)
            .unwrap_or(defaults.memory_bytes_max);
    let mut number = |key: &str, written, default, range| {
        within(&format!("replication.segments.{key}"), written, default, range, diagnostics)
    };
    let rate = section.bytes_per_second.as_ref();
    let bytes_per_s_max = number("bytes_per_second", rate, defaults.bytes_per_s_max, BYTES_PER_S);
    let resends = section.resends_per_s.as_ref();
    let resends_per_s_max = number("resends_per_s", resends, defaults.resends_per_s_max, RESENDS_PER_S);
    Some(SegmentsConfig { policy: policy?, memory_bytes_max, bytes_per_s_max, resends_per_s_max })
}

/// Finds settings that segments cannot be replicated beside.
pub(super) fn check(
    raw: &RawConfig,
    section: &RawReplication,
    replication: &Replication,
    diagnostics: &mut Diagnostics<'_>,
) {
    let (Some(written), Some(segments)) = (&section.segments, &replication.segments) else { return };
    // With several groups no connection is forwarded by the kernel.
    let has_fast_path = raw.fast_path.enabled != Some(false) && raw.group.len() <= 1;
    let contradictions = [
        (
            segments.policy == SegmentPolicy::Always && has_fast_path,
            "the kernel forwards established connections, and the gateway does not see their segments",
            "write enabled = false in [fast_path], or policy = \"syn-only\" here",
        ),
        (
            replication.representation.is_compact(),
            "a peer filter does not contain what is acknowledged",
            "remove it, or choose a precise replication.representation",
        ),
        (
            replication.representation == Representation::None,
            "nothing is replicated, so that segments would belong to no connection",
            "remove it, or choose another replication.representation",
        ),
    ];
    for (_, problem, remedy) in contradictions.iter().filter(|(is_so, ..)| *is_so) {
        diagnostics.error(written.span(), SUBJECT, Mistake::new(*problem, *remedy));
    }
}
