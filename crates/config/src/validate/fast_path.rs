//! `[fast_path]`.

use std::path::PathBuf;
use std::time::Duration;

use flow::fast_path::Hook;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawFastPath, Text};
use super::super::validated::{Backend, FastPath, Port};
use super::common::{absolute_path, choice, flag, ranged, within};

/// Connections that the kernel forwards by default: they take 28 MB.
pub(super) const CONNECTIONS_MAX_DEFAULT: u32 = 65_536;
/// Connections that can be configured at most: they take 7 GB.
pub(super) const CONNECTIONS_LIMIT: u32 = 1 << 24;
/// The longest time that the kernel goes on without the gateway: who stops a gateway for good wants its forwarding to end.
const RESTART_GRACE_MAX: Duration = Duration::from_secs(300);
/// Where bpffs is mounted by systemd.
const PIN_DIRECTORY_DEFAULT: &str = "/sys/fs/bpf/mainstay";

pub(super) fn fast_path(
    raw: &RawFastPath,
    (ports, workers): (&[Port], u8),
    diagnostics: &mut Diagnostics<'_>,
) -> FastPath {
    let enabled = flag("fast_path.enabled", raw.enabled, true, diagnostics);
    let hook = choice("fast_path.hook", raw.hook.as_ref(), &Hook::ALL, diagnostics);
    if let Some(written) = raw.hook.as_ref().filter(|_| hook == Hook::Xdp) {
        check_xdp(written, ports, diagnostics);
    }
    let written = raw.connections_max.as_ref();
    let default = CONNECTIONS_MAX_DEFAULT;
    let connections_max = within("fast_path.connections_max", written, default, 1..=CONNECTIONS_LIMIT, diagnostics);
    let (none, max) = (Duration::ZERO, RESTART_GRACE_MAX);
    let restart_grace = ranged("fast_path.restart_grace", raw.restart_grace.as_ref(), none, none..=max, diagnostics);
    if let (Some(written), true) = (&raw.restart_grace, workers > 1 && !restart_grace.is_zero()) {
        let mistake = Mistake::new(
            format!("with {workers} workers the kernel does not go on without the gateway"),
            "set workers.count = 1, or leave the time out",
        );
        diagnostics.warning(written.span(), "fast_path.restart_grace", mistake);
    }
    let pin_directory = pin_directory(raw.pin_directory.as_ref(), diagnostics);
    FastPath { enabled, hook, connections_max, restart_grace, pin_directory }
}

/// What has no effect together with XDP.
fn check_xdp(written: &Text, ports: &[Port], diagnostics: &mut Diagnostics<'_>) {
    if let Some(port) = ports.iter().find(|port| port.backend == Backend::AfXdp) {
        let mistake = Mistake::new(
            format!("port {} has the backend af_xdp, which has an XDP program of its own and no fast path", port.name),
            format!("remove the hook, or set backend = {:?}", Backend::AfPacket.name()),
        );
        diagnostics.warning(written.span(), "fast_path.hook", mistake);
    }
    if let Some(port) = ports.iter().find(|port| port.redirect_peer) {
        let mistake = Mistake::new(
            format!("redirect_peer of port {} has no effect at xdp", port.name),
            "remove it, or write hook = \"tc\", which is faster into containers",
        );
        diagnostics.warning(written.span(), "fast_path.hook", mistake);
    }
}

fn pin_directory(text: Option<&Text>, diagnostics: &mut Diagnostics<'_>) -> PathBuf {
    let subject = "fast_path.pin_directory";
    diagnostics.describe(subject, Some(format!("{PIN_DIRECTORY_DEFAULT:?}")), "an absolute path".to_owned());
    text.map_or_else(|| Some(PIN_DIRECTORY_DEFAULT.into()), |text| absolute_path(subject, text, diagnostics))
        .unwrap_or_default()
}
