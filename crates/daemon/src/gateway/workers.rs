//! The threads that move packets: one, or several with a share of the connections each.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use cluster::node::Node;
use network_functions::chain::ChainLayout;
use packet_io::poller::Waker;
use packet_io::signal::Signals;
use packet_io::{affinity, clock};

use super::balancing::Balancing;
use super::build::{self, Secrets, SharedFunctions};
use super::data_path::{DataPath, Setting};
use super::fast_path::{self, ETHER_TYPES, KernelFastPath};
use super::mailbox::{Post, place};
use super::members::Members;
use crate::error::ProcessError;
use crate::ports::{self, Receiving, Sharing};
use config::validated::Config;
use control::orders::ServicePaths;
use control::{ControlReceiver, ControlSender};

/// What a worker is made of, beside the configuration.
struct Parts {
    number: u8,
    post: Option<Post>,
    waker: Arc<Waker>,
    receiver: ControlReceiver,
    /// Its part of the fast path, if there is one.
    fast_path: Option<KernelFastPath>,
}

/// What all workers refer to.
#[derive(Clone)]
struct Shared {
    /// The services of the load balancer, and what else functions of all workers share.
    balancing: Arc<Balancing>,
    /// The members of the cluster, where they come from elsewhere than the configuration file.
    members: Option<Arc<Members>>,
}

/// The workers of a gateway before they run, and the way to ask all of them.
pub(super) struct Workers<'a> {
    config: &'a Config,
    secrets: Secrets,
    shared: Shared,
    parts: Vec<Parts>,
    sender: ControlSender,
}

/// What is ready when all workers are open, for the control server.
pub(super) struct Ready {
    /// The way to ask the workers.
    pub(super) sender: ControlSender,
    /// How the states of the chain lie in a record, on all workers.
    pub(super) layout: ChainLayout,
    /// What the workers have in common.
    pub(super) secrets: Secrets,
    /// The services of the load balancer.
    pub(super) balancing: Arc<Balancing>,
    /// Something comes whenever a signal asks for the configuration to be read again.
    pub(super) reload_requests: Receiver<()>,
    /// The fingerprint of the keys and certificates that the lead began with.
    pub(super) credentials: Option<u64>,
}

impl<'a> Workers<'a> {
    pub(super) fn new(config: &'a Config, members: Option<Arc<Members>>) -> Result<Self, ProcessError> {
        let secrets = Secrets::draw();
        let shared = SharedFunctions::new(config, None, &secrets)?;
        let balancing = Arc::new(Balancing::new(shared, &config.services));
        let count = config.workers.count;
        let mut posts = Post::for_workers(count)?.into_iter();
        let (mut parts, mut senders) = (Vec::new(), Vec::new());
        for number in 0..count {
            let waker = Arc::new(Waker::new()?);
            let (sender, receiver) = control::channel({
                let waker = Arc::clone(&waker);
                Arc::new(move || waker.wake())
            });
            senders.push(sender);
            parts.push(Parts { number, post: posts.next(), waker, receiver, fast_path: None });
        }
        let shared = Shared { balancing, members };
        Ok(Self { config, secrets, shared, parts, sender: ControlSender::of_workers(senders) })
    }

