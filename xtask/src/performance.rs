//! `cargo run -p xtask -- performance`: compares the instructions of hot operations with a reviewed snapshot. `performance --write`
//! updates the snapshot.
//!
//! The operations are those of `mainstay bench operations`, in the release build as it is shipped. Callgrind counts them, so that no
//! other load of the machine shows. An operation that takes 3 % more or less than in the snapshot is a fault: what is better is
//! recorded, too, so that it is not lost again. Another compiler makes other instructions. The snapshot names the one that it is of,
//! and under another one differences are printed, but are no faults.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::program;

/// The snapshot, from the root.
const SNAPSHOT: &str = "xtask/performance.toml";
/// What an operation may differ by, in percent.
const DIFFERENCE_PERCENT_MAX: f64 = 3.0;
/// The end of the names of operations that need AVX2.
const NEEDS_AVX2: &str = "_avx2";

/// Instructions by operation.
type Instructions = BTreeMap<String, f64>;

#[derive(Debug, Deserialize)]
struct Snapshot {
    compiler: String,
    instructions: Instructions,
}

/// Carries out `performance` with these arguments.
///
/// # Errors
/// An operation takes another number of instructions than in the snapshot, or nothing can be measured.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let writes = match arguments {
        [] => false,
        [option] if option == "--write" => true,
        _ => return Err("usage: cargo run -p xtask -- performance [--write]".into()),
    };
    let program = program::build_release(root, root)?;
    let measured = measure(&program)?;
    let compiler = program::compiler()?;
    let path = root.join(SNAPSHOT);
    if writes {
        fs::write(&path, text_of(&compiler, &measured)).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("performance: {} operations are in {SNAPSHOT}: review what changed, and commit it", measured.len());
        return Ok(());
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let snapshot: Snapshot = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let faults = differences(&snapshot.instructions, &measured);
    println!("performance: {} operations compared, {} faults", measured.len(), faults.len());
    if faults.is_empty() {
        return Ok(());
    }
    let table = table_of(&faults);
    if compiler == snapshot.compiler {
        return Err(format!(
            "{table}performance: if this is intended, run cargo run -p xtask -- performance --write, and commit {SNAPSHOT}"
        ));
    }
    println!("{table}performance: no faults, as the snapshot is of {}, and this is {compiler}", snapshot.compiler);
    Ok(())
}

/// Instructions of each operation of the program.
pub(crate) fn measure(program: &Path) -> Result<Instructions, String> {
    let report = program::bench(program, &["operations", "--rounds", "0"])?;
    let rows = report["operations"].as_array().into_iter().flatten();
    let instructions: Instructions =
        rows.filter_map(|row| Some((row["operation"].as_str()?.to_owned(), row["instructions"].as_f64()?))).collect();
    if instructions.is_empty() { Err("bench operations counted nothing".into()) } else { Ok(instructions) }
}

/// The snapshot as it is committed.
fn text_of(compiler: &str, measured: &Instructions) -> String {
    let mut text = format!(
        "# Instructions of operations in the release build, by callgrind. `cargo run -p xtask -- performance` compares them within\n\
         # {DIFFERENCE_PERCENT_MAX} %; `… performance --write` writes this file.\n\
         compiler = \"{compiler}\"\n\n[instructions]\n"
    );
    for (operation, instructions) in measured {
        let _ = writeln!(text, "{operation} = {instructions:.1}");
    }
    text
}

/// An operation that differs: before, now.
#[derive(Debug, PartialEq)]
struct Fault {
    operation: String,
    snapshot: Option<f64>,
    now: Option<f64>,
}

/// What differs by more than is allowed, or is on one side alone.
fn differences(snapshot: &Instructions, measured: &Instructions) -> Vec<Fault> {
    let has_avx2 = measured.keys().any(|operation| operation.ends_with(NEEDS_AVX2));
    let mut operations: Vec<&String> = snapshot.keys().chain(measured.keys()).collect();
    operations.sort();
    operations.dedup();
    let fault = |operation: &String| {
        let (snapshot, now) = (snapshot.get(operation).copied(), measured.get(operation).copied());
        let differs = match (snapshot, now) {
            (Some(snapshot), Some(now)) => percent(snapshot, now).abs() > DIFFERENCE_PERCENT_MAX,
            (Some(_), None) => has_avx2 || !operation.ends_with(NEEDS_AVX2),
            (None, _) => true,
        };
        differs.then(|| Fault { operation: operation.clone(), snapshot, now })
    };
    operations.into_iter().filter_map(fault).collect()
}

fn percent(before: f64, now: f64) -> f64 {
    (now / before - 1.0) * 100.0
}

fn table_of(faults: &[Fault]) -> String {
    let mut table = format!("{:<36}{:>12}{:>12}{:>10}\n", "OPERATION", "SNAPSHOT", "NOW", "CHANGE");
    let figure = |figure: Option<f64>| figure.map_or_else(|| "none".to_owned(), |figure| format!("{figure:.1}"));
    for Fault { operation, snapshot, now } in faults {
        let change =
            snapshot.zip(*now).map_or_else(String::new, |(before, now)| format!("{:+.1} %", percent(before, now)));
        let _ = writeln!(table, "{operation:<36}{:>12}{:>12}{change:>10}", figure(*snapshot), figure(*now));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instructions(of: &[(&str, f64)]) -> Instructions {
        of.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect()
    }

    #[test]
    fn what_takes_more_than_three_percent_more_or_less_is_a_fault() {
        let snapshot = instructions(&[("edge", 100.0), ("first", 1000.0), ("hit", 50.0), ("seal", 200.0)]);
        let measured = instructions(&[("edge", 102.9), ("first", 1031.0), ("hit", 48.0), ("seal", 194.1)]);
        let faults = differences(&snapshot, &measured);
        assert_eq!(faults.iter().map(|fault| fault.operation.as_str()).collect::<Vec<_>>(), ["first", "hit"]);
        let table = table_of(&faults);
        for part in ["first", "1000.0", "1031.0", "+3.1 %", "-4.0 %"] {
            assert!(table.contains(part), "{part}: {table}");
        }
    }

    #[test]
    fn an_operation_that_came_or_went_is_a_fault() {
        let faults = differences(&instructions(&[("gone", 1.0)]), &instructions(&[("new", 2.0)]));
        assert_eq!(faults.len(), 2);
        assert!(table_of(&faults).contains("none"));
    }

    #[test]
    fn a_processor_without_avx2_lacks_those_rows_alone() {
        let snapshot = instructions(&[("hit_avx2", 10.0), ("hit_portable", 20.0)]);
        assert_eq!(differences(&snapshot, &instructions(&[("hit_portable", 20.0)])), []);
        let some = instructions(&[("hit_portable", 20.0), ("miss_avx2", 9.0)]);
        assert_eq!(differences(&snapshot, &some).len(), 2, "hit_avx2 went, and miss_avx2 came");
    }

    #[test]
    fn a_written_snapshot_equals_what_was_measured() {
        let measured = instructions(&[("first", 1031.25), ("hit", 48.0)]);
        let snapshot: Snapshot = toml::from_str(&text_of("rustc 1.2.3", &measured)).unwrap();
        assert_eq!(snapshot.compiler, "rustc 1.2.3");
        assert_eq!(differences(&snapshot.instructions, &measured), []);
    }
}
