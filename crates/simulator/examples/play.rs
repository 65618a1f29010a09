//! Plays seeds and prints what broke, shortly.
use std::collections::BTreeMap;
use simulator::{Options, run_many, run};
fn main() {
    let mut args = std::env::args().skip(1);
    let faults = args.next().unwrap().parse().unwrap();
    let first: u64 = args.next().unwrap().parse().unwrap();
    let seeds: u64 = args.next().unwrap().parse().unwrap();
    let trace = args.next().is_some();
    let options = Options { faults, trace, ..Options::default() };
    if trace {
        println!("{:#?}", simulator::scenario::Scenario::generate(first, faults).episodes);
        let outcome = run(first, options);
        for line in &outcome.trace { println!("{line}"); }
        println!("{:#?}", outcome.problems);
        return;
    }
    let mut totals = simulator::report::Totals::default();
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    run_many(first, seeds, 2.try_into().unwrap(), options, |outcome| {
        totals.add(&outcome);
        let mut seen = std::collections::BTreeSet::new();
        for p in &outcome.problems {
            if seen.insert(p.problem) {
                kinds.entry(format!("{:?}", p.problem)).or_default().push(outcome.seed);
            }
        }
        if seeds <= 10 || std::env::var("VERBOSE").is_ok() {
            for p in &outcome.problems { println!("seed {} {:?} {:?}: {} {:?}", outcome.seed, p.at, p.problem, p.text, outcome.families); }
        }
    });
    for (k, v) in &kinds { println!("{k}: {} {:?}", v.len(), &v[..v.len().min(12)]); }
    for (f, p) in &totals.by_fault { println!("{:16} {:5} {:5}", f.name(), p.played, p.failures); }
    println!("{} of {} failed; risk {} survived {} kills {} pauses {} events {}", totals.failures, totals.seeds, totals.connections, totals.survived, totals.kills, totals.pauses, totals.events);
}