    /// Opens all workers, calls `ready`, and moves packets until a signal ends it or a worker cannot go on. The calling
    /// thread is the lead.
    pub(super) fn run<T>(
        self,
        signals: Signals,
        ready: impl FnOnce(Ready) -> Result<T, ProcessError>,
    ) -> Result<(), ProcessError> {
        let Self { config, secrets, shared, parts, sender } = self;
        let shared = &shared;
        // Before the nodes are made, which look at interfaces that may be made here.
        let fast_paths = KernelFastPath::open(config);
        // Before any worker is started, which inherits what this thread may do.
        fast_path::give_up_privilege(config, &fast_paths);
        let mut fast_paths = fast_paths.into_iter();
        let mut parts = parts.into_iter().map(|parts| Parts { fast_path: fast_paths.next(), ..parts });
        let lead = parts.next().expect("there is at least one worker");
        // Requests that come while one is being served count as one.
        let (reload, reload_requests) = sync_channel(1);
        let sharing = Sharing::new(&config.ports, config.workers.count)?;
        let sharing = &sharing;
        let mut lead = open(config, secrets, (sharing, shared), lead, Some((signals, reload)))?;
        let (layout, credentials) = (lead.chain_layout(), lead.credentials());
        let balancing = Arc::clone(&shared.balancing);
        let ready_now = Ready { sender, layout, secrets, balancing, reload_requests, credentials };
        thread::scope(|scope| {
            let mut followers = Vec::new();
            let mut is_whole = true;
            // One after the other: they join the groups of sockets in this order.
            for parts in parts {
                let (opened, is_open) = sync_channel(1);
                let name = format!("worker-{}", parts.number);
                let follow = move || follow(config, secrets.of_another_worker(), (sharing, shared), parts, &opened);
                match thread::Builder::new().name(name).spawn_scoped(scope, follow) {
                    Ok(follower) => followers.push(follower),
                    Err(source) => {
                        lead.stop_all();
                        return Err(ProcessError::GatewayThread(source));
                    }
                }
                if is_open.recv().is_err() {
                    // It ended with an error, which it returns.
                    is_whole = false;
                    break;
                }
            }
            let result = if is_whole { ready(ready_now).and_then(|_served| Ok(lead.run()?)) } else { Ok(()) };
            lead.stop_all();
            for follower in followers {
                follower.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))?;
            }
            result
        })
    }
}

fn open(
    config: &Config,
    secrets: Secrets,
    (sharing, shared): (&Sharing, &Shared),
    parts: Parts,
    signals: Option<(Signals, SyncSender<()>)>,
) -> Result<DataPath, ProcessError> {
    let Parts { number, post, waker, receiver, fast_path } = parts;
    if config.workers.pin {
        let processor = affinity::pin_this_thread(number.into())?;
        tracing::debug!(worker = number, processor, "stays on its processor");
    }
    let place = place(number, config.workers.count);
    // Programs at the ingress come before sockets of an EtherType only.
    let receiving = fast_path.as_ref().map_or(Receiving::Everything, |_| Receiving::ForThisHost(&ETHER_TYPES));
    let ports = ports::open(&config.ports, sharing, number, receiving)?;
    let node_config = build::node_config(config, &shared.balancing.shared(), &secrets)?;
    let security = node_config.security.clone();
    let credentials = node_config.security.as_ref().map(|security| security.credentials.fingerprint());
    let node = build::with_tunnel(Node::new_worker(node_config, place, clock::now())?, config)?;
    let mut node = build::with_state_service(node, config)?;
    node.pipeline_mut().log().set_limit(config.firewall_log_per_s);
    node.set_lazy(clock::now(), config.cluster.as_ref().and_then(|cluster| cluster.replication.lazy))?;
    node.set_start(clock::now(), build::start(config));
    if place.leads() {
        node.set_tracking(clock::now(), config.reachability.tracking.clone());
    }
    node.set_announce_refresh(clock::now(), config.node.announce_refresh);
    if let Some(ServicePaths { ports, detector, seed, bytes_per_s_max }) = build::service_paths(config) {
        node.set_service_paths(&ports, detector, seed)?;
        node.set_service_path_rate(bytes_per_s_max);
    }
    build::set_edges(&mut node, config, security.as_ref())?;
    if let Some(fast_path) = fast_path {
        node.set_fast_path(clock::now(), Box::new(fast_path));
    }
    let Shared { balancing, members } = shared.clone();
    let setting = Setting { node, ports, signals, waker, receiver, post, credentials, balancing, members };
    Ok(DataPath::open(config, setting)?)
}

/// A worker that is not the lead, from its beginning to its end.
fn follow(
    config: &Config,
    secrets: Secrets,
    shared: (&Sharing, &Shared),
    parts: Parts,
    opened: &SyncSender<()>,
) -> Result<(), ProcessError> {
    let mut data_path = open(config, secrets, shared, parts, None)?;
    // The lead waits for it.
    let _ = opened.send(());
    let result = panic::catch_unwind(AssertUnwindSafe(|| data_path.run()));
    // A gateway of which a part does not work is a gateway that does not work: the peer should take over.
    data_path.stop_all();
    Ok(result.unwrap_or_else(|panicked| panic::resume_unwind(panicked))?)
}
