//! `[fast_path]`.

use super::super::diagnostic::Diagnostics;
use super::super::raw::RawFastPath;
use super::super::validated::FastPath;
use super::common::{flag, within};

/// Connections that the kernel forwards by default: they take 28 MB.
const CONNECTIONS_MAX_DEFAULT: u32 = 65_536;
/// Connections that can be configured at most: they take 7 GB.
const CONNECTIONS_LIMIT: u32 = 1 << 24;

pub(super) fn fast_path(raw: &RawFastPath, diagnostics: &mut Diagnostics<'_>) -> FastPath {
    let enabled = flag("fast_path.enabled", raw.enabled, true, diagnostics);
    let written = raw.connections_max.as_ref();
    let default = CONNECTIONS_MAX_DEFAULT;
    let connections_max = within("fast_path.connections_max", written, default, 1..=CONNECTIONS_LIMIT, diagnostics);
    FastPath { enabled, connections_max }
}
