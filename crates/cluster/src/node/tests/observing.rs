//! Scenarios of observers: what they see of packets, frames and connections.

use core::time::Duration;
use std::boxed::Box;
use std::string::ToString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use flow::wire::{build, ip_protocol, tcp_flags};
use flow::{Direction, DropReason, NodeId, Tuple, WorkerId};
use network_functions::chain::CallOutcome;
use network_functions::function::Verdict;
use network_functions::tuple_filter::TupleFilter;

use super::cluster::{
    CLIENT, Cluster, INSIDE, OUTSIDE, Options, Received, SERVER, SHARED_OUTSIDE, rules, segment, syn, syn_ack,
};
use super::operations::{reload, with_rules};
use super::site::Site;
use super::{ACK, exchange};
use crate::forwarding::is_path_frame;
use crate::observation::{
    Arrival, BATCHES_PER_SAMPLE, CapturedFrame, ConnectionChange, Dropped, OBSERVED_WAITING_MAX, Observed, Outcome,
    OwnFrames, PacketFilter, PacketTrace, Point, RoutedTo, Sight, Step, Stopwatch, Subject, TooManyWatches,
    WATCHES_MAX, WatchId,
};

const WATCH: WatchId = WatchId(7);

fn watch(cluster: &mut Cluster, id: u8, subject: Subject) {
    cluster.node_mut(id).pipeline_mut().observation_mut().begin(WATCH, subject, 1000).unwrap();
}

fn trace_all(cluster: &mut Cluster, id: u8) {
    watch(cluster, id, Subject::Packets(PacketFilter::default()));
}

fn traces(cluster: &mut Cluster, id: u8) -> Vec<PacketTrace> {
    let mut traces = Vec::new();
    while let Some(observed) = cluster.node_mut(id).pipeline_mut().observation_mut().poll() {
        let Sight::Packet(trace) = observed.sight else { panic!("packets are traced") };
        traces.push(*trace);
    }
    traces
}

fn frames(cluster: &mut Cluster, id: u8) -> Vec<CapturedFrame> {
    let mut frames = Vec::new();
    while let Some(observed) = cluster.node_mut(id).pipeline_mut().observation_mut().poll() {
        let Sight::Frame(frame) = observed.sight else { panic!("frames are captured") };
        frames.push(frame);
    }
    frames
}

fn tuple_of(frame: &CapturedFrame) -> Tuple {
    Received::new(frame.bytes.clone()).tuple
}

/// What the function counted of the packet, and its verdict when the connection began.
fn decision<'a>(trace: &'a PacketTrace, function: &str) -> (&'a [std::string::String], CallOutcome) {
    let step = trace.steps.iter().find_map(|step| match step {
        Step::Function { name, counted, outcome, .. } if *name == function => Some((counted.as_slice(), *outcome)),
        _ => None,
    });
    step.unwrap_or_else(|| panic!("{function} is not in {:?}", trace.steps))
}

#[test]
fn the_trace_of_a_dropped_packet_names_the_rule() {
    let mut cluster = Cluster::start(Options::default());
    let new = with_rules(&cluster, 0, rules(Some(40_000)));
    reload(&mut cluster, 0, new);
    trace_all(&mut cluster, 0);
    cluster.client_sends(40_000, syn(), b"");
    assert!(cluster.server_receives().is_none());

    let [trace] = &traces(&mut cluster, 0)[..] else { panic!("one packet, one trace") };
    assert_eq!((trace.ingress, trace.at), (INSIDE, cluster.now));
    let Arrival::Ip(headers) = trace.arrival else { panic!("a packet came in") };
    assert_eq!(headers.tuple, Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 80)));
    assert_eq!(trace.steps[0], Step::Unknown);
    assert_eq!(trace.steps[1], Step::Begins { state: "SYN_SENT" });
    let (counted, outcome) = decision(trace, "firewall");
    assert_eq!(counted, ["rule/drop/denied"]);
    assert_eq!(outcome, CallOutcome::Began(Err(DropReason::FirewallDenied)));
    assert_eq!(trace.steps.len(), 3, "nothing comes behind it");
    assert_eq!(trace.outcome, Outcome::Dropped(DropReason::FirewallDenied));
}

