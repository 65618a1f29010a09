//! `cargo run -p xtask -- compare REVISION [OTHER]`: builds two revisions and measures them in turns on this machine.
//!
//! Without OTHER, REVISION is compared with the working tree. A revision is checked out below `target/compare`, and its program is kept
//! there, so that it is built once. The programs run in turns, each first in every second round, so that what disturbs the machine
//! disturbs both. The table has the medians and the probability that such a difference is chance
//! ([Mann and Whitney](statistics::mann_whitney)). As there are many rows, a difference counts as significant only if its
//! probability is below 0.05 divided by their number (Bonferroni).

mod sources;
mod statistics;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::sources::{Figures, Source};
use self::statistics::{mann_whitney, median};
use crate::{performance, program};

const USAGE: &str = "usage: cargo run -p xtask -- compare REVISION [OTHER] [--rounds N]";
/// The probability below which one row alone would be significant.
const SIGNIFICANT_BELOW: f64 = 0.05;
/// Fewest rounds for the test.
const ROUNDS_MIN: u32 = 8;

/// What to compare.
#[derive(Debug, PartialEq)]
struct Order {
    /// One or two revisions.
    revisions: Vec<String>,
    rounds: Option<u32>,
}

/// Carries out `compare` with these arguments.
///
/// # Errors
/// A revision is not known or cannot be built, or a measurement fails.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let order = order(arguments)?;
    let mut sides = Vec::new();
    for revision in &order.revisions {
        sides.push((revision.clone(), program_of(root, revision)?));
    }
    if sides.len() == 1 {
        println!("compare: building the working tree");
        sides.push(("working tree".to_owned(), program::build_release(root, root)?));
    }
    let [(before, first), (after, second)] = &sides[..] else { return Err(USAGE.into()) };
    let programs = [first.as_path(), second.as_path()];
    let source = Source::of(programs);
    let rounds = order.rounds.unwrap_or(source.rounds_default());
    println!("compare: {before} and {after}, {rounds} rounds in turns");
    let samples = measure(source, programs, rounds)?;
    let instructions = match source {
        Source::Operations => count(programs),
        Source::Benchmarks => {
            println!(
                "compare: a revision has no `bench operations`: times of older benchmarks are compared, without instructions"
            );
            None
        }
    };
    print!("{}", table(&samples, instructions.as_ref(), [before, after]));
    Ok(())
}

/// Instructions of both programs; none where they cannot be counted, which is printed.
fn count([first, second]: [&Path; 2]) -> Option<[BTreeMap<String, f64>; 2]> {
    let counted = performance::measure(first).and_then(|first| Ok([first, performance::measure(second)?]));
    counted.map_err(|error| println!("compare: no instructions are counted: {error}")).ok()
}

fn order(arguments: &[String]) -> Result<Order, String> {
    let mut order = Order { revisions: Vec::new(), rounds: None };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => {
                let rounds =
                    arguments.next().and_then(|rounds| rounds.parse().ok()).filter(|rounds| *rounds >= ROUNDS_MIN);
                order.rounds = Some(rounds.ok_or(format!("--rounds needs a number, {ROUNDS_MIN} or more\n{USAGE}"))?);
            }
            option if option.starts_with('-') => return Err(format!("{option} is not known\n{USAGE}")),
            revision => order.revisions.push(revision.to_owned()),
        }
    }
    if matches!(order.revisions.len(), 1 | 2) { Ok(order) } else { Err(USAGE.into()) }
}

