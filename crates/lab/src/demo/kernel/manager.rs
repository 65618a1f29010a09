//! The demo's own manager: watches the other router by BFD (RFC 5880) where the hosts are, and takes the addresses when the
//! other is silent. What keepalived does for operators, in a tenth of a second.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cluster::failure_detector::{Config, Event, Session};
use flow::Instant;
use packet_io::poller::{Poller, Token};
use packet_io::udp::{TTL_MAX, UdpOptions, UdpSocket};
use packet_io::{IoError, clock, random};

use super::network::OWN_INSIDE;
use super::routers::{holds_addresses, run_hook};
use crate::bench::kernel_routers::router;
use crate::testbed::cluster::{ClusterError, NAMES};
use crate::testbed::topology::Topology;

/// The port of BFD on a single hop (RFC 5881).
const BFD_PORT: u16 = 3784;
/// How long a control packet may be, in bytes.
const PACKET_BYTES_MAX: usize = 128;
/// How often a thread looks whether it is wanted any more.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked whether keepalived has moved the addresses.
const ADDRESSES_EVERY: Duration = Duration::from_millis(1);
/// How long the survivor's first forwarded packet is waited for.
const FIRST_PACKET_WITHIN: Duration = Duration::from_secs(2);

/// When the survivor did what, in the nanoseconds of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct TakenOver {
    /// It no longer received from the other.
    pub(super) detected_ns: Option<u64>,
    /// `mainstay sync primary` had returned, and how long it took.
    pub(super) hook: Option<(u64, Duration)>,
    /// It had the addresses and had announced them.
    pub(super) announced_ns: Option<u64>,
    /// It forwarded the first packet.
    pub(super) first_packet_ns: Option<u64>,
}

/// What a router does whose peer is silent.
pub(super) struct Succession {
    /// The network.
    pub(super) topology: Arc<Topology>,
    /// The router.
    pub(super) number: usize,
    /// The hook that is run first: this program, and where its daemon is asked. Nothing without replication.
    pub(super) hook: Option<(PathBuf, PathBuf)>,
}

/// A thread that watches. Dropping it ends it.
pub(super) struct Watcher {
    wanted: Arc<AtomicBool>,
    is_up: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<TakenOver, ClusterError>>>,
}

impl Watcher {
    /// The router sends BFD packets, and does nothing else.
    pub(super) fn of_active(topology: &Arc<Topology>, number: usize) -> Self {
        let topology = Arc::clone(topology);
        Self::start(move |wanted, is_up| {
            topology.nodes[number].run(|| await_silence(number, wanted, is_up))??;
            Ok(TakenOver::default())
        })
    }

    /// The router takes over when it no longer receives from the other.
    pub(super) fn of_standby(succession: Succession) -> Self {
        Self::start(move |wanted, is_up| {
            let Succession { topology, number, hook } = succession;
            let node = &topology.nodes[number];
            let Some(detected_at) = node.run(|| await_silence(number, wanted, is_up))?? else {
                return Ok(TakenOver::default());
            };
            let mut taken = TakenOver { detected_ns: Some(detected_at.as_nanos()), ..TakenOver::default() };
            let forwarded_before = node.run(router::forwarded_packets)?;
            if let Some((program, control_socket)) = hook {
                let took = run_hook(&program, &control_socket, "primary", NAMES[number])?;
                taken.hook = Some((clock::now().as_nanos(), took));
            }
            router::take_addresses(node, None)?;
            // Closed at the end: that takes the kernel a while.
            let _sockets = router::announce(node)?;
            taken.announced_ns = Some(clock::now().as_nanos());
            taken.first_packet_ns = node.run(|| first_packet(forwarded_before))?;
            Ok(taken)
        })
    }