#[test]
fn a_packet_that_passes_shows_its_rule_its_translation_and_its_way() {
    let mut cluster = Cluster::start(Options::default());
    trace_all(&mut cluster, 0);
    cluster.client_sends(40_000, syn(), b"");
    let seen = cluster.server_receives().expect("it passes").tuple;

    let traces = traces(&mut cluster, 0);
    let trace = traces.iter().find(|trace| matches!(trace.arrival, Arrival::Ip(_))).expect("beside ARP");
    assert_eq!(decision(trace, "firewall"), (&["rule/accept/out".to_string()][..], CallOutcome::Began(Ok(()))));
    let own = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 80));
    let translations: Vec<_> = trace
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Function { name: "nat", before, after, outcome, .. } => Some((*before, *after, *outcome)),
            _ => None,
        })
        .collect();
    let handled = CallOutcome::Handled(Verdict::Forward);
    assert_eq!(translations, [(own, seen, CallOutcome::Began(Ok(()))), (own, seen, handled)]);
    let way = RoutedTo { port: OUTSIDE, next_hop: SERVER.into() };
    assert_eq!(trace.steps.last(), Some(&Step::Routed(Some(way))));
}

#[test]
fn a_packet_of_a_connection_shows_how_its_state_moves() {
    let mut cluster = Cluster::start(Options::default());
    // The hosts' link addresses are known before.
    cluster.connect(39_999);
    cluster.client_sends(40_000, syn(), b"");
    let seen = cluster.server_receives().expect("it passes").tuple;
    trace_all(&mut cluster, 0);
    cluster.server_sends(seen.source_port, syn_ack(), b"");
    cluster.client_receives().expect("it passes");

    let traces = traces(&mut cluster, 0);
    let trace = traces.iter().find(|trace| matches!(trace.arrival, Arrival::Ip(_))).expect("beside ARP");
    let original = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 80));
    assert!(
        matches!(trace.steps[0], Step::Known { direction: Direction::Reply, state: "SYN_SENT", original: found, is_copy: false, .. } if found == original),
        "{:?}",
        trace.steps
    );
    assert!(
        matches!(trace.steps[1], Step::Tracked { before: "SYN_SENT", after: "SYN_RECV", verdict: Ok(()), .. }),
        "{:?}",
        trace.steps
    );
    let Arrival::Ip(came) = trace.arrival else { panic!("a packet came in") };
    assert!(
        matches!(trace.outcome, Outcome::Sent { port: INSIDE, ip: Some((tuple, ttl)), .. } if tuple == original.inverse() && ttl + 1 == came.ttl),
        "{:?}",
        trace.outcome
    );
}

#[test]
fn a_plain_segment_is_tracked_once() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    trace_all(&mut cluster, 0);
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"");
    cluster.client_receives().expect("it passes");
    let traces = traces(&mut cluster, 0);
    let is_tracked = |step: &&Step| matches!(step, Step::Tracked { before: "ESTABLISHED", after: "ESTABLISHED", .. });
    assert_eq!(traces[0].steps.iter().filter(is_tracked).count(), 1, "{:?}", traces[0].steps);
}

#[test]
fn the_trace_of_a_replicas_first_packet_shows_the_take_over() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    trace_all(&mut cluster, 1);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);

    let traces = traces(&mut cluster, 1);
    let of_connection: Vec<_> = traces.iter().filter(|trace| matches!(trace.arrival, Arrival::Ip(_))).collect();
    let [first, second] = of_connection[..] else { panic!("a question and an answer: {of_connection:?}") };
    assert!(matches!(first.steps[0], Step::Known { is_copy: true, master: NodeId(0), .. }), "{:?}", first.steps);
    assert_eq!(first.steps[1], Step::TakenOver { from: NodeId(0) });
    assert!(matches!(second.steps[0], Step::Known { is_copy: false, master: NodeId(1), .. }), "{:?}", second.steps);
    assert!(!second.steps.iter().any(|step| matches!(step, Step::TakenOver { .. })), "only once");
}

