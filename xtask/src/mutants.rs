//! `cargo run -p xtask -- mutants`: disables each guard of a reviewed list in turn, and runs the tests that must then fail.
//! `mutants NAME …` tries those of these names alone.
//!
//! The guards are those against packets and peers, in `xtask/mutants.toml`. Each is changed in a scratch copy of the last commit, which
//! has a folder of its own for what is built (`target/mutants`). At first the tests run unchanged: they must pass, and there must be some.
//! A mutant is *killed* if a test fails, or does not end, under it. A *survivor* is a fault, unless the list names it with a reason. A
//! listed survivor that is killed is a fault, too, so that the list only shrinks. So is an entry that the source no longer has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::{bpf, program};

/// The list, from the root.
const LIST: &str = "xtask/mutants.toml";
/// The folder of the scratch copy and of what is built of it, in the target folder.
const FOLDER: &str = "mutants";
/// How long the tests of a mutant may take. A loop without an end is a failure like another.
const TESTS_MAX: Duration = Duration::from_secs(900);
/// How often a test that runs is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The reviewed list.
#[derive(Debug, Deserialize)]
struct List {
    mutant: Vec<Mutant>,
    #[serde(default)]
    survivor: Vec<Survivor>,
}

/// A guard, and what is put in its place.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Mutant {
    name: String,
    /// From the root.
    file: String,
    /// It occurs once in the file.
    source: String,
    replacement: String,
    package: String,
    /// A filter for the library's tests, or `--test PROGRAM`.
    tests: String,
}

/// A mutant that the tests do not kill.
#[derive(Debug, Deserialize)]
struct Survivor {
    name: String,
    reason: String,
}

/// How tests ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// This many passed, and none failed.
    Passed(usize),
    Failed,
    /// It was not built.
    NotBuilt,
    TooLate,
}

/// Carries out `mutants`, of all names or of these.
///
/// # Errors
/// A guard can be disabled unnoticed, or the list does not fit the source.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<(), String> {
    let list = load(root)?;
    let faults = faults_of(root, &list);
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    if let Some(unknown) = names.iter().find(|name| list.mutant.iter().all(|mutant| mutant.name != **name)) {
        return Err(format!("mutants: {LIST} has no mutant {unknown}"));
    }
    let chosen: Vec<&Mutant> =
        list.mutant.iter().filter(|mutant| names.is_empty() || names.contains(&mutant.name)).collect();
    let scratch = Scratch::new(root)?;
    scratch.check_unchanged(&chosen)?;
    let (mut killed, mut survivors) = (Vec::new(), Vec::new());
    for mutant in &chosen {
        let ended = scratch.try_mutant(mutant)?;
        println!("mutants: {:<48}{}", mutant.name, word(ended));
        match ended {
            Ended::Passed(_) => survivors.push(mutant.name.as_str()),
            Ended::NotBuilt => {
                return Err(format!("mutants: {} cannot be built: correct its replacement", mutant.name));
            }
            Ended::Failed | Ended::TooLate => killed.push(mutant.name.as_str()),
        }
    }
    println!("mutants: {} killed, {} survivors, of {}", killed.len(), survivors.len(), chosen.len());
    let faults = review(&list.survivor, &killed, &survivors);
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Locks the folder for this run.
fn lock(folder: &Path) -> Result<fs::File, String> {
    let path = folder.join("lock");
    let file = fs::File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    file.try_lock()
        .map_err(|error| format!("mutants: another run has {}: wait for its end ({error})", path.display()))?;
    Ok(file)
}

fn word(ended: Ended) -> &'static str {
    match ended {
        Ended::Passed(_) => "SURVIVES",
        Ended::Failed => "killed",
        Ended::TooLate => "killed (its tests do not end)",
        Ended::NotBuilt => "not built",
    }
}

fn load(root: &Path) -> Result<List, String> {
    let path = root.join(LIST);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// What is wrong with the list itself.
fn faults_of(root: &Path, list: &List) -> Vec<String> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for mutant in &list.mutant {
        if !names.insert(mutant.name.as_str()) {
            faults.push(format!("{LIST}: there are two mutants {}", mutant.name));
        }
        let text = fs::read_to_string(root.join(&mutant.file)).unwrap_or_default();
        let found = text.matches(&mutant.source).count();
        if found != 1 {
            let Mutant { name, file, .. } = mutant;
            faults.push(format!("{LIST}: {name}: its source occurs {found} times in {file}: follow the guard"));
        }
    }
    for Survivor { name, reason } in &list.survivor {
        if !names.contains(name.as_str()) {
            faults.push(format!("{LIST}: the survivor {name} is no mutant: remove it"));
        }
        if reason.trim().is_empty() {
            faults.push(format!("{LIST}: the survivor {name} has no reason"));
        }
    }
    faults
}

/// Survivors that are not in the reviewed list, and listed ones that were killed.
fn review(listed: &[Survivor], killed: &[&str], survivors: &[&str]) -> Vec<String> {
    let is_listed = |name: &str| listed.iter().any(|survivor| survivor.name == name);
    let new = survivors.iter().filter(|name| !is_listed(name));
    let new = new.map(|name| format!("mutants: {name} survives: write a test that fails under it"));
    let gone = killed.iter().filter(|name| is_listed(name));
    let gone = gone.map(|name| format!("mutants: {name} is killed: remove it from the survivors in {LIST}"));
    new.chain(gone).collect()
}

/// A copy of the last commit, which mutants are made in. It is removed with the value; what was built of it stays for the next time.
struct Scratch<'a> {
    root: &'a Path,
    tree: PathBuf,
    built: PathBuf,
    /// Held until the end: two runs would change the same copy.
    _lock: fs::File,
}