    /// The router's keepalived moves the addresses; it is noted when.
    pub(super) fn of_keepalived(topology: &Arc<Topology>, number: usize) -> Self {
        let topology = Arc::clone(topology);
        Self::start(move |wanted, is_up| {
            is_up.store(true, Ordering::Relaxed);
            let mut taken = TakenOver::default();
            topology.nodes[number].run(|| {
                let forwarded_before = router::forwarded_packets();
                while wanted.load(Ordering::Relaxed) && !holds_addresses() {
                    thread::sleep(ADDRESSES_EVERY);
                }
                if wanted.load(Ordering::Relaxed) {
                    taken.announced_ns = Some(clock::now().as_nanos());
                    taken.first_packet_ns = first_packet(forwarded_before);
                }
            })?;
            Ok(taken)
        })
    }

    fn start(work: impl FnOnce(&AtomicBool, &AtomicBool) -> Result<TakenOver, ClusterError> + Send + 'static) -> Self {
        let (wanted, is_up) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let thread = thread::spawn({
            let (wanted, is_up) = (Arc::clone(&wanted), Arc::clone(&is_up));
            move || work(&wanted, &is_up)
        });
        Self { wanted, is_up, thread: Some(thread) }
    }

    /// Whether the other was received, and nothing has happened since.
    pub(super) fn is_watching(&self) -> bool {
        self.is_up.load(Ordering::Relaxed) && !self.has_ended()
    }

    /// Whether there is nothing left to watch.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops sending, as when its router is dead.
    pub(super) fn fall_silent(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// What it has seen and done.
    pub(super) fn finish(mut self) -> Result<TakenOver, ClusterError> {
        self.fall_silent();
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or_else(|| Ok(TakenOver::default()))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.fall_silent();
        if let Some(thread) = self.thread.take() {
            // What it found is not wanted.
            let _ = thread.join();
        }
    }
}

/// Runs BFD with the other router until that is silent; returns when it was found so. `None` when it is not wanted any
/// more.
fn await_silence(number: usize, wanted: &AtomicBool, is_up: &AtomicBool) -> Result<Option<Instant>, IoError> {
    let [own, other] = [number, 1 - number].map(|number| SocketAddr::new(OWN_INSIDE[number][0], BFD_PORT));
    let socket = UdpSocket::bind(own, &UdpOptions { ttl: Some(TTL_MAX), ..UdpOptions::default() })?;
    let poller = Poller::new()?;
    poller.add(&socket, Token(0))?;
    let discriminator = u32::try_from(number + 1).unwrap_or(1);
    let mut session = Session::new(Config::default(), discriminator, random::number());
    let (mut ready, mut packet, mut buffer) = (Vec::new(), Vec::new(), [0; PACKET_BYTES_MAX]);
    let mut looked_at = clock::now();
    while wanted.load(Ordering::Relaxed) {
        let now = clock::now();
        // A thread that was not scheduled cannot distinguish its own absence from the other's silence.
        session.handle_absence(now, now.saturating_since(looked_at));
        looked_at = now;
        while let Some(received) = socket.receive(&mut buffer)? {
            // What is no BFD of the other's does not count.
            let _ = session.handle_packet(now, &buffer[..received.length_bytes], received.ttl.unwrap_or_default());
        }
        session.handle_timeout(now);
        while session.poll_transmit(now, &mut packet) {
            socket.send_to(&packet, other)?;
        }
        while let Some(event) = session.poll_event() {
            match event {
                Event::Up => is_up.store(true, Ordering::Relaxed),
                Event::Down { .. } => return Ok(Some(now)),
            }
        }
        let due = session.poll_timeout().map_or(LOOK_EVERY, |at| at.saturating_since(clock::now()));
        poller.wait(&mut ready, Some(due.min(LOOK_EVERY)))?;
    }
    Ok(None)
}

/// Waits until the calling thread's namespace has forwarded more than before.
fn first_packet(forwarded_before: u64) -> Option<u64> {
    router::await_forwarding(forwarded_before, FIRST_PACKET_WITHIN).map(|_| clock::now().as_nanos())
}