#[test]
fn both_directions_of_a_translated_connection_are_traced_by_a_port_of_either_side() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    for port in [40_000, seen_port] {
        let tuple = TupleFilter { port: Some(port), ..TupleFilter::default() };
        watch(&mut cluster, 0, Subject::Packets(PacketFilter { tuple, ..PacketFilter::default() }));
        exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
        let ingress: Vec<_> = traces(&mut cluster, 0).iter().map(|trace| trace.ingress).collect();
        assert_eq!(ingress, [INSIDE, OUTSIDE], "question and answer, by port {port}");
        cluster.node_mut(0).pipeline_mut().observation_mut().end(WATCH);
    }
}

#[test]
fn frames_of_the_nodes_among_themselves_are_traced_only_if_asked_for() {
    let options = Options { has_service_paths: true, ..Options::default() };
    let heartbeats = |own_frames: OwnFrames, subject: fn(PacketFilter) -> Subject| {
        let mut cluster = Cluster::start(options);
        watch(&mut cluster, 0, subject(PacketFilter { own_frames, ..PacketFilter::default() }));
        cluster.run(Duration::from_secs(1));
        let observation = cluster.node_mut(0).pipeline_mut().observation_mut();
        // Neighbours are asked for, too: those are packets as others.
        let is_own = |observed: &Observed| match &observed.sight {
            Sight::Packet(trace) => matches!(trace.arrival, Arrival::Refused(_)),
            Sight::Frame(frame) => is_path_frame(&frame.bytes),
            Sight::Connection(_) => false,
        };
        core::iter::from_fn(|| observation.poll()).filter(is_own).count()
    };
    let subjects: [fn(PacketFilter) -> Subject; 2] =
        [Subject::Packets, |filter| Subject::Frames { at: Point::Ingress, filter, snapshot_bytes: 1500 }];
    for subject in subjects {
        assert_eq!(heartbeats(OwnFrames::default(), subject), 0);
        assert!(heartbeats(OwnFrames::Included, subject) > 0);
    }
}

#[test]
fn replication_over_a_service_port_is_traced_only_if_asked_for() {
    let replication = Tuple::v4(ip_protocol::UDP, (CLIENT, 3781), (SERVER, 3781));
    let address = core::net::SocketAddr::from((SERVER, 3781));
    let (left_out, any) = (OwnFrames::LeftOut(std::vec![address]), TupleFilter::default());
    let port = TupleFilter { port: Some(3781), ..TupleFilter::default() };
    for (own_frames, tuple, expected) in
        [(left_out.clone(), any.clone(), 0), (left_out, port, 1), (OwnFrames::Included, any, 1)]
    {
        let mut cluster = Cluster::start(Options::default());
        watch(&mut cluster, 0, Subject::Packets(PacketFilter { own_frames, tuple, ..PacketFilter::default() }));
        cluster.client_sends_frame(|envelope| envelope.udp(&replication, b"an update"));
        let udp = traces(&mut cluster, 0).iter().filter(|trace| matches!(trace.arrival, Arrival::Ip(_))).count();
        assert_eq!(udp, expected);
    }
}

