//! The words that `docs/glossary.md` bars, and where a passage has them.
//!
//! Every table of the glossary with the columns `say`, `it is` and `not` counts. The third column lists words and phrases,
//! separated by commas. A mark in brackets behind an entry limits the check:
//!
//! * `(as a name)`, or any other mark that begins with `as a`: the entry is barred from identifiers, labels and headings only;
//! * any other mark, such as `(not checked)`: the entry is for readers, because a word has a second, legitimate sense.

use std::collections::HashMap;

use super::passage::{Kind, Passage, Word, words};

/// A barred word or phrase.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    words: Vec<String>,
    /// It is right in prose.
    is_for_names: bool,
    /// What to write instead.
    say: String,
}

/// The barred words.
#[derive(Default)]
pub(super) struct Glossary {
    rules: Vec<Rule>,
    /// The rules by each form of their first word.
    by_first: HashMap<String, Vec<usize>>,
}

/// A barred word in a passage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hit {
    /// The entry of the glossary.
    pub(super) word: String,
    /// What to write instead.
    pub(super) say: String,
    /// First byte in the passage.
    pub(super) start: usize,
    /// First byte after it.
    pub(super) end: usize,
}

impl Glossary {
    /// Reads the tables of a glossary.
    ///
    /// # Errors
    /// The text has no table with the three columns, or no entry in its third one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut glossary = Self::default();
        let mut is_table = false;
        for line in text.lines() {
            let Some(cells) = cells(line) else {
                is_table = false;
                continue;
            };
            match cells[..] {
                ["say", "it is", "not"] => is_table = true,
                [say, _, not] if is_table => entries(not).for_each(|entry| glossary.add(say, entry)),
                _ => {}
            }
        }
        if glossary.rules.is_empty() {
            return Err("no table with the columns `say`, `it is`, `not` bars a word".to_owned());
        }
        Ok(glossary)
    }

    fn add(&mut self, say: &str, entry: &str) {
        let (phrase, mark) = entry.split_once('(').map_or((entry, None), |(phrase, mark)| (phrase, Some(mark)));
        let is_for_names = mark.is_some_and(|mark| mark.trim_start().starts_with("as a "));
        if phrase.contains('…') || (mark.is_some() && !is_for_names) {
            return;
        }
        let words: Vec<String> =
            words(&Passage::new(Kind::Prose, 1, phrase)).into_iter().map(|word| word.text).collect();
        let Some(first) = words.first() else { return };
        if let Some(rule) = self.rules.iter_mut().find(|rule| rule.words == words) {
            if rule.say != say {
                rule.say = format!("{} / {say}", rule.say);
            }
            return;
        }
        for form in forms(first) {
            self.by_first.entry(form).or_default().push(self.rules.len());
        }
        self.rules.push(Rule { words, is_for_names, say: say.to_owned() });
    }

    /// The barred words of a passage; of overlapping entries the longest.
    pub(super) fn hits(&self, passage: &Passage) -> Vec<Hit> {
        let words = words(passage);
        let mut hits = Vec::new();
        let mut index = 0;
        while index < words.len() {
            let rules = self.by_first.get(&words[index].text).into_iter().flatten().map(|rule| &self.rules[*rule]);
            let longest =
                rules.filter(|rule| rule.is_at(&words[index..], passage.kind)).max_by_key(|rule| rule.words.len());
            let Some(rule) = longest else {
                index += 1;
                continue;
            };
            let (start, end) = (words[index].start, words[index + rule.words.len() - 1].end);
            hits.push(Hit { word: rule.words.join(" "), say: rule.say.clone(), start, end });
            index += rule.words.len();
        }
        hits
    }
}

impl Rule {
    /// Whether the words begin with the entry, where it is barred.
    fn is_at(&self, words: &[Word], kind: Kind) -> bool {
        let Some(found) = words.get(..self.words.len()) else { return false };
        let is_barred = !self.is_for_names || kind != Kind::Prose || found.iter().all(|word| word.is_in_name);
        let mut rest = self.words.iter().zip(found).skip(1);
        is_barred && rest.all(|(barred, word)| word.is_joined && forms(barred).contains(&word.text))
    }
}

/// The cells of a table's row.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.trim().strip_prefix('|')?;
    Some(row.strip_suffix('|').unwrap_or(row).split('|').map(str::trim).collect())
}

/// The entries of a third column.
fn entries(cell: &str) -> impl Iterator<Item = &str> {
    cell.split([',', '/', ';']).map(str::trim)
}

/// A word and its regular inflections. Irregular ones are entries of their own.
fn forms(word: &str) -> Vec<String> {
    let mut forms = vec![word.to_owned()];
    // Shorter words are particles.
    if word.len() < 3 || !word.is_ascii() {
        return forms;
    }
    forms.extend(["s", "es", "ed", "ing"].map(|ending| format!("{word}{ending}")));
    if let Some(stem) = word.strip_suffix('e') {
        forms.extend([format!("{stem}ed"), format!("{stem}ing")]);
    }
    if let Some(stem) = word.strip_suffix('y') {
        forms.extend([format!("{stem}ies"), format!("{stem}ied")]);
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that nothing else of the repository has.
    const TABLES: &str = "# Glossary\n\nnot | a | table\n\n| say | it is | not |\n|---|---|---|\n\
        | send | on a wire | blorp, snarf away |\n\
        | wait | in a queue | zonk (as a name), quib (of sheep), – |\n\n\
        | other | table | with |\n|---|---|---|\n| a | b | blorpless |\n\n\
        | say | it is | not |\n|---|---|---|\n| store | in memory | snarf |\n";

    fn found(kind: Kind, text: &str) -> Vec<String> {
        let glossary = Glossary::parse(TABLES).expect("it has entries");
        glossary.hits(&Passage::new(kind, 1, text)).into_iter().map(|hit| hit.word).collect()
    }

    #[test]
    fn words_are_found_in_names_and_prose_with_their_inflections() {
        assert_eq!(found(Kind::Prose, "It blorps, and blorping goes on."), ["blorp", "blorp"]);
        assert_eq!(found(Kind::Name, "last_blorped_at"), ["blorp"]);
        assert_eq!(found(Kind::Prose, "blorpless"), Vec::<String>::new());
    }

    #[test]
    fn a_phrase_is_found_over_line_breaks_but_not_over_punctuation() {
        assert_eq!(found(Kind::Prose, "they snarf\naway"), ["snarf away"]);
        assert_eq!(found(Kind::Name, "SnarfAway"), ["snarf away"]);
        assert_eq!(found(Kind::Prose, "they snarf. Away"), ["snarf"]);
    }

    #[test]
    fn a_mark_limits_an_entry() {
        assert_eq!(found(Kind::Prose, "a zonk of quibs"), Vec::<String>::new());
        assert_eq!(found(Kind::Heading, "A zonk of quibs"), ["zonk"]);
        assert_eq!(found(Kind::Prose, "the counter zonk_count is"), ["zonk"]);
        assert_eq!(found(Kind::Prose, "zonk"), ["zonk"], "a string of one word is a label");
    }

    #[test]
    fn what_to_say_comes_from_the_first_column() {
        let glossary = Glossary::parse(TABLES).expect("it has entries");
        let hits = glossary.hits(&Passage::new(Kind::Prose, 1, "we snarf"));
        assert_eq!(hits[0].say, "store");
        assert!(Glossary::parse("| a | b |\n").is_err());
    }
}
