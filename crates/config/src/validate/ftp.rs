//! `[ftp]`.

use std::time::Duration;

use network_functions::expectation::EXPECTATION_TIMEOUT_DEFAULT;
use network_functions::ftp::CONTROL_PORT;
use network_functions::port_range::PortRange;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::RawFtp;
use super::super::validated::Ftp;
use super::common::flag;
use super::firewall::port_ranges;
use super::{parsed, value};

/// The shortest and the longest time that an announced connection may be waited for.
const TIMEOUT_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

pub(super) fn ftp(raw: Option<&RawFtp>, diagnostics: &mut Diagnostics<'_>) -> Ftp {
    let mut ftp = Ftp {
        ports: vec![PortRange::single(CONTROL_PORT)],
        loose: false,
        privileged_ports: false,
        timeout: EXPECTATION_TIMEOUT_DEFAULT,
    };
    let (least, most) = (value::written_duration(TIMEOUT_RANGE.0), value::written_duration(TIMEOUT_RANGE.1));
    let default = value::written_duration(ftp.timeout);
    diagnostics.describe("ftp.timeout", Some(default), format!("{least} to {most}"));
    let Some(raw) = raw else { return ftp };
    if let Some(ports) = &raw.ports {
        if ports.get_ref().is_empty() {
            let mistake =
                Mistake::new("the list is empty", "list the ports of control connections, or leave the key out");
            diagnostics.error(ports.span(), "ftp.ports", mistake);
        }
        ftp.ports = port_ranges("ftp.ports", ports.get_ref(), diagnostics);
    }
    ftp.loose = flag("ftp.loose", raw.loose, ftp.loose, diagnostics);
    ftp.privileged_ports = flag("ftp.privileged_ports", raw.privileged_ports, ftp.privileged_ports, diagnostics);
    if let Some(text) = &raw.timeout
        && let Some(timeout) = parsed("ftp.timeout", text, value::duration, diagnostics)
    {
        if timeout < TIMEOUT_RANGE.0 || timeout > TIMEOUT_RANGE.1 {
            let mistake =
                Mistake::new(format!("{:?} is out of range", text.get_ref()), "choose from \"1s\" to \"60m\"");
            diagnostics.error(text.span(), "ftp.timeout", mistake);
        }
        ftp.timeout = timeout;
    }
    ftp
}
