//! What the ns-3 program prints.

use std::num::ParseFloatError;

use analysis::tcp_failover::{Estimate, Kind, WithAndWithout};

/// The program's first line: its name and the version of its columns.
const FIRST_LINE: &str = "ns-3 failover 1";
/// Columns of a line: see `crates/lab/ns3/failover.cc`.
const COLUMNS: usize = 8;

/// Flows of one kind that were interrupted for the same time.
#[derive(Clone, PartialEq, Debug)]
pub struct OutageFlows {
    /// The duration of the outage in seconds.
    pub outage_s: f64,
    /// The figures of each flow.
    pub flows: Vec<Estimate>,
}

/// Why the output of the program has no figures.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowsError {
    /// The first line is another one.
    #[error("the ns-3 program printed {0:?} where {FIRST_LINE:?} was expected: remove it from --ns3-dir")]
    AnotherProgram(String),
    /// A line is malformed.
    #[error("line {line} of the ns-3 program: {reason}; this is a defect")]
    Malformed {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A flow did not end.
    #[error("line {line} of the ns-3 program: the flow with seed {seed} did not complete; this is a defect")]
    Incomplete {
        /// Its number, from 1.
        line: usize,
        /// The seed.
        seed: String,
    },
    /// There are more or fewer lines than flows.
    #[error("the ns-3 program printed {found} flows instead of {expected}; this is a defect")]
    Count {
        /// Lines.
        found: usize,
        /// Flows that were asked for.
        expected: usize,
    },
}

/// Reads the flows of a kind from the program's output: `runs` for each of `outages_s`, in any order.
///
/// # Errors
/// The first line that is not as expected, or a flow that is missing.
pub(super) fn read(text: &str, kind: Kind, outages_s: &[f64], runs: u32) -> Result<Vec<OutageFlows>, FlowsError> {
    let mut lines = text.lines().zip(1..);
    let first = lines.next().map(|(line, _)| line).unwrap_or_default();
    if first != FIRST_LINE {
        return Err(FlowsError::AnotherProgram(first.chars().take(80).collect()));
    }
    let mut found: Vec<_> =
        outages_s.iter().map(|outage_s| OutageFlows { outage_s: *outage_s, flows: vec![] }).collect();
    for (text, line) in lines {
        let (outage_s, flow) = read_line(text, line, kind)?;
        // The program prints nine digits.
        let of = found.iter_mut().find(|flows| (flows.outage_s - outage_s).abs() <= 1e-7 * outage_s.max(1.0));
        let unknown = || malformed(line, format!("no outage of {outage_s} s was asked for"));
        of.ok_or_else(unknown)?.flows.push(flow);
    }
    match found.iter().find(|flows| flows.flows.len() != runs as usize) {
        Some(flows) => Err(FlowsError::Count { found: flows.flows.len(), expected: runs as usize }),
        None => Ok(found),
    }
}

fn read_line(text: &str, line: usize, kind: Kind) -> Result<(f64, Estimate), FlowsError> {
    let columns: Vec<&str> = text.split(' ').collect();
    if columns.len() != COLUMNS {
        return Err(malformed(line, format!("{} columns instead of {COLUMNS}", columns.len())));
    }
    if columns[0] != kind.name() {
        return Err(malformed(line, format!("flows of kind {} instead of {}", columns[0], kind.name())));
    }
    let figure = |column: usize| {
        let figure = columns[column].parse().map_err(|error: ParseFloatError| malformed(line, error.to_string()))?;
        match figure {
            -1.0 => Err(FlowsError::Incomplete { line, seed: columns[2].to_owned() }),
            figure if f64::is_finite(figure) && figure >= 0.0 => Ok(figure),
            figure => Err(malformed(line, format!("{figure} is no duration"))),
        }
    };
    let estimate = Estimate {
        undisturbed_s: figure(3)?,
        stall_s: WithAndWithout { without: figure(4)?, with: figure(6)? },
        completion_s: WithAndWithout { without: figure(5)?, with: figure(7)? },
    };
    Ok((figure(1)?, estimate))
}

fn malformed(line: usize, reason: String) -> FlowsError {
    FlowsError::Malformed { line, reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two outages and two seeds, as the program prints them.
    const OUTPUT: &str = "ns-3 failover 1\n\
        bulk 0.5 1 2.2001006 0.42501202 4.10020002 0 3.675188\n\
        bulk 3 1 2.2001006 1.52501202 7.70020002 0 6.175188\n\
        bulk 0.5 2 2.2001006 0.47501202 4.10020002 0 3.625188\n\
        bulk 3 2 2.2001006 1.57501202 7.70020002 0 6.125188\n";

    #[test]
    fn flows_are_sorted_by_their_outage() {
        let found = read(OUTPUT, Kind::Bulk, &[0.5, 3.0], 2).expect("it is right");
        assert_eq!(
            found.iter().map(|flows| (flows.outage_s, flows.flows.len())).collect::<Vec<_>>(),
            [(0.5, 2), (3.0, 2)]
        );
        let expected = Estimate {
            undisturbed_s: 2.2001006,
            stall_s: WithAndWithout { without: 1.57501202, with: 0.0 },
            completion_s: WithAndWithout { without: 7.70020002, with: 6.125188 },
        };
        assert_eq!(found[1].flows[1], expected);
    }

    #[test]
    fn output_that_is_not_as_expected_is_refused_with_its_line() {
        let refused = |text: &str| read(text, Kind::Bulk, &[0.5, 3.0], 2).expect_err("wrong").to_string();
        for (from, to, part) in [
            ("ns-3 failover 1", "ns-3 failover 2", "\"ns-3 failover 1\" was expected"),
            ("bulk 3 1", "short 3 1", "line 3 of the ns-3 program: flows of kind short"),
            ("bulk 3 1", "bulk 4 1", "no outage of 4 s"),
            (" 3.675188", "", "line 2 of the ns-3 program: 7 columns"),
            ("3.675188", "-1", "seed 1 did not complete"),
            ("3.675188", "-2", "-2 is no duration"),
            ("3.675188", "NaN", "NaN is no duration"),
            ("3.675188", "x", "invalid float"),
            ("bulk 3 2 2.2001006 1.57501202 7.70020002 0 6.125188\n", "", "1 flows instead of 2"),
        ] {
            let text = OUTPUT.replacen(from, to, 1);
            assert!(text != OUTPUT && refused(&text).contains(part), "{part}: {}", refused(&text));
        }
        assert!(refused("").contains("was expected"));
    }

    proptest! {
        /// No output makes the reader panic, and what it accepts has all flows.
        #[test]
        fn any_output_is_read_or_refused(lines in proptest::collection::vec("(bulk )?[0-9eE.+ -]{0,60}", 0..6)) {
            let text = format!("{FIRST_LINE}\n{}\n", lines.join("\n"));
            if let Ok(found) = read(&text, Kind::Bulk, &[1.0], 1) {
                prop_assert!(found.len() == 1 && found[0].flows.len() == 1);
            }
        }
    }
}