/// The program of a revision: built now, or kept from an earlier comparison.
fn program_of(root: &Path, revision: &str) -> Result<PathBuf, String> {
    let commit = git(root, &["rev-parse", "--verify", "--quiet", &format!("{revision}^{{commit}}")])
        .map_err(|_| format!("git knows no revision {revision}: a clone without history lacks it"))?;
    let compiler: String = program::compiler()?.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
    let folder = program::target_folder(root).join("compare");
    let kept = folder.join(format!("mainstay-{commit}-{compiler}"));
    if kept.exists() {
        return Ok(kept);
    }
    println!("compare: building {revision}");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let tree = folder.join(&commit);
    let place = tree.to_string_lossy().into_owned();
    if !tree.exists() {
        git(root, &["worktree", "add", "--detach", "--force", &place, &commit])?;
    }
    let built = program::build_release(root, &tree)
        .and_then(|program| fs::copy(&program, &kept).map_err(|error| format!("{}: {error}", kept.display())));
    git(root, &["worktree", "remove", "--force", &place])?;
    built.map(|_| kept)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("git cannot be run: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// The figures of both programs, by what was measured.
type Samples = BTreeMap<String, [Vec<f64>; 2]>;

fn measure(source: Source, programs: [&Path; 2], rounds: u32) -> Result<Samples, String> {
    let mut samples = Samples::new();
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            add(&mut samples, side, source.measure(programs[side])?);
        }
    }
    // What one revision lacks cannot be compared.
    samples.retain(|_, [one, other]| !one.is_empty() && !other.is_empty());
    Ok(samples)
}

fn add(samples: &mut Samples, side: usize, figures: Figures) {
    for (name, figure) in figures {
        samples.entry(name).or_default()[side].push(figure);
    }
}

fn table(samples: &Samples, instructions: Option<&[BTreeMap<String, f64>; 2]>, [before, after]: [&str; 2]) -> String {
    let mut text = format!(
        "A: {before}\nB: {after}\n\n{:<36}{:>10}{:>10}{:>9}{:>10}  {:<12}{:>9}{:>9}{:>9}\n",
        "OPERATION", "A (ns)", "B (ns)", "CHANGE", "CHANCE", "SIGNIFICANT", "A (INS)", "B (INS)", "CHANGE"
    );
    let change = |before: f64, after: f64| format!("{:+.1} %", (after / before - 1.0) * 100.0);
    for (name, [one, other]) in samples {
        let (first, second, chance) = (median(one), median(other), mann_whitney(one, other));
        let verdict = match chance < SIGNIFICANT_BELOW / samples.len() as f64 {
            false => "no",
            true if second < first => "B is faster",
            true => "B is slower",
        };
        let counted = instructions.and_then(|[before, after]| Some((*before.get(name)?, *after.get(name)?)));
        let [first_count, second_count, count_change] = counted.map_or_else(Default::default, |(before, after)| {
            [format!("{before:.1}"), format!("{after:.1}"), change(before, after)]
        });
        let _ = writeln!(
            text,
            "{name:<36}{first:>10.1}{second:>10.1}{:>9}{chance:>10.5}  {verdict:<12}{first_count:>9}{second_count:>9}{count_change:>9}",
            change(first, second)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn one_or_two_revisions_are_compared() {
        let one = order(&words("HEAD~20 --rounds 11")).unwrap();
        assert_eq!(one, Order { revisions: words("HEAD~20"), rounds: Some(11) });
        assert_eq!(order(&words("v1 v2")).unwrap().revisions, words("v1 v2"));
        for wrong in ["", "a b c", "HEAD --rounds 3", "HEAD --round 9"] {
            assert!(order(&words(wrong)).unwrap_err().contains("usage"), "{wrong}");
        }
    }

    #[test]
    fn the_table_marks_what_changed_by_more_than_chance() {
        let around = |figure: f64| (0..11).map(|at| figure + f64::from(at % 5) / 10.0).collect::<Vec<f64>>();
        let samples = Samples::from([
            ("hit".to_owned(), [around(12.0), around(6.0)]),
            ("miss".to_owned(), [around(8.0), around(8.0)]),
            ("seal".to_owned(), [around(200.0), around(260.0)]),
        ]);
        let counts = [("hit".to_owned(), 80.0)].into_iter().collect::<BTreeMap<_, _>>();
        let text = table(&samples, Some(&[counts.clone(), counts]), ["HEAD~1", "working tree"]);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        assert!(
            line("hit").contains("B is faster") && line("hit").contains("-49.2 %") && line("hit").contains("80.0"),
            "{text}"
        );
        assert!(line("miss").contains(" no "), "{text}");
        assert!(line("seal").contains("B is slower"), "{text}");
    }
}
