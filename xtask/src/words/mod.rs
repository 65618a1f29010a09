//! Checks the words of the repository: `cargo run -p xtask -- words`.
//!
//! * Identifiers, comments, string literals and documents keep to `docs/glossary.md` (see [`glossary`]). A file may have as many
//!   faults as `xtask/words-allowed.toml` still allows it, no more and no fewer (see [`ratchet`]).
//! * Keys of papers, numbers of RFCs (see [`citation`]), links and anchors (see [`link`]) resolve. None may be wrong.
//!
//! `words PATH …` also lists the faults under these paths; `words --update` lowers the allowed numbers.

mod citation;
mod exception;
mod glossary;
mod link;
mod markdown;
mod passage;
mod ratchet;
mod rust;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use self::exception::Exceptions;
use self::glossary::Glossary;
use self::link::Documents;
use self::markdown::Document;
use self::passage::{Kind, Passage, without_code};
use self::ratchet::Counts;

/// The barred words.
const GLOSSARY: &str = "docs/glossary.md";
/// The works that may be cited.
const BIBLIOGRAPHY: &str = "docs/bibliography.md";
/// Where a barred word is right, and why.
const EXCEPTIONS: &str = "xtask/words.toml";
/// The faults that are still allowed.
const ALLOWED: &str = "xtask/words-allowed.toml";
/// Files that list the words themselves.
const LISTS: [&str; 3] = [GLOSSARY, EXCEPTIONS, ALLOWED];
/// Pages made from the code, whose words are checked there.
const GENERATED: &str = "docs/reference";
/// Folders that hold nothing written by hand.
const FOLDERS_SKIPPED: [&str; 4] = ["target", "corpus", "artifacts", "node_modules"];
/// Kinds of files whose comments begin with `#`.
const HASH_COMMENTS: [&str; 4] = ["toml", "sh", "service", "conf"];
/// Words that the summary lists.
const MOST_FREQUENT: usize = 10;

/// A word that the glossary bars.
struct Fault {
    path: String,
    line: usize,
    word: String,
    say: String,
    context: String,
}

/// A file of the repository.
struct Source {
    /// From the root, with slashes.
    path: String,
    text: String,
}

/// What was found in the repository.
#[derive(Default)]
struct Outcome {
    faults: Vec<Fault>,
    /// Citations and links that are wrong, as lines to print.
    unresolved: Vec<String>,
}

/// Runs the check with the arguments behind `words`.
///
/// # Errors
/// A file cannot be read, or the check fails: what is wrong has been printed, but for the last line.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let is_update = arguments.iter().any(|argument| argument == "--update");
    let listed: Vec<&String> = arguments.iter().filter(|argument| *argument != "--update").collect();
    if let Some(option) = listed.iter().find(|argument| argument.starts_with("--")) {
        return Err(format!("words: {option} is not an option; usage: words [--update] [PATH …]"));
    }
    let outcome = find(root)?;
    let counts = counts(&outcome.faults);
    let allowed = read_allowed(root, &counts, is_update)?;
    if is_update {
        let lowered = ratchet::lowered(&counts, &allowed, |path| root.join(path).exists());
        write(root, ALLOWED, &ratchet::format(&lowered))?;
        return report(&outcome, &counts, &lowered, &listed);
    }
    report(&outcome, &counts, &allowed, &listed)
}

/// The allowed numbers; where there are none yet and they are to be written, those of today.
fn read_allowed(root: &Path, counts: &Counts, is_update: bool) -> Result<Counts, String> {
    if is_update && !root.join(ALLOWED).exists() {
        return Ok(counts.clone());
    }
    ratchet::parse(&read(root, ALLOWED)?).map_err(|error| format!("{ALLOWED}: {error}"))
}

