//! Text to check: names, prose and headings, and their single words.

/// How the words of a passage are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// An identifier, at its definition.
    Name,
    /// A comment, a string literal or a paragraph.
    Prose,
    /// A heading of a document.
    Heading,
}

/// Connected text of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Passage {
    /// How its words are meant.
    pub(super) kind: Kind,
    /// Line of its first character, from 1.
    pub(super) line: usize,
    /// The text, with the line breaks of the file.
    pub(super) text: String,
}

impl Passage {
    pub(super) fn new(kind: Kind, line: usize, text: impl Into<String>) -> Self {
        Self { kind, line, text: text.into() }
    }

    /// The line of a byte of the text.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.line + self.text[..offset].matches('\n').count()
    }

    /// The text around a range of bytes, shortened to one line.
    pub(super) fn context(&self, start: usize, end: usize) -> String {
        const AROUND: usize = 30;
        let from = self.text[..start].char_indices().rev().take(AROUND).last().map_or(start, |(index, _)| index);
        let to = self.text[end..].char_indices().nth(AROUND).map_or(self.text.len(), |(index, _)| end + index);
        self.text[from..to].split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// One word of a passage: `read_only`, `ReadOnly` and "read only" are two each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Word {
    /// In lower case.
    pub(super) text: String,
    /// First byte in the passage.
    pub(super) start: usize,
    /// First byte after it.
    pub(super) end: usize,
    /// It is part of an identifier.
    pub(super) is_in_name: bool,
    /// Only blanks, hyphens or underscores lie between the word before and this one.
    pub(super) is_joined: bool,
}