impl<'a> Scratch<'a> {
    fn new(root: &'a Path) -> Result<Self, String> {
        let folder = program::target_folder(root).join(FOLDER);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let scratch = Self { root, tree: folder.join("tree"), built: folder.join("built"), _lock: lock(&folder)? };
        // An earlier run may have been ended before it removed its copy.
        let _ = scratch.git(&["worktree", "remove", "--force"]);
        scratch.git(&["worktree", "add", "--quiet", "--detach", "--force"])?;
        Ok(scratch)
    }

    fn git(&self, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new("git");
        command.args(words).arg(&self.tree).current_dir(self.root);
        if words.contains(&"add") {
            command.arg("HEAD");
        }
        let output = command.output().map_err(|error| format!("git cannot be run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("git {}: {}", words.join(" "), text.trim())) }
    }

    /// The tests pass as long as nothing is changed, and there are some.
    fn check_unchanged(&self, mutants: &[&Mutant]) -> Result<(), String> {
        let tests: BTreeSet<(&str, &str)> =
            mutants.iter().map(|mutant| (mutant.package.as_str(), mutant.tests.as_str())).collect();
        for (package, filter) in tests {
            match self.test(package, filter)? {
                Ended::Passed(1..) => {}
                ended => return Err(format!("mutants: {package} {filter:?} without a mutant: {ended:?}")),
            }
        }
        Ok(())
    }

    /// Makes a mutant, runs its tests, and takes it back.
    fn try_mutant(&self, mutant: &Mutant) -> Result<Ended, String> {
        let path = self.tree.join(&mutant.file);
        let failed = |error| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(failed)?;
        if text.matches(&mutant.source).count() != 1 {
            return Err(format!("mutants: the last commit lacks the source of {}: commit first", mutant.name));
        }
        fs::write(&path, text.replacen(&mutant.source, &mutant.replacement, 1)).map_err(failed)?;
        let is_program = path.extension().is_some_and(|extension| extension == "c");
        let compile = || if is_program { bpf::run(&self.tree, &[]) } else { Ok(()) };
        let ended = compile().and_then(|()| self.test(&mutant.package, &mutant.tests));
        fs::write(&path, text).map_err(failed)?;
        compile()?;
        ended
    }

    fn test(&self, package: &str, filter: &str) -> Result<Ended, String> {
        let mut words = vec!["--package", package];
        if filter.starts_with("--test ") {
            words.extend(filter.split(' '))
        } else {
            words.extend(["--lib", filter])
        }
        words.retain(|word| !word.is_empty());
        if !self.cargo(&words).arg("--no-run").status().is_ok_and(|status| status.success()) {
            return Ok(Ended::NotBuilt);
        }
        let output = self.tree.join("tests.log");
        let log = fs::File::create(&output).map_err(|error| format!("{}: {error}", output.display()))?;
        let mut command = self.cargo(&words);
        command.stdout(log).env("MAINSTAY_TESTS", "all");
        let child = command.spawn().map_err(|error| format!("cargo cannot be run: {error}"))?;
        let Some(is_success) = wait(child)? else { return Ok(Ended::TooLate) };
        let text = fs::read_to_string(&output).unwrap_or_default();
        Ok(if is_success { Ended::Passed(passed(&text)) } else { Ended::Failed })
    }

    fn cargo(&self, words: &[&str]) -> Command {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        command.args(["test", "--locked", "--quiet"]).args(words).current_dir(&self.tree);
        command.env("CARGO_TARGET_DIR", &self.built).env("CARGO_INCREMENTAL", "0");
        // A mutant may leave something unused.
        command.env("RUSTFLAGS", "--cap-lints warn").stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // What remains is removed by the next run.
        let _ = self.git(&["worktree", "remove", "--force"]);
    }
}

/// Whether a process succeeded; `None`: it took too long, and was ended.
fn wait(mut child: Child) -> Result<Option<bool>, String> {
    let deadline = Instant::now() + TESTS_MAX;
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => return Ok(Some(status.success())),
            None if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
        }
    }
}

/// Tests that passed, by the summaries that cargo prints.
fn passed(text: &str) -> usize {
    let summaries = text.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    summaries.filter_map(|summary| summary.split(' ').next()?.parse::<usize>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_of_the_list_is_found_once_in_the_source() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let list = load(root).expect("the list is there");
        assert_eq!(faults_of(root, &list), Vec::<String>::new());
        assert!(list.mutant.len() >= 30, "{}", list.mutant.len());
    }

    #[test]
    fn a_mutant_that_the_source_lacks_and_a_survivor_without_a_reason_are_faults() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let text = "mutant = [{ name = 'a', file = 'Cargo.toml', source = 'no such line', replacement = '', package = 'edge', tests = '' }]\n\
                    survivor = [{ name = 'a', reason = ' ' }, { name = 'b', reason = 'it is gone' }]";
        let faults = faults_of(root, &toml::from_str(text).expect("a list"));
        assert_eq!(faults.len(), 3, "{faults:?}");
    }

    #[test]
    fn new_survivors_and_listed_ones_that_were_killed_are_faults() {
        let listed = ["old", "killed"].map(|name| Survivor { name: name.into(), reason: "reviewed".into() });
        assert_eq!(review(&listed, &["other"], &["old"]), Vec::<String>::new());
        let faults = review(&listed, &["killed"], &["old", "new"]);
        assert!(
            faults.len() == 2 && faults[0].contains("new survives") && faults[1].contains("remove it"),
            "{faults:?}"
        );
    }

    #[test]
    fn passed_tests_are_read_from_the_summaries() {
        let text = "\nrunning 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\ntest result: ok. 3 passed; 0 failed\n";
        assert_eq!((passed(text), passed("test result: FAILED. 1 passed; 1 failed")), (5, 0));
    }
}