#[test]
fn only_packets_that_the_filter_wants_are_traced() {
    let mut cluster = Cluster::start(Options::default());
    let tuple = TupleFilter { source: Some(core::net::IpAddr::from(CLIENT).into()), ..TupleFilter::default() };
    watch(&mut cluster, 0, Subject::Packets(PacketFilter { tuple, ..PacketFilter::default() }));
    cluster.connect(40_000);
    let found = traces(&mut cluster, 0);
    assert_eq!(found.len(), 2, "the SYN and the ACK, neither the answer nor ARP: {found:?}");
    assert!(found.iter().all(|trace| trace.ingress == INSIDE));

    cluster.node_mut(0).pipeline_mut().observation_mut().end(WATCH);
    cluster.client_sends(40_001, syn(), b"");
    assert!(traces(&mut cluster, 0).is_empty(), "nobody looks any more");
}

#[test]
fn drops_can_be_traced_by_their_reason() {
    let dropped = |dropped| Subject::Packets(PacketFilter { dropped: Some(dropped), ..PacketFilter::default() });
    let drop_twice = |cluster: &mut Cluster| {
        cluster.connect(40_000);
        cluster.server_sends(2000, syn(), b"");
        cluster.hand_in(OUTSIDE, std::vec![0; 10]);
    };
    let outcomes = |found: &[PacketTrace]| found.iter().map(|trace| trace.outcome).collect::<Vec<_>>();

    let mut cluster = Cluster::start(Options::default());
    watch(&mut cluster, 0, dropped(Dropped::Anyhow));
    drop_twice(&mut cluster);
    let all = traces(&mut cluster, 0);
    assert_eq!(outcomes(&all), [Outcome::Dropped(DropReason::FirewallDenied), Outcome::Dropped(DropReason::Truncated)]);
    assert_eq!(all[1].arrival, Arrival::Refused(DropReason::Truncated), "it came no further than the parser");

    let mut cluster = Cluster::start(Options::default());
    watch(&mut cluster, 0, dropped(Dropped::For(DropReason::Truncated)));
    drop_twice(&mut cluster);
    assert_eq!(outcomes(&traces(&mut cluster, 0)), [Outcome::Dropped(DropReason::Truncated)]);
}

#[test]
fn an_icmp_error_is_traced_with_the_connection_that_it_is_about() {
    let mut cluster = Cluster::start(Options::default());
    cluster.client_sends(40_000, syn(), b"");
    let syn = cluster.server_receives().expect("the SYN passes");
    // The error itself has no ports; the packet that it quotes has, as it was seen outside.
    let tuple = TupleFilter { port: Some(syn.tuple.source_port), ..TupleFilter::default() };
    watch(&mut cluster, 0, Subject::Packets(PacketFilter { tuple, ..PacketFilter::default() }));
    let header = build::IcmpHeader { kind: 3, code: 1, parameter: 0 };
    let packet = &syn.bytes[usize::from(syn.headers.l3_offset)..];
    cluster.server_sends_frame(|envelope| envelope.icmp_error(SERVER.into(), header, packet).unwrap());
    let [trace] = &traces(&mut cluster, 0)[..] else { panic!("one packet, one trace") };
    let original = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 80));
    assert_eq!(trace.steps[0], Step::QuotesPacketOf { original });
    assert!(matches!(trace.steps[1], Step::Routed(Some(RoutedTo { port: INSIDE, .. }))), "{:?}", trace.steps);
}