/// The words of a passage, in order.
pub(super) fn words(passage: &Passage) -> Vec<Word> {
    let text = &passage.text;
    // A string of one word is a label, a key or a metric's name; paths are checked where the files are.
    let is_name = passage.kind != Kind::Prose || !text.contains(|c: char| c.is_whitespace() || c == '/');
    let mut words: Vec<Word> = Vec::new();
    let mut rest = 0;
    while let Some(start) = text[rest..].find(is_word_character).map(|offset| rest + offset) {
        let end = text[start..].find(|c| !is_word_character(c)).map_or(text.len(), |offset| start + offset);
        let run = &text[start..end];
        let parts = parts(run);
        let is_in_name = is_name || run.trim_matches('_').contains('_') || is_camel_case(run);
        for (from, to) in parts {
            let (start, end) = (start + from, start + to);
            let between = words.last().map(|word| &text[word.end..start]);
            let is_joined =
                between.is_some_and(|between| between.chars().all(|c| c.is_whitespace() || "-_".contains(c)));
            words.push(Word { text: text[start..end].to_lowercase(), start, end, is_in_name, is_joined });
        }
        rest = end;
    }
    words
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether an upper-case letter follows a lower-case one.
fn is_camel_case(run: &str) -> bool {
    run.chars().zip(run.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase())
}

/// Where the words of an identifier begin and end: at underscores, and where upper case begins.
fn parts(run: &str) -> Vec<(usize, usize)> {
    let characters: Vec<(usize, char)> = run.char_indices().collect();
    let mut parts = Vec::new();
    let mut start = None;
    for (index, &(offset, c)) in characters.iter().enumerate() {
        let next = characters.get(index + 1).map(|(_, next)| *next);
        let previous = index.checked_sub(1).map(|before| characters[before].1);
        let begins = c.is_uppercase()
            && (previous.is_some_and(|c| c.is_lowercase() || c.is_numeric()) || next.is_some_and(char::is_lowercase));
        if let Some(from) = start.filter(|_| begins || c == '_') {
            parts.push((from, offset));
            start = None;
        }
        if c != '_' && start.is_none() {
            start = Some(offset);
        }
    }
    parts.extend(start.map(|from| (from, run.len())));
    parts
}

/// Blanks what is code or an address in a text: fenced blocks, spans in backticks, targets of links, URLs.
/// Every byte keeps its place.
pub(super) fn without_code(text: &str) -> String {
    let mut kept = Blanks::new(text);
    let (mut offset, mut is_fenced) = (0, false);
    for line in text.split_inclusive('\n') {
        let is_fence = ["```", "~~~"].iter().any(|fence| line.trim_start().starts_with(fence));
        if is_fence || is_fenced {
            kept.blank(offset, offset + line.len());
        }
        is_fenced ^= is_fence;
        offset += line.len();
    }
    kept.blank_between("`", "`");
    kept.blank_between("](", ")");
    for scheme in ["https://", "http://"] {
        let starts: Vec<usize> = kept.text.match_indices(scheme).map(|(start, _)| start).collect();
        for start in starts {
            let length = kept.text[start..].find(|c: char| c.is_whitespace() || ")>|\"".contains(c));
            kept.blank(start, length.map_or(text.len(), |length| start + length));
        }
    }
    kept.text
}

/// A text of which parts are blanked.
struct Blanks {
    text: String,
}

impl Blanks {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    /// Replaces the bytes of a range, line breaks excepted, by a character that joins no words.
    fn blank(&mut self, start: usize, end: usize) {
        let blanked: Vec<u8> = self.text.as_bytes()[start..end].iter().map(|byte| blanked(*byte)).collect();
        // What replaces a whole range of characters is ASCII.
        self.text.replace_range(start..end, &String::from_utf8_lossy(&blanked));
    }

    /// Blanks what lies between two marks, both included. Paragraphs end at empty lines.
    fn blank_between(&mut self, before: &str, after: &str) {
        let mut rest = 0;
        while let Some(start) = self.text[rest..].find(before).map(|offset| rest + offset) {
            let inside = start + before.len();
            let paragraph = self.text[inside..].find("\n\n").map_or(self.text.len(), |length| inside + length);
            rest = match self.text[inside..paragraph].find(after) {
                Some(length) => {
                    let end = inside + length + after.len();
                    self.blank(start, end);
                    end
                }
                None => inside,
            };
        }
    }
}

fn blanked(byte: u8) -> u8 {
    if byte == b'\n' { byte } else { b'\x01' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        words(&Passage::new(Kind::Name, 1, text)).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn identifiers_are_split_at_underscores_and_capitals() {
        assert_eq!(split("read_only"), ["read", "only"]);
        assert_eq!(split("ReadOnlyMax"), ["read", "only", "max"]);
        assert_eq!(split("RETRY_COUNT"), ["retry", "count"]);
        assert_eq!(split("parseHTTPHeader"), ["parse", "http", "header"]);
    }

    #[test]
    fn words_of_prose_are_joined_by_blanks_but_not_by_punctuation() {
        let words = words(&Passage::new(Kind::Prose, 1, "read\nonly, then: is_late"));
        let joined: Vec<(&str, bool, bool)> =
            words.iter().map(|word| (word.text.as_str(), word.is_joined, word.is_in_name)).collect();
        let expected = [
            ("read", false, false),
            ("only", true, false),
            ("then", false, false),
            ("is", false, true),
            ("late", true, true),
        ];
        assert_eq!(joined, expected);
    }

    #[test]
    fn code_and_addresses_are_blanked_without_a_shift() {
        let text = "see `x_y` and [it](a.md)\n```\ncode\n```\nhttps://host/path end";
        let kept = without_code(text);
        assert_eq!(kept.len(), text.len());
        let words: Vec<String> = words(&Passage::new(Kind::Prose, 1, kept)).into_iter().map(|word| word.text).collect();
        assert_eq!(words, ["see", "and", "it", "end"]);
    }

    #[test]
    fn a_context_is_one_line() {
        let passage = Passage::new(Kind::Prose, 5, "one two\nthree");
        assert_eq!(passage.context(4, 7), "one two three");
        assert_eq!(passage.line_of(8), 6);
    }
}
