//! Command lines in documents and examples are those that the program takes: no option that is gone, none of an earlier release.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command as ClapCommand};

use super::*;

/// Programs and words that may stand before a command in a line.
const BEFORE: [&str; 8] = ["sudo", "exec", "time", "$", "#", "if", "!", "watch"];
/// What ends a command within a line.
const BEHIND: [&str; 9] = ["|", "||", "&&", ";", "&", ">", ">>", "2>", "<"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("the folder is there");
    for path in entries.map(|entry| entry.expect("it can be read").path()) {
        if path.is_dir() {
            files(&path, extensions, found);
        } else if path.extension().is_some_and(|of| extensions.iter().any(|wanted| of == *wanted)) {
            found.push(path);
        }
    }
}

/// A command line in a document.
struct Found {
    place: String,
    words: Vec<String>,
    /// It can be run as it stands, as far as its words show.
    is_whole: bool,
}

/// The words of a line as a shell divides them; quotes are taken off.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_begun) = (Vec::new(), String::new(), None, false);
    for character in line.chars() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => (quote, is_begun) = (Some(character), true),
            (None, ' ' | '\t') => {
                if is_begun {
                    words.push(std::mem::take(&mut word));
                }
                is_begun = false;
            }
            (None, ';' | '|' | ')' | '`') => {
                words.extend(is_begun.then(|| std::mem::take(&mut word)));
                words.push(";".to_owned());
                is_begun = false;
            }
            (_, character) => {
                word.push(character);
                is_begun = true;
            }
        }
    }
    words.extend(is_begun.then_some(word));
    words
}

/// The commands of this program in a line, each from its name on.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let words = words(line);
    let is_program = |word: &String| word == "mainstay" || word.ends_with("/mainstay") || word.ends_with("(mainstay");
    let mut commands = Vec::new();
    let mut is_first = true;
    let mut at = 0;
    while at < words.len() {
        let word = &words[at];
        if is_first && is_program(word) {
            let rest = words[at..].iter().take_while(|word| {
                !BEHIND.contains(&word.as_str()) && !word.starts_with('#') && !word.starts_with("2>")
            });
            let command: Vec<String> = rest.cloned().collect();
            at += command.len();
            commands.push(command);
            is_first = true;
            continue;
        }
        let may_follow = BEFORE.contains(&word.as_str()) || word.contains('=') || BEHIND.contains(&word.as_str());
        // `ip netns exec NAME mainstay …` and services' `ExecStart=/usr/bin/mainstay …` begin with other words.
        is_first =
            may_follow || words.first().is_some_and(|first| first == "ip" || first == "kubectl" || first == "ssh");
        at += 1;
    }
    commands
}

fn is_placeholder(word: &str) -> bool {
    let value = word.split_once('=').map_or(word, |(_, value)| value);
    let is_name =
        value.len() > 1 && value.chars().all(|character| character.is_ascii_uppercase() || "_:-".contains(character));
    is_name || word.contains(['…', '<', '>', '[', ']', '$', '{'])
}

/// Whether the first word behind the program's name is a command, or begins an option.
fn has_command(words: &[String]) -> bool {
    let of_lab = ["bench", "simulate", "synthesize", "link"];
    let is_command = |name: &str| {
        name.starts_with('-') || of_lab.contains(&name) || Cli::grouped_command().find_subcommand(name).is_some()
    };
    words.get(1).is_some_and(|name| is_command(name))
}

/// The command lines between backticks. In a table, options that follow a command belong to it.
fn in_text(line: &str, place: &str, found: &mut Vec<Found>) {
    let mut command: Option<Vec<String>> = None;
    for code in line.split('`').skip(1).step_by(2) {
        let words = match &command {
            // Between backticks are other things of this name, too.
            _ if code.starts_with("mainstay ") => {
                commands_of(code).into_iter().next().filter(|words| has_command(words))
            }
            Some(command) if line.starts_with('|') && code.starts_with("--") => {
                let name = command.iter().take_while(|word| !word.starts_with('-')).cloned();
                Some(name.chain(words(code)).collect())
            }
            _ => None,
        };
        let Some(words) = words else { continue };
        if code.starts_with("mainstay ") {
            // Options behind another command, in the text of the row, are those of the first.
            command = command.or_else(|| Some(words.clone()));
        }
        found.push(Found { place: place.to_owned(), words, is_whole: false });
    }
}

/// The command lines in fences of a document, and those between backticks in its text.
fn in_document(path: &Path, found: &mut Vec<Found>) {
    let text = fs::read_to_string(path).expect("it can be read");
    let (mut fence, mut continued) = (None, String::new());
    for (line, number) in text.lines().zip(1..) {
        let place = format!("{}:{number}", path.display());
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let language = language.split(' ').next().unwrap_or_default().to_owned();
            fence = if fence.is_none() { Some(language) } else { None };
            continue;
        }
        // Drawings and output show no commands to be given.
        if fence.as_deref().is_some_and(|language| ["text", "rust"].contains(&language)) {
            continue;
        }
        // A block that is indented by four spaces is code, too; so may the second line of an entry be.
        let is_indented =
            fence.is_none() && line.strip_prefix("    ").is_some_and(|line| line.starts_with("mainstay "));
        if fence.is_none() && !is_indented {
            in_text(line, &place, found);
            continue;
        }
        continued.push_str(line.trim_end_matches('\\'));
        if line.ends_with('\\') {
            continued.push(' ');
            continue;
        }
        for words in commands_of(continued.trim()) {
            let is_for_shell = fence.as_deref().is_none_or(|language| ["sh", "console"].contains(&language));
            let is_whole = is_for_shell && words.len() > 1 && !words.iter().any(|word| is_placeholder(word));
            found.push(Found { place: place.clone(), words, is_whole });
        }
        continued.clear();
    }
}