#[test]
fn a_packet_for_another_worker_is_traced_there_and_until_it_is_handed_over() {
    let mut site = Site::started(2);
    for node in &mut site.nodes[0] {
        let tuple = TupleFilter { source: Some(core::net::IpAddr::from(CLIENT).into()), ..TupleFilter::default() };
        node.pipeline_mut()
            .observation_mut()
            .begin(WATCH, Subject::Packets(PacketFilter { tuple, ..PacketFilter::default() }), 1000)
            .unwrap();
    }
    site.arrives_at = Some(WorkerId::LEAD);
    for port in 40_000..40_008 {
        let _ = site.connect(port);
    }
    let mut polled = site.nodes[0].iter_mut().map(|node| {
        let sights =
            core::iter::from_fn(|| node.pipeline_mut().observation_mut().poll()).map(|observed| observed.sight);
        let traces = sights.filter_map(|sight| if let Sight::Packet(trace) = sight { Some(*trace) } else { None });
        traces.collect::<Vec<_>>()
    });
    let (at_lead, at_other) = (polled.next().unwrap(), polled.next().unwrap());
    let (handed, kept): (Vec<_>, Vec<_>) =
        at_lead.iter().partition(|trace| trace.steps == [Step::HandedOver(WorkerId(1))]);
    assert!(!handed.is_empty() && handed.iter().all(|trace| trace.outcome == Outcome::Consumed));
    assert_eq!(handed.len(), at_other.len(), "each goes on there");
    assert_eq!(handed.len() + kept.len(), 16, "a SYN and an ACK of each connection");
    let is_sent = |trace: &PacketTrace| matches!(trace.outcome, Outcome::Sent { .. });
    assert!(at_other.iter().skip(1).all(is_sent) && kept.into_iter().skip(1).all(is_sent));
}

#[test]
fn frames_are_captured_where_they_are_wanted() {
    let capture = |at: Point| {
        let mut cluster = Cluster::start(Options::default());
        let tuple = TupleFilter { source: Some(core::net::IpAddr::from(CLIENT).into()), ..TupleFilter::default() };
        let filter = PacketFilter { tuple, ..PacketFilter::default() };
        // The server's link address is known before.
        cluster.connect(39_999);
        watch(&mut cluster, 0, Subject::Frames { at, filter, snapshot_bytes: 1500 });
        cluster.client_sends(40_000, syn(), b"");
        let seen = cluster.server_receives().expect("it passes");
        let [frame] = &frames(&mut cluster, 0)[..] else { panic!("one frame is captured") };
        (frame.clone(), seen)
    };
    let own = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 80));
    let (frame, _) = capture(Point::Ingress);
    assert_eq!((frame.port, tuple_of(&frame)), (INSIDE, own));
    let (frame, seen) = capture(Point::After("nat".to_string()));
    assert_eq!((frame.port, tuple_of(&frame)), (INSIDE, seen.tuple));
    assert_eq!(seen.tuple.source_ip(), SHARED_OUTSIDE);
    let (frame, seen) = capture(Point::Egress);
    assert_eq!(frame.port, OUTSIDE);
    assert_eq!(frame.bytes, seen.bytes, "as it leaves, link addresses and all");
}

#[test]
fn dropped_frames_are_captured_with_their_reason_and_no_longer_than_wanted() {
    let mut cluster = Cluster::start(Options::default());
    let filter = PacketFilter::default();
    watch(&mut cluster, 0, Subject::Frames { at: Point::Drop, filter, snapshot_bytes: 20 });
    cluster.connect(40_000);
    cluster.server_sends(2000, syn(), b"data that is not kept");
    let [frame] = &frames(&mut cluster, 0)[..] else { panic!("one frame is dropped") };
    assert_eq!((frame.dropped, frame.bytes.len()), (Some(DropReason::FirewallDenied), 20));
    assert_eq!(frame.length_bytes, 14 + 20 + 20 + 21);
}

#[test]
fn connections_are_followed_from_their_beginning_to_their_end() {
    let mut cluster = Cluster::start(Options::default());
    let filter = TupleFilter { port: Some(40_000), ..TupleFilter::default() };
    watch(&mut cluster, 0, Subject::Connections(filter));
    let _ = cluster.connect(40_001);
    let seen_port = cluster.connect(40_000);
    cluster.server_sends(seen_port, segment(tcp_flags::RST | ACK, 5001, 1001), b"");
    cluster.run_until("the connection to end", |cluster| cluster.connections(0) == 1);

    let mut observed_changes = Vec::new();
    while let Some(observed) = cluster.node_mut(0).pipeline_mut().observation_mut().poll() {
        let Sight::Connection(event) = observed.sight else { panic!("connections are followed") };
        assert_eq!(event.connection.original.source_port, 40_000);
        observed_changes.push((event.change, event.connection.packets));
    }
    assert_eq!(observed_changes.first(), Some(&(ConnectionChange::Began, [1, 0])));
    assert_eq!(observed_changes.last(), Some(&(ConnectionChange::Ended, [2, 2])), "with all that it has carried");
    let changes = observed_changes.iter().filter(|(change, _)| *change == ConnectionChange::Changed).count();
    assert_eq!((changes, observed_changes.len()), (3, 5), "SYN_RECV, ESTABLISHED and CLOSE: {observed_changes:?}");
}

