//! A quota that two nodes count, one after the other, with clocks that are wrong.
//!
//! Guarantees: a node forwards at most the amount in each of its periods, once more for each step of its clock; and the quota goes on: of three
//! further periods at least one has the whole amount.

use std::sync::Arc;
use std::time::Duration;

use flow::conntrack::ProtocolState;
use flow::wire::{Packet, Parsed, build, ip_protocol, parse};
use flow::{Connection, Direction, Frame, HashKey, Instant, NodeId, PortId, Tuple};
use network_functions::chain::{Chain, ChainBuilder, ChainCounters, Runtime};
use network_functions::expectation::Expectations;
use network_functions::function::{HandshakeExchange, TupleUse, Verdict};
use network_functions::inspect::assembly::Assemblies;
use network_functions::log::Log;
use network_functions::rate_limit::{LimitConfig, Per, Quota, RateLimit, RateLimitRules, RuleConfig, Unit};

use super::wall::WallClocks;
use crate::Sabotage;
use crate::random::Random;
use crate::report::{Outcome, Problem};
use crate::scenario::Scenario;

const PERIOD: Duration = Duration::from_secs(10);
const AMOUNT: u64 = 64;
/// The clocks are read so often.
const TURN: Duration = Duration::from_secs(1);
/// Packets of a turn at most.
const SENT_MAX: u64 = 40;

struct NothingUsed;

impl TupleUse for NothingUsed {
    fn is_used(&self, _: &Tuple) -> bool {
        false
    }
}

struct Counting {
    id: usize,
    rules: Arc<RateLimitRules>,
    chain: Chain,
    counters: ChainCounters,
    log: Log,
    assemblies: Assemblies,
    expectations: Expectations,
    passed: u64,
    /// Periods that have begun, by the node's clock.
    periods: u64,
    period: u64,
    /// A deliberate defect: the clock that the quota reads stands still.
    stuck_at: Option<Duration>,
}

impl Counting {
    fn new(id: usize, per: Per) -> Self {
        let quota = Quota { unit: Unit::Packets, amount: AMOUNT, period: PERIOD };
        let limit = LimitConfig { per, quota: Some(quota), ..LimitConfig::default() };
        let rule = RuleConfig { name: "all".into(), limits: vec![limit], ..RuleConfig::default() };
        let rules = Arc::new(RateLimitRules::new(&[rule], HashKey([1, 2]), None).expect("one sound rule"));
        let chain = ChainBuilder::new().push(RateLimit::new(Arc::clone(&rules))).build().expect("one function");
        Self {
            id,
            rules,
            counters: chain.new_counters(),
            chain,
            log: Log::default(),
            assemblies: Assemblies::default(),
            expectations: Expectations::default(),
            passed: 0,
            periods: 0,
            period: u64::MAX,
            stuck_at: None,
        }
    }

    fn set_clock(&mut self, now: Instant, unix_time: Duration) {
        self.rules.set_unix_time(now, self.stuck_at.unwrap_or(unix_time));
        let period = unix_time.as_secs() / PERIOD.as_secs();
        self.periods += u64::from(std::mem::replace(&mut self.period, period) != period);
    }

    /// Calls `with` with a packet of the connection, and what the chain needs.
    fn with_packet<R>(
        &mut self,
        now: Instant,
        original: &Tuple,
        with: impl FnOnce(&Chain, &mut Runtime<'_>, &mut Packet<'_, '_>) -> R,
    ) -> R {
        let mut bytes = build::udp(original, b"");
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).expect("the frame is its buffer");
        let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { unreachable!("it was built soundly") };
        let mut runtime = Runtime {
            now,
            node: NodeId(self.id as u8),
            counters: &mut self.counters,
            log: &mut self.log,
            assemblies: &mut self.assemblies,
            expectations: &mut self.expectations,
            handshake: HandshakeExchange::NONE,
        };
        with(&self.chain, &mut runtime, &mut Packet { frame: &mut frame, headers: &mut headers })
    }