/// The command lines in the comments and entries of an example.
fn in_example(path: &Path, found: &mut Vec<Found>) {
    let text = fs::read_to_string(path).expect("it can be read");
    let names: BTreeSet<String> =
        Cli::grouped_command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for (line, number) in text.lines().zip(1..) {
        for (at, _) in line.match_indices("mainstay ") {
            let is_command = line[at..].split([' ', '`']).nth(1).is_some_and(|name| names.contains(name));
            let command = commands_of(&line[at..]).into_iter().next().filter(|_| is_command);
            let place = format!("{}:{number}", path.display());
            found.extend(command.map(|words| Found { place, words, is_whole: false }));
        }
    }
}

fn option_of<'a>(commands: &'a [ClapCommand], word: &str) -> Option<&'a Arg> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let is_it = |argument: &&Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long) || long == "help" || long == "version",
        None => name.chars().nth(1).is_some_and(|short| argument.get_short() == Some(short)),
    };
    commands.iter().rev().flat_map(ClapCommand::get_arguments).find(is_it)
}

/// What is wrong with a command line: a command or option that is not shown in any help.
fn mistake(words: &[String]) -> Option<String> {
    let mut program = Cli::grouped_command();
    program.build();
    let mut commands = vec![program];
    // Commands of the laboratory may be named without it.
    let is_of_lab =
        words.get(1).is_some_and(|name| ["bench", "simulate", "synthesize", "link"].contains(&name.as_str()));
    let words = words.iter().skip(1).map(String::as_str);
    let words: Vec<&str> = is_of_lab.then_some("lab").into_iter().chain(words).collect();
    let mut at = 0;
    let mut takes_commands = true;
    while let Some(word) = words.get(at) {
        at += 1;
        if *word == "--" {
            return None;
        }
        if word.len() > 1 && word.starts_with('-') {
            if matches!(*word, "--help" | "-h" | "--version" | "-V") {
                continue;
            }
            let Some(option) = option_of(&commands, word) else { return Some(format!("there is no option {word}")) };
            if option.is_hide_set() {
                return Some(format!("{word} is an option of an earlier release"));
            }
            let is_optional = option.get_num_args().is_some_and(|count| count.min_values() == 0);
            let has_value = option.get_action().takes_values() && !word.contains('=');
            at += usize::from(has_value && !(is_optional && words.get(at).is_none_or(|next| next.starts_with('-'))));
            continue;
        }
        let command = commands.last().expect("the program is one");
        let below = command.get_subcommands().find(|below| below.get_name() == *word).cloned();
        match below {
            Some(below) => commands.push(below),
            None if takes_commands && command.has_subcommands() && command.get_positionals().next().is_none() => {
                let is_name = word.chars().all(|character| character.is_ascii_lowercase() || character == '-');
                return is_name.then(|| format!("there is no command {word}"));
            }
            None => takes_commands = false,
        }
    }
    None
}

/// Whether this build has the command: packages have neither laboratory nor studies.
fn is_built(words: &[String]) -> bool {
    let of_lab = ["demo", "lab", "bench", "simulate", "synthesize", "link"];
    let name = words.get(1).map_or("", String::as_str);
    (cfg!(feature = "lab") || !of_lab.contains(&name))
        && (cfg!(feature = "studies") || !["study", "model"].contains(&name))
}

fn all() -> Vec<Found> {
    let mut found = Vec::new();
    let mut documents = vec![root().join("README.md"), root().join("CONTRIBUTING.md"), root().join("ARCHITECTURE.md")];
    let pages =
        fs::read_dir(root().join("docs")).expect("the folder is there").map(|entry| entry.expect("it is read").path());
    documents.extend(pages.filter(|page| page.extension().is_some_and(|of| of == "md")));
    documents.iter().for_each(|path| in_document(path, &mut found));
    let mut examples = Vec::new();
    files(&root().join("examples"), &["toml", "conf", "yaml"], &mut examples);
    files(&root().join("packaging"), &["service", "sh"], &mut examples);
    examples.iter().for_each(|path| in_example(path, &mut found));
    found.retain(|command| is_built(&command.words));
    found
}

#[test]
fn commands_in_documents_are_those_of_this_release() {
    let found = all();
    assert!(found.len() > 100, "{} commands were found", found.len());
    let mut mistakes = Vec::new();
    for Found { place, words, is_whole } in &found {
        let line = words.join(" ");
        if let Some(mistake) = mistake(words) {
            mistakes.push(format!("{place}: {line}: {mistake}"));
        } else if *is_whole
            && let Err(error) = Cli::read(words.iter().map(OsString::from))
            && error.use_stderr()
        {
            mistakes.push(format!("{place}: {line}: {error}"));
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn a_hidden_alias_and_an_option_that_is_gone_are_found() {
    for (line, said) in [
        ("mainstay status --events", "an option of an earlier release"),
        ("mainstay trace --count 5", "there is no option --count"),
        ("mainstay capture --write c.pcapng", "there is no option --write"),
        ("mainstay statuses", "there is no command statuses"),
    ] {
        let found = mistake(&words(line)).expect(line);
        assert!(found.contains(said), "{line}: {found}");
    }
    for line in ["mainstay trace --dropped --limit 5", "mainstay edge status --json"] {
        assert_eq!(mistake(&words(line)), None, "{line}");
    }
    assert_eq!(commands_of("$ sudo mainstay status | head # all").concat(), ["mainstay", "status"]);
}
