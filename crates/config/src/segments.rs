//! `[replication.segments]`: unacknowledged segments are replicated.

use cluster::pipeline::{SegmentPolicy, SegmentsConfig};
use serde::Deserialize;
use toml::Spanned;

use super::diagnostic::Text;
use super::value::SizeText;

/// The section replicates TCP segments that this node has forwarded and that are not acknowledged. The peer that takes over resends them,
/// so that end points need not wait for their own timers. Peers of earlier releases ignore them. With [edges](../edge.md), leave it out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSegments {
    /// Segments that are replicated: the lowest unacknowledged one of each direction of a connection (`"always"`), SYN segments only
    /// (`"syn-only"`), or none (`"off"`). `"always"` needs `fast_path.enabled = false`, because the gateway does not see segments that the
    /// kernel forwards.
    pub policy: Option<Text>,
    /// Memory for held segments: a half for those of this node, a half for those of its peers. When one half is full, the segment that was
    /// held first is dropped.
    pub memory: Option<Spanned<SizeText>>,
    /// Bytes per second that each peer is sent at most. A connection whose turn comes late is sent with its segment at that time.
    pub bytes_per_second: Option<Spanned<u32>>,
    /// Largest number of segments that are resent in a second after a take-over.
    pub resends_per_s: Option<Spanned<u32>>,
}

/// The values of `policy`.
pub(crate) const POLICIES: [(&str, Option<SegmentPolicy>); 3] =
    [("off", None), ("syn-only", Some(SegmentPolicy::SynOnly)), ("always", Some(SegmentPolicy::Always))];

/// The settings with their names, as a comparison lists them.
#[must_use]
pub fn entries(segments: Option<&SegmentsConfig>) -> Vec<(&'static str, String)> {
    let policy = segments.map(|segments| segments.policy);
    let name = POLICIES.iter().find(|(_, known)| *known == policy).map_or("off", |(name, _)| *name);
    let SegmentsConfig { policy: _, memory_bytes_max, bytes_per_s_max, resends_per_s_max } =
        segments.copied().unwrap_or_default();
    vec![
        ("policy", name.to_owned()),
        ("memory", memory_bytes_max.to_string()),
        ("bytes_per_second", bytes_per_s_max.to_string()),
        ("resends_per_s", resends_per_s_max.to_string()),
    ]
}