    fn begin(&mut self, now: Instant, connection: &mut Connection) {
        let original = connection.original;
        let begun = self.with_packet(now, &original, |chain, runtime, packet| {
            chain.init(runtime, &NothingUsed, connection, packet)
        });
        begun.expect("connections are not limited");
        self.chain.note_entered(connection);
    }

    /// Forwards packets as far as the quota allows. The other node gets the state whenever it must.
    fn forward(&mut self, now: Instant, connection: &mut Connection, count: u64, peer: &mut Self) -> u64 {
        let original = connection.original;
        let mut passed = 0;
        for _ in 0..count {
            let processed = self.with_packet(now, &original, |chain, runtime, packet| {
                chain.process(runtime, connection, packet, Direction::Original)
            });
            passed += u64::from(processed.verdict == Verdict::Forward);
            if processed.states_changed {
                self.replicate(connection, peer);
            }
        }
        self.passed += passed;
        passed
    }

    fn replicate(&self, connection: &Connection, peer: &Self) {
        let (mut attributes, mut replica) = (Vec::new(), *connection);
        self.chain.encode_states(connection, &mut attributes);
        peer.chain.decode_states(&mut replica, &attributes).expect("both are of one release");
        peer.chain.note_entered(&replica);
    }
}

pub(super) fn check(scenario: &Scenario, clocks: &WallClocks, sabotage: Option<Sabotage>, outcome: &mut Outcome) {
    let mut random = Random::new(scenario.seed ^ 0x9007a);
    let per = random.pick(&[Per::Rule, Per::Source]);
    let [mut active, mut standby] = [0, 1].map(|id| Counting::new(id, per));
    let original = Tuple::v4(ip_protocol::UDP, ([10, 0, 0, 1].into(), 4000), ([192, 0, 2, 1].into(), 53));
    let mut connection = Connection::new(original, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
    let mut now = Instant::ZERO;
    active.set_clock(now, clocks.unix_time(active.id, now));
    standby.set_clock(now, clocks.unix_time(standby.id, now));
    active.begin(now, &mut connection);
    active.replicate(&connection, &standby);
    while now < scenario.calm_at {
        now = now + TURN;
        for node in [&mut active, &mut standby] {
            if sabotage == Some(Sabotage::ForgottenQuotas) {
                let Counting { passed, periods, period, .. } = *node;
                *node = Counting { passed, periods, period, ..Counting::new(node.id, per) };
            }
            node.stuck_at = (sabotage == Some(Sabotage::StuckQuotas)).then(|| clocks.unix_time(node.id, Instant::ZERO));
            node.set_clock(now, clocks.unix_time(node.id, now));
        }
        if random.chance(100) {
            std::mem::swap(&mut active, &mut standby);
        }
        let count = random.between(0, SENT_MAX);
        active.forward(now, &mut connection, count, &mut standby);
        for node in [&active, &standby] {
            let most = (node.periods + clocks.steps_of(node.id, now)) * AMOUNT;
            if node.passed > most {
                let text = format!("node {} forwarded {} packets of {most}", node.id, node.passed);
                outcome.problem(now, Problem::QuotaExceeded, text);
                return;
            }
        }
    }
    outcome.clocks.quota_periods += active.periods + standby.periods;
    verify_that_it_goes_on(now, clocks, [active, standby], connection, outcome);
}

fn verify_that_it_goes_on(
    mut now: Instant,
    clocks: &WallClocks,
    [mut active, mut standby]: [Counting; 2],
    mut connection: Connection,
    outcome: &mut Outcome,
) {
    // The present period, of which something may be used, and three further ones.
    let mut passed = [0; 4];
    for passed in &mut passed {
        for node in [&mut active, &mut standby] {
            node.set_clock(now, clocks.unix_time(node.id, now));
        }
        *passed = active.forward(now, &mut connection, 2 * AMOUNT, &mut standby);
        now = now + PERIOD;
    }
    if passed[1..].iter().max() != Some(&AMOUNT) {
        let text = format!("node {} forwards {passed:?} packets in its periods, of {AMOUNT} in each", active.id);
        outcome.problem(now, Problem::QuotaStopped, text);
    }
}
