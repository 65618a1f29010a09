//! `[kernel]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::super::super::diagnostic::{Diagnostics, Mistake};
use super::super::super::raw::sync::RawKernel;
use super::super::super::validated::sync::{Events, Injection, Kernel};
use super::super::cluster::setting;
use super::super::common::{choice, flag, ranged, sized, within};

const CONNECTIONS_MAX_DEFAULT: u64 = 1_000_000;
const CONNECTIONS: RangeInclusive<u64> = 1..=1 << 27;
const RECEIVE_BUFFER_BYTES_DEFAULT: usize = 2 << 20;
const RECEIVE_BUFFER_BYTES_MAX_DEFAULT: usize = 64 << 20;
/// The kernel makes no socket buffer smaller than a few kilobytes, and none larger than 2 GiB.
const RECEIVE_BUFFER_BYTES: RangeInclusive<usize> = 4096..=1 << 30;
const EVENT_INTERVAL_DEFAULT: Duration = Duration::from_millis(2);
const EVENT_INTERVAL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(100);

pub(super) fn kernel(raw: &RawKernel, diagnostics: &mut Diagnostics<'_>) -> Kernel {
    let (default, default_max) = (RECEIVE_BUFFER_BYTES_DEFAULT, RECEIVE_BUFFER_BYTES_MAX_DEFAULT);
    let written = raw.receive_buffer.as_ref();
    let receive_buffer_bytes =
        sized("kernel.receive_buffer", written, default, &RECEIVE_BUFFER_BYTES, diagnostics).unwrap_or(default);
    let written = raw.receive_buffer_max.as_ref();
    let largest = sized("kernel.receive_buffer_max", written, default_max, &RECEIVE_BUFFER_BYTES, diagnostics);
    // A buffer that begins above the default limit must not end below its beginning.
    let receive_buffer_bytes_max = largest.unwrap_or(default_max.max(receive_buffer_bytes));
    if let Some(written) = raw.receive_buffer_max.as_ref().filter(|_| receive_buffer_bytes_max < receive_buffer_bytes) {
        let mistake = Mistake::new(
            "the buffer cannot grow to less than it begins with",
            "raise receive_buffer_max or lower receive_buffer",
        );
        diagnostics.error(written.span(), "kernel.receive_buffer_max", mistake);
    }
    let connections = raw.connections_max.as_ref();
    let connections_max =
        within("kernel.connections_max", connections, CONNECTIONS_MAX_DEFAULT, CONNECTIONS, diagnostics);
    Kernel {
        events: choice("kernel.events", raw.events.as_ref(), &Events::ALL, diagnostics),
        injection: choice("kernel.injection", raw.injection.as_ref(), &Injection::ALL, diagnostics),
        connections_max: u32::try_from(connections_max).unwrap_or(u32::MAX),
        receive_buffer_bytes,
        receive_buffer_bytes_max,
        event_interval: setting!("kernel", raw.event_interval => ranged(EVENT_INTERVAL_DEFAULT, EVENT_INTERVAL), diagnostics),
        expectations: flag("kernel.expectations", raw.expectations, true, diagnostics),
    }
}