#[test]
fn a_watch_ends_when_it_has_seen_enough_and_reports_what_it_missed() {
    let mut cluster = Cluster::start(Options::default());
    let node = cluster.node_mut(0);
    node.pipeline_mut().observation_mut().begin(WatchId(1), Subject::Packets(PacketFilter::default()), 2).unwrap();
    cluster.server_sends(2000, syn(), b"");
    cluster.server_sends(2000, syn(), b"");
    cluster.server_sends(2000, syn(), b"");
    assert_eq!(traces(&mut cluster, 0).len(), 2);
    cluster.node_mut(0).pipeline_mut().observation_mut().end(WatchId(1));

    cluster
        .node_mut(0)
        .pipeline_mut()
        .observation_mut()
        .begin(WATCH, Subject::Packets(PacketFilter::default()), u64::MAX)
        .unwrap();
    for _ in 0..OBSERVED_WAITING_MAX + 5 {
        cluster.server_sends(2000, syn(), b"");
    }
    assert_eq!(cluster.node(0).pipeline().observation().missed(WATCH), 5);
    assert_eq!(traces(&mut cluster, 0).len(), OBSERVED_WAITING_MAX);
    cluster.server_sends(2000, syn(), b"");
    assert_eq!(cluster.node_mut(0).pipeline_mut().observation_mut().poll().expect("there is room again").missed, 5);
}

#[test]
fn there_are_only_so_many_watches() {
    let mut cluster = Cluster::start(Options::default());
    let node = cluster.node_mut(0);
    for number in 0..WATCHES_MAX as u64 {
        node.pipeline_mut()
            .observation_mut()
            .begin(WatchId(number), Subject::Connections(TupleFilter::default()), 1)
            .unwrap();
    }
    let refused = node.pipeline_mut().observation_mut().begin(WATCH, Subject::Connections(TupleFilter::default()), 1);
    assert_eq!(refused, Err(TooManyWatches));
    node.pipeline_mut().observation_mut().end(WatchId(0));
    assert_eq!(
        node.pipeline_mut().observation_mut().begin(WATCH, Subject::Connections(TupleFilter::default()), 1),
        Ok(())
    );
}

/// A hundred nanoseconds pass whenever it is read.
#[derive(Default)]
struct Ticking(AtomicU64);

impl Stopwatch for Ticking {
    fn nanoseconds(&self) -> u64 {
        self.0.fetch_add(100, Ordering::Relaxed)
    }
}

#[test]
fn one_batch_in_so_many_is_measured_with_its_functions() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    cluster.node_mut(0).pipeline_mut().observation_mut().set_stopwatch(Box::new(Ticking::default()));
    for _ in 0..2 * BATCHES_PER_SAMPLE {
        cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"");
    }
    let latencies = cluster.node(0).pipeline().observation().latencies();
    assert_eq!((latencies.batch.count(), latencies.batch_packets), (2, 2));
    let measured: Vec<_> =
        latencies.functions.iter().map(|of| (of.name, of.packet.count(), of.begin.count())).collect();
    assert_eq!(measured, [("ftp", 2, 0), ("nat", 2, 0)], "the firewall has no part in these");
    assert_eq!(latencies.functions[0].packet.sum_ns, 200);
}
