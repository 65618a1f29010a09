//! Connection tracking against the kernel's: the same random segments, valid and invalid, through Mainstay's pipeline and
//! through `nf_conntrack` of the machine that runs the test. Every segment's verdict is compared, and beside it what
//! became of the connection: whether it began or ended, which way the segment went, whether the connection counts as
//! answered and as assured, and which of the timeouts it got, which shows its state.
//!
//! A difference needs an explanation, which is code ([`explanation::Explanation`]) and stands in `docs/conformance.md`.
//! `DIFFERENTIAL_SEED` and `DIFFERENTIAL_EXCHANGES` choose another run than the usual one; a difference is printed as a
//! script of segments that replays it.

mod comparison;
mod damage;
mod end_point;
mod exchange;
mod explanation;
mod kernel;
mod observation;
mod pipeline;
mod random;
mod report;
mod segment;

use comparison::{Comparison, Options};
use kernel::{Kernel, Unavailable};
use report::Report;

/// Exchanges of each of the three settings.
const EXCHANGES: u32 = 5000;
/// What the usual run begins with.
const SEED: u64 = 0x6d61_696e_7374_6179;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is \"{text}\": set it to a number, or to none")))
}

fn compare(options: Options) -> Option<Report> {
    let kernel = match Kernel::start(options) {
        Ok(kernel) => kernel,
        Err(Unavailable(why)) => {
            packet_io::namespace::skip(format_args!("{why}"));
            return None;
        }
    };
    let seed = number("DIFFERENTIAL_SEED").unwrap_or(SEED);
    let exchanges = number("DIFFERENTIAL_EXCHANGES").map_or(EXCHANGES, |number| number as u32);
    let report = Comparison::new(options, seed, exchanges).run(kernel);
    println!("{report}");
    println!("{}", report.to_json());
    Some(report)
}

/// Nothing differs without an explanation, and enough of everything was seen for that to mean something.
fn check(report: Option<Report>) {
    let Some(report) = report else { return };
    assert!(report.unexplained.is_empty(), "{} differences are not explained", report.unexplained_total);
    assert!(report.packets > u64::from(report.exchanges) * 5, "the exchanges were hardly played");
    for (what, share) in report.shares() {
        assert!(share > 0.02, "only {:.1} % of the segments {what}", share * 100.0);
    }
}

#[test]
fn differential_tcp_tracking_is_that_of_the_kernel() {
    check(compare(Options { loose: false, liberal: false }));
}

#[test]
fn differential_tcp_tracking_that_picks_up_connections_is_that_of_the_kernel() {
    check(compare(Options { loose: true, liberal: false }));
}

#[test]
fn differential_tcp_tracking_that_is_liberal_is_that_of_the_kernel() {
    check(compare(Options { loose: false, liberal: true }));
}

#[test]
fn differential_explanations_are_all_documented() {
    let documentation = include_str!("../../../../docs/conformance.md");
    for explanation in explanation::Explanation::ALL {
        let label = explanation.label();
        assert!(documentation.contains(&format!("`{label}`")), "docs/conformance.md lacks {label}");
    }
}
