//! Short connections a second through the active router, and what each of them costs the daemons.
//!
//! A connection is a handshake, one request, one answer and an orderly end. All ends of the network, both routers and both daemons
//! share this machine's processors. That connections are forgotten, minutes later, is not part of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::pair::Pair;
use super::routers::{ACTIVE, STANDBY, Tuning};
use super::setting::Setting;
use crate::args::sync_bench::Subject;
use crate::bench::BenchError;
use crate::bench::rounds::{self, Rounds};
use crate::bench::setup_rate::client::Client;
use crate::bench::setup_rate::server::Server;
use crate::testbed::topology::SERVER;

/// Ports that the server listens on: they multiply the connections that the client can make before a port is used again.
const SERVER_PORTS: std::ops::Range<u16> = 7100..7116;
/// Time that new connections are given to find their pace before they are counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// Figures of what is compared, one a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Connections a second.
    pub(super) per_s: Rounds,
    /// Microseconds of processor time a connection: the active router's daemon, and the standby's.
    pub(super) cpu_us: [Rounds; 2],
}

/// Where connections go.
pub(super) fn server_addresses() -> Vec<SocketAddr> {
    SERVER_PORTS.map(|port| SocketAddr::new(SERVER[0], port)).collect()
}

struct Stand {
    pair: Pair,
    _server: Server,
}

/// Measures it.
///
/// # Errors
/// The routers do not get ready, or connections fail.
pub(super) fn measure(setting: &Setting<'_>) -> Result<BTreeMap<Subject, Figures>, BenchError> {
    let mut figures = BTreeMap::<Subject, Figures>::new();
    let subjects = &setting.subjects;
    rounds::repeat(&setting.progress, "connections a second", setting.args.rounds(), |round| {
        // No subject is always the first.
        let first = round as usize % subjects.len().max(1);
        for number in 0..subjects.len() {
            let subject = subjects[(first + number) % subjects.len()];
            // By itself: all namespaces' connections lie in one table of the kernel's, and those of another pair make
            // the next one slower.
            Stand::start(setting, subject)?.measure(setting, figures.entry(subject).or_default())?;
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(figures)
}

impl Stand {
    fn start(setting: &Setting<'_>, subject: Subject) -> Result<Self, BenchError> {
        let pair = Pair::start_ready(subject, Tuning::default(), setting.watch)?;
        let server = Server::start(&pair.topology.server, &server_addresses())?;
        Ok(Self { pair, _server: server })
    }

    fn measure(&mut self, setting: &Setting<'_>, into: &mut Figures) -> Result<(), BenchError> {
        let Self { pair, .. } = self;
        pair.check_running()?;
        let spent_before = pair.processor_times();
        let client = Client::start(&pair.topology, server_addresses(), setting.args.in_flight)?;
        setting.watch.pass_until(Instant::now() + WARM_UP)?;
        let (begin, before) = (Instant::now(), client.tally().completed);
        setting.watch.pass_until(begin + Duration::from_secs_f64(setting.args.seconds()))?;
        let (took, completed) = (begin.elapsed(), client.tally().completed - before);
        let all = client.finish()?.completed;
        if completed == 0 {
            return Err(BenchError::NothingPassed);
        }
        pair.settle(setting.watch)?;
        let spent = pair.processor_times();
        into.per_s.push(completed as f64 / took.as_secs_f64());
        for side in [ACTIVE, STANDBY] {
            let spent = spent[side].saturating_sub(spent_before[side]);
            into.cpu_us[side].push(spent.as_secs_f64() * 1e6 / all as f64);
        }
        Ok(())
    }
}
