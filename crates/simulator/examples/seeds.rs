//! Runs seeds: `seeds FIRST COUNT [trace]`.

use std::num::NonZeroUsize;

use simulator::report::Totals;
use simulator::{Options, run, run_many};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (first, count): (u64, u64) = (number(), number());
    if arguments.next().is_some() {
        let outcome = run(first, Options { trace: true, ..Options::default() });
        outcome.trace.iter().for_each(|line| println!("{line}"));
        eprintln!("{:#?}", outcome.problems);
        return;
    }
    let mut totals = Totals::default();
    run_many(first, count, NonZeroUsize::new(2).unwrap(), Options::default(), |outcome| {
        totals.add(&outcome);
        for problem in &outcome.problems {
            println!("seed {} {:?} {:?}: {}", outcome.seed, problem.at, problem.problem, problem.text);
        }
    });
    println!("{totals:?}");
}
