//! Wall clocks of nodes that are wrong.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use super::report::{Observed, Played};
use super::site::Site;
use crate::demo::run::RunError;
use crate::testbed::cluster::FalseClock;
use crate::testbed::cluster::guarded::{QUOTA, QUOTA_PACKETS};
use crate::testbed::topology::SERVER;

/// By how much the peer's clock is ahead: many periods of the quota.
const HOURS_20: Duration = Duration::from_secs(20 * 3600);
const A_DAY: Duration = Duration::from_secs(24 * 3600);
/// What replicates of a quota: a step of it is a packet, and some are on their way.
const SLACK: usize = 4;
const NO_CLOCK: &str = "there is no libfaketime: install Debian's faketime";

/// A peer with a clock that is ahead forwards, and counts in its period. The healthy node that takes over must still keep the quota.
pub(super) fn quota_of_a_peer_ahead(site: &mut Site<'_>) -> Result<Played, RunError> {
    let Some(clock) = FalseClock::new(HOURS_20) else { return Ok(Played::LeftOut(NO_CLOCK.to_owned())) };
    let topology = Arc::clone(&site.topology);
    site.cluster.stop(1, site.watch)?;
    site.cluster.start_with_clock_ahead(&topology, 1, &clock)?;
    site.cluster.wait_until_ready(site.watch)?;
    let socket = client(site)?;
    let before = site.servers.quota.received();
    // Node b forwards, and its connection's state comes to node a.
    site.cluster.drain(0, site.watch)?;
    send(&socket, QUOTA_PACKETS / 2)?;
    let has_counted = site.until(|| Ok(site.servers.quota.received() - before >= QUOTA_PACKETS / 2))?;
    site.cluster.undrain(0)?;
    site.cluster.wait_until_ready(site.watch)?;
    site.cluster.wait_until_safe(site.watch)?;
    site.cluster.drain(1, site.watch)?;
    let middle = site.servers.quota.received();
    let beyond_before = beyond(site)?;
    send(&socket, 10 * QUOTA_PACKETS)?;
    let sent = 10 * QUOTA_PACKETS;
    let is_refused = site.until(|| {
        let passed = site.servers.quota.received() - middle;
        Ok(passed as u64 + beyond(site)? - beyond_before >= sent as u64)
    })?;
    let passed = site.servers.quota.received() - middle;
    let refused = beyond(site)? - beyond_before;
    site.cluster.undrain(1)?;
    site.cluster.wait_until_ready(site.watch)?;
    let observed = Observed {
        held: has_counted && is_refused && passed <= QUOTA_PACKETS + SLACK && passed > 0,
        observed: format!(
            "a peer 20 h ahead counted {} datagrams; of {sent} more, {passed} passed at the healthy node with a quota of {QUOTA_PACKETS}",
            QUOTA_PACKETS / 2
        ),
        operator_sees: format!("rate_limits: rule quota, beyond {refused} packets"),
    };
    let fault = site.traffic_fault()?;
    Ok(Played::Observed(observed.with_faults(fault.as_slice())))
}

fn client(site: &Site<'_>) -> Result<UdpSocket, RunError> {
    let failed = |error: std::io::Error| RunError::Attack(format!("a client's socket: {error}"));
    let socket = site.topology.client.run(|| UdpSocket::bind("0.0.0.0:0"))?.map_err(failed)?;
    socket.connect(SocketAddr::new(SERVER[0], QUOTA)).map_err(failed)?;
    Ok(socket)
}

fn send(socket: &UdpSocket, datagrams: usize) -> Result<(), RunError> {
    for _ in 0..datagrams {
        socket.send(b"datagram").map_err(|error| RunError::Attack(format!("a client's datagram: {error}")))?;
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}

/// Packets beyond the quota at node a.
fn beyond(site: &Site<'_>) -> Result<u64, RunError> {
    let limits = site.status(0)?.rate_limits;
    Ok(limits.iter().filter(|limit| limit.rule == "quota").map(|limit| limit.beyond.packets).sum())
}

/// A member starts a day ahead, dies, and starts again with the right time: it must be a peer again.
pub(super) fn member_a_day_ahead(site: &mut Site<'_>) -> Result<Played, RunError> {
    let Some(clock) = FalseClock::new(A_DAY) else { return Ok(Played::LeftOut(NO_CLOCK.to_owned())) };
    let topology = Arc::clone(&site.topology);
    let version = |site: &Site<'_>| -> Result<u64, RunError> {
        Ok(site.status(1)?.membership.map(|membership| membership.own_version).unwrap_or_default())
    };
    let right_before = version(site)?;
    site.cluster.stop(1, site.watch)?;
    site.cluster.start_with_clock_ahead(&topology, 1, &clock)?;
    site.cluster.wait_until_ready(site.watch)?;
    let ahead = version(site)?;
    site.cluster.kill_silently(1)?;
    site.cluster.restart_killed(&topology, 1)?;
    site.cluster.wait_until_ready(site.watch)?;
    site.cluster.wait_for_members(site.watch, 2)?;
    site.cluster.wait_until_safe(site.watch)?;
    let returned = version(site)?;
    let is_ahead = ahead > right_before + A_DAY.as_millis() as u64 / 2;
    let observed = Observed {
        held: is_ahead && returned > ahead,
        observed: format!(
            "the member's record had version {ahead}, a day ahead; after its restart with the right time it is a peer again, with \
             version {returned}"
        ),
        operator_sees: format!("membership: own_version {returned}; takeover ready"),
    };
    let fault = site.traffic_fault()?;
    Ok(Played::Observed(observed.with_faults(fault.as_slice())))
}
