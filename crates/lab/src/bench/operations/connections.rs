//! What is done once for a connection or an update of one: rules, SYN cookies, updates for a peer.

use std::hint::black_box;

use cluster::pipeline::ChainStates;
use flow::wire::ip_protocol;
use flow::{Connection, Instant, IpFamily, PortId, Tuple};
use network_functions::chain::Chain;
use network_functions::class::Class;
use network_functions::port_range::PortRange;
use network_functions::rule_set::{Conditions, RuleKey, RuleSet};
use network_functions::syn_cookie::{ClientOptions, Cookie, CookieKey, CookieKeys};
use replication::representation::precise;

use super::operation::{Made, Operation};
use crate::bench::BenchError;
use crate::bench::pipeline::gateway::Gateway;
use crate::bench::pipeline::setting::{self, FIREWALL_RULES, original};
use crate::bench::pipeline::traffic::{Ring, Traffic};

/// Inputs of a run.
const INPUTS: u32 = 1024;
const RULES: u16 = 1000;
/// The clock of the cookies, in milliseconds.
const UNIX_MS: u64 = 1_800_000_000_000;

/// The same work on each of some inputs.
struct OnEach<I, S, F> {
    what: &'static str,
    inputs: Vec<I>,
    shared: S,
    /// Returns whether it succeeded.
    work: F,
}

impl<I: 'static, S: 'static, F: FnMut(&mut S, &I) -> bool + 'static> OnEach<I, S, F> {
    fn operation(what: &'static str, inputs: Vec<I>, shared: S, work: F) -> Made {
        Ok(Some(Box::new(Self { what, inputs, shared, work })))
    }
}

impl<I, S, F: FnMut(&mut S, &I) -> bool> Operation for OnEach<I, S, F> {
    fn times(&self) -> u64 {
        self.inputs.len() as u64
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        let mut failed = 0;
        for input in &self.inputs {
            failed += u64::from(!(self.work)(&mut self.shared, input));
        }
        match failed {
            0 => Ok(()),
            lost => Err(BenchError::Lost { what: self.what, lost, packets: self.inputs.len() as u64 }),
        }
    }
}

fn tuples() -> Vec<Tuple> {
    (0..INPUTS).map(|number| original(IpFamily::V4, ip_protocol::TCP, number)).collect()
}

/// Each rule has a network of clients and a port of its own; the last one takes what is left.
pub(super) fn rule_match() -> Made {
    let conditions = |number: u16| Conditions {
        protocols: vec![ip_protocol::TCP],
        sources: vec![format!("10.{}.0.0/16", number % 256).parse().expect("a prefix")],
        destination_ports: vec![PortRange::single(1000 + number)],
        ..Conditions::default()
    };
    let mut rules: Vec<Conditions> = (1..RULES).map(conditions).collect();
    rules.push(Conditions::default());
    let set = RuleSet::compile(rules.iter()).expect("the rules make sense");
    let key = |(number, tuple): (u16, Tuple)| {
        let tuple = Tuple { destination_port: 1000 + number % (2 * RULES), ..tuple };
        RuleKey { tuple, icmp: None, ingress: PortId(0), class: Class::Unknown }
    };
    let keys = (0..).zip(tuples()).map(key).collect();
    OnEach::operation("the rule set", keys, set, |set, key| black_box(set.classify(key)).is_some())
}

const OPTIONS: ClientOptions =
    ClientOptions { segment_size_index: 6, window_scale: Some(7), sack_permitted: true, timestamps: true };

fn keys() -> CookieKeys {
    CookieKeys::new(CookieKey([1, 2]), [])
}

pub(super) fn cookie_make() -> Made {
    OnEach::operation("SYN cookies", tuples(), keys(), |keys, tuple| {
        black_box(keys.make(UNIX_MS, tuple, 77, &OPTIONS)).timestamp.is_some()
    })
}

pub(super) fn cookie_verify() -> Made {
    let keys = keys();
    let made = |tuple: Tuple| (tuple, keys.make(UNIX_MS, &tuple, 77, &OPTIONS));
    let cookies: Vec<(Tuple, Cookie)> = tuples().into_iter().map(made).collect();
    OnEach::operation("SYN cookies", cookies, keys, |keys, (tuple, cookie)| {
        black_box(keys.verify(UNIX_MS, tuple, 77, *cookie)).is_ok()
    })
}

/// Established connections behind firewall and NAT, and what their states' attributes need.
fn established() -> Result<(Vec<Connection>, Chain, Instant), BenchError> {
    let mut gateway = Gateway::new(INPUTS, FIREWALL_RULES);
    gateway.establish(&mut Traffic::new(IpFamily::V4, INPUTS), &mut Ring::new())?;
    let connections = gateway.pipeline.table().iter().map(|(_, connection)| *connection).collect();
    Ok((connections, setting::chain(FIREWALL_RULES), gateway.now))
}

pub(super) fn update_encode() -> Made {
    let (connections, chain, now) = established()?;
    OnEach::operation("updates", connections, (chain, Vec::new()), move |(chain, out), connection| {
        out.clear();
        precise::encode(now, connection, &ChainStates(chain), out);
        !black_box(out).is_empty()
    })
}

pub(super) fn update_decode() -> Made {
    let (connections, chain, now) = established()?;
    let encoded = |connection: &Connection| {
        let mut out = Vec::new();
        precise::encode(now, connection, &ChainStates(&chain), &mut out);
        out
    };
    let updates = connections.iter().map(encoded).collect();
    OnEach::operation("updates", updates, chain, move |chain, update: &Vec<u8>| {
        black_box(precise::decode(now, update, &ChainStates(chain))).is_ok()
    })
}
