//! Faults that are still allowed: a number for each file, which only falls.

use std::collections::BTreeMap;

/// Faults of each file that has some.
pub(super) type Counts = BTreeMap<String, usize>;

/// What stands above the numbers.
const HEAD: &str = "# Words outside the glossary that a file may still have. The numbers only fall: `cargo run -p xtask -- words --update`.\n\
    # Numbers of files that are gone may pass to new files. Without this file, `--update` writes what it finds.\n\n";

/// A file whose number of faults is not the allowed one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Difference {
    pub(super) path: String,
    pub(super) found: usize,
    pub(super) allowed: usize,
}

/// Reads the allowed numbers.
///
/// # Errors
/// The text is no TOML, or a value is no number.
pub(super) fn parse(text: &str) -> Result<Counts, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

/// The text of a file of allowed numbers.
pub(super) fn format(allowed: &Counts) -> String {
    let lines = allowed.iter().filter(|(_, count)| **count > 0).map(|(path, count)| format!("{path:?} = {count}\n"));
    format!("{HEAD}{}", lines.collect::<String>())
}

/// The files that differ from their allowed number, in either direction.
pub(super) fn differences(found: &Counts, allowed: &Counts) -> Vec<Difference> {
    let count = |counts: &Counts, path: &String| counts.get(path).copied().unwrap_or_default();
    let mut paths: Vec<&String> = found.keys().chain(allowed.keys()).collect();
    paths.sort();
    paths.dedup();
    let all = paths.into_iter().map(|path| Difference {
        path: path.clone(),
        found: count(found, path),
        allowed: count(allowed, path),
    });
    all.filter(|difference| difference.found != difference.allowed).collect()
}

/// Lowers the allowed numbers to what was found.
///
/// New files may take over what files that no longer exist were allowed: a file that is moved or divided keeps its faults.
pub(super) fn lowered(found: &Counts, allowed: &Counts, exists: impl Fn(&str) -> bool) -> Counts {
    let mut freed: usize = allowed.iter().filter(|(path, _)| !exists(path)).map(|(_, count)| count).sum();
    let mut lowered = Counts::new();
    for (path, count) in found {
        let number = match allowed.get(path) {
            Some(allowed) => *count.min(allowed),
            None => {
                let taken = freed.min(*count);
                freed -= taken;
                taken
            }
        };
        lowered.insert(path.clone(), number);
    }
    lowered.retain(|_, count| *count > 0);
    lowered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, usize)]) -> Counts {
        counts.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    #[test]
    fn more_and_fewer_than_allowed_are_both_reported() {
        let differences =
            differences(&counts(&[("a", 3), ("b", 1), ("c", 2)]), &counts(&[("a", 2), ("b", 1), ("d", 5)]));
        let shown: Vec<_> = differences.iter().map(|it| (it.path.as_str(), it.found, it.allowed)).collect();
        assert_eq!(shown, [("a", 3, 2), ("c", 2, 0), ("d", 0, 5)]);
    }

    #[test]
    fn numbers_fall_and_never_rise() {
        let lowered = lowered(&counts(&[("a", 9), ("b", 1)]), &counts(&[("a", 2), ("b", 4), ("c", 1)]), |_| true);
        assert_eq!(lowered, counts(&[("a", 2), ("b", 1)]));
    }

    #[test]
    fn a_file_that_moves_keeps_its_number() {
        let lowered = lowered(&counts(&[("new", 3)]), &counts(&[("old", 2)]), |path| path != "old");
        assert_eq!(lowered, counts(&[("new", 2)]));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let allowed = counts(&[("docs/a", 3), ("x.rs", 1)]);
        assert_eq!(parse(&format(&allowed)), Ok(allowed));
    }
}