fn find(root: &Path) -> Result<Outcome, String> {
    let glossary = Glossary::parse(&read(root, GLOSSARY)?).map_err(|error| format!("{GLOSSARY}: {error}"))?;
    let keys = citation::keys(&read(root, BIBLIOGRAPHY)?);
    let mut exceptions =
        Exceptions::parse(&read(root, EXCEPTIONS)?).map_err(|error| format!("{EXCEPTIONS}: {error}"))?;
    let sources = sources(root)?;
    let documents: Documents = sources
        .iter()
        .filter(|source| source.path.ends_with(".md"))
        .map(|source| (source.path.clone(), Document::parse(&source.text)))
        .collect();
    let mut outcome = Outcome::default();
    for source in &sources {
        let passages = source.passages(&documents);
        outcome.unresolved.extend(source.unresolved(root, &passages, &keys, &documents));
        if !LISTS.contains(&source.path.as_str()) && !is_below(&source.path, GENERATED) {
            outcome.faults.extend(source.faults(&passages, &glossary, &mut exceptions));
        }
    }
    outcome.unresolved.extend(exceptions.unused().map(|unused| format!("{EXCEPTIONS}: {unused} excuses nothing")));
    Ok(outcome)
}

impl Source {
    fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    }

    /// The passages to check; a file's own name is one.
    fn passages(&self, documents: &Documents) -> Vec<Passage> {
        let stem = self.path.trim_end_matches("/mod.rs").rsplit('/').next().unwrap_or_default();
        let mut passages = vec![Passage::new(Kind::Name, 1, stem.split('.').next().unwrap_or_default())];
        match self.extension() {
            "rs" => passages.extend(rust::passages(&self.text)),
            "md" => passages.extend(documents.get(&self.path).into_iter().flat_map(|it| it.passages.iter().cloned())),
            _ => passages.extend(hash_comments(&self.text)),
        }
        passages
    }

    /// Barred words that no exception excuses.
    fn faults(&self, passages: &[Passage], glossary: &Glossary, exceptions: &mut Exceptions) -> Vec<Fault> {
        let mut faults = Vec::new();
        for passage in passages {
            let blanked = Passage { text: without_code(&passage.text), ..passage.clone() };
            for hit in glossary.hits(&blanked) {
                let context = passage.context(hit.start, hit.end).replace('\x01', "");
                if !exceptions.excuse(&self.path, &hit.word, &context) {
                    let line = passage.line_of(hit.start);
                    faults.push(Fault { path: self.path.clone(), line, word: hit.word, say: hit.say, context });
                }
            }
        }
        faults.sort_by_key(|fault| fault.line);
        faults
    }

    /// Citations and links that lead nowhere, as lines to print.
    fn unresolved(
        &self,
        root: &Path,
        passages: &[Passage],
        keys: &BTreeSet<String>,
        documents: &Documents,
    ) -> Vec<String> {
        let mut unresolved: Vec<(usize, String)> =
            passages.iter().flat_map(|passage| citation::check(passage, keys)).collect();
        if self.extension() == "md" {
            unresolved.extend(link::check(root, &self.path, documents));
        } else {
            unresolved.extend(link::check_mentions(&self.text, documents));
        }
        unresolved.into_iter().map(|(line, fault)| format!("{}:{line}: {fault}", self.path)).collect()
    }
}

/// Comments that begin with `#`; those on consecutive lines are one passage.
fn hash_comments(text: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = if line.starts_with('#') { Some(0) } else { line.find(" #") };
        let Some(comment) = start.map(|start| line[start..].trim_start_matches([' ', '#'])) else { continue };
        match passages.last_mut() {
            Some(last) if last.line_of(last.text.len()) == index => {
                last.text.push('\n');
                last.text.push_str(comment);
            }
            _ => passages.push(Passage::new(Kind::Prose, index + 1, comment)),
        }
    }
    passages
}

fn counts(faults: &[Fault]) -> Counts {
    let mut counts = Counts::new();
    faults.iter().for_each(|fault| *counts.entry(fault.path.clone()).or_default() += 1);
    counts
}

/// Prints what was found.
///
/// # Errors
/// The check fails: by how much.
fn report(outcome: &Outcome, counts: &Counts, allowed: &Counts, listed: &[&String]) -> Result<(), String> {
    let differences = ratchet::differences(counts, allowed);
    let is_over = |path: &str| differences.iter().any(|it| it.path == path && it.found > it.allowed);
    let is_listed = |path: &str| listed.iter().any(|prefix| is_below(path, prefix));
    for fault in outcome.faults.iter().filter(|fault| is_listed(&fault.path) || is_over(&fault.path)) {
        let Fault { path, line, word, say, context } = fault;
        println!("{path}:{line}: \"{word}\": say \"{say}\" ({context})");
    }
    outcome.unresolved.iter().for_each(|line| println!("{line}"));
    summarise(&outcome.faults, listed);
    for ratchet::Difference { path, found, allowed } in &differences {
        let remedy = if found > allowed { "use the glossary's words" } else { "run `words --update`" };
        println!("{path}: {found} words outside the glossary, {allowed} allowed: {remedy}");
    }
    if differences.is_empty() && outcome.unresolved.is_empty() {
        return Ok(());
    }
    Err(format!(
        "words: {} files differ from {ALLOWED}, {} citations and links are wrong",
        differences.len(),
        outcome.unresolved.len()
    ))
}

/// Whether a path is the same as a prefix or lies below it.
fn is_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_start_matches("./").trim_end_matches('/');
    prefix == "." || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Prints how often each crate and each word is at fault: the most frequent words, or all of them where paths are listed.
fn summarise(faults: &[Fault], listed: &[&String]) {
    let counted = |name: fn(&Fault) -> String| {
        let mut counts = BTreeMap::<String, usize>::new();
        faults.iter().for_each(|fault| *counts.entry(name(fault)).or_default() += 1);
        let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    };
    let line = |counts: &[(String, usize)]| {
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let (crates, words) = (counted(|fault| crate_of(&fault.path).to_owned()), counted(|fault| fault.word.clone()));
    let shown = if listed.is_empty() { MOST_FREQUENT.min(words.len()) } else { words.len() };
    println!("words outside the glossary: {} in {} files", faults.len(), self::counts(faults).len());
    println!("by crate: {}", line(&crates));
    println!("by word: {}", line(&words[..shown]));
}

/// The crate of a file, or the folder at the top that it lies in.
fn crate_of(path: &str) -> &str {
    let rest = path.strip_prefix("crates/").unwrap_or(path);
    rest.split_once('/').map_or("top", |(first, _)| first)
}

/// All files that are written by hand, in the order of their paths.
fn sources(root: &Path) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder)).map_err(|error| format!("{folder}: {error}"))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.path().is_dir() {
                let is_skipped = FOLDERS_SKIPPED.contains(&name.as_str()) || name.starts_with('.') && name != ".ci";
                folders.extend((!is_skipped).then_some(path));
            } else if is_source(&path) {
                sources.push(Source { text: read(root, &path)?, path });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn is_source(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["rs", "md"].contains(&extension) || HASH_COMMENTS.contains(&extension) || path == ".ci/run"
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

fn write(root: &Path, path: &str, text: &str) -> Result<(), String> {
    fs::write(root.join(path), text).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_behind_a_hash_are_prose() {
        let passages = hash_comments("# One\n# two\nkey = \"a#b\" # three\n");
        let texts: Vec<(usize, &str)> = passages.iter().map(|it| (it.line, it.text.as_str())).collect();
        assert_eq!(texts, [(1, "One\ntwo\nthree")]);
    }

    #[test]
    fn paths_belong_to_crates_or_folders() {
        assert_eq!(
            (crate_of("crates/flow/src/a.rs"), crate_of("docs/a"), crate_of("README.md")),
            ("flow", "docs", "top")
        );
        assert!(is_below("crates/flow/src/a.rs", "crates/flow/") && !is_below("crates/flows/a.rs", "crates/flow"));
    }
}
