//! The passages, links and anchors of a Markdown document.

use std::collections::{BTreeMap, BTreeSet};

use super::passage::{Kind, Passage, without_code};

/// A document as far as it is checked.
#[derive(Default)]
pub(super) struct Document {
    /// Paragraphs and headings, with their code and addresses still in them.
    pub(super) passages: Vec<Passage>,
    /// Line and target of each link.
    pub(super) links: Vec<(usize, String)>,
    /// What a link to this document may name behind `#`.
    pub(super) anchors: BTreeSet<String>,
}

impl Document {
    /// Reads a document.
    pub(super) fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut reader = Reader::default();
        for (index, line) in text.lines().enumerate() {
            if reader.is_code(line) {
                document.passages.extend(reader.paragraph.take());
            } else if let Some(heading) = heading(line) {
                document.passages.extend(reader.paragraph.take());
                document.passages.push(Passage::new(Kind::Heading, index + 1, heading));
            } else if let Some(paragraph) = &mut reader.paragraph {
                paragraph.text.push('\n');
                paragraph.text.push_str(line);
            } else {
                reader.paragraph = Some(Passage::new(Kind::Prose, index + 1, line));
            }
        }
        document.passages.extend(reader.paragraph);
        document.links = document.passages.iter().flat_map(links).collect();
        document.anchors = anchors(&document.passages);
        document
    }
}

/// Where the reading of a document stands.
#[derive(Default)]
struct Reader {
    paragraph: Option<Passage>,
    is_fenced: bool,
    is_list: bool,
    /// The line before was empty, or indented code.
    is_apart: bool,
}

impl Reader {
    /// Whether a line is code, empty or a fence, none of which is text.
    fn is_code(&mut self, line: &str) -> bool {
        let start = line.trim_start();
        let is_fence = start.starts_with("```") || start.starts_with("~~~");
        if is_fence || self.is_fenced {
            self.is_fenced ^= is_fence;
            return true;
        }
        let is_item = ["- ", "* ", "+ "].iter().any(|mark| start.starts_with(mark))
            || start.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let is_indented = line.starts_with("    ") && self.is_apart && !self.is_list && !is_item;
        if !start.is_empty() && !line.starts_with(' ') {
            self.is_list = false;
        }
        self.is_list |= is_item;
        self.is_apart = start.is_empty() || is_indented;
        self.is_apart
    }
}

/// The text of a heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    text.strip_prefix(' ').filter(|_| (1..=6).contains(&level)).map(str::trim)
}

/// The targets of links in a passage: `[text](target)`.
fn links(passage: &Passage) -> Vec<(usize, String)> {
    let text = without_spans(&passage.text);
    let targets = text.match_indices("](").filter_map(|(start, opening)| {
        let target = &text[start + opening.len()..];
        let target = &target[..target.find(')')?];
        Some((passage.line_of(start), target.split_whitespace().next()?.to_owned()))
    });
    targets.collect()
}

/// A text without its spans of code, in which brackets are no links.
fn without_spans(text: &str) -> String {
    // A span between two backticks is every second piece, where their number is even.
    let pieces: Vec<&str> = text.split('`').collect();
    let is_even = pieces.len() % 2 == 1;
    let kept = pieces.iter().enumerate().map(|(index, piece)| {
        let is_span = is_even && index % 2 == 1;
        if is_span { piece.replace(|c| c != '\n', " ") } else { (*piece).to_owned() }
    });
    kept.collect::<Vec<_>>().join(" ")
}

/// What links may name: headings, as GitHub makes anchors of them, and `<a id="…">`.
fn anchors(passages: &[Passage]) -> BTreeSet<String> {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for passage in passages {
        if passage.kind == Kind::Heading {
            let anchor = anchor(&passage.text);
            let earlier = uses.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
            anchors.insert(if *earlier == 0 { anchor } else { format!("{anchor}-{earlier}") });
        }
        let ids = passage.text.match_indices("<a id=\"").map(|(start, opening)| &passage.text[start + opening.len()..]);
        anchors.extend(ids.filter_map(|id| id.split('"').next()).map(str::to_owned));
    }
    anchors
}

/// The anchor of a heading: lower case, blanks as hyphens, no punctuation.
fn anchor(heading: &str) -> String {
    // Of a link in a heading the text counts.
    let text: String = without_code(heading)
        .char_indices()
        .filter_map(|(offset, blanked)| {
            let original = heading[offset..].chars().next()?;
            let is_target = blanked == '\x01' && is_in_target(heading, offset);
            (!is_target).then_some(original)
        })
        .collect();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Whether a byte of a heading lies in the target of a link.
fn is_in_target(heading: &str, offset: usize) -> bool {
    let Some(start) = heading[..=offset].rfind("](") else { return false };
    heading[start..].find(')').is_some_and(|length| offset <= start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A `key` of [it](x.md)\n\nOne [a](b.md#c)\ntwo `[d](e.md)`.\n\n```sh\nfenced\n```\n\n    indented\n\n\
        - item\n\n    of the item\n\n## Same\n## Same\n<a id=\"own\"></a>\n";

    #[test]
    fn code_is_no_passage_but_items_of_lists_are() {
        let document = Document::parse(TEXT);
        let texts: Vec<(usize, &str)> = document.passages.iter().map(|it| (it.line, it.text.as_str())).collect();
        let expected = [
            (1, "A `key` of [it](x.md)"),
            (3, "One [a](b.md#c)\ntwo `[d](e.md)`."),
            (12, "- item"),
            (14, "    of the item"),
            (16, "Same"),
            (17, "Same"),
            (18, "<a id=\"own\"></a>"),
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn links_have_lines_and_code_has_none() {
        let links = Document::parse(TEXT).links;
        assert_eq!(links, [(1, "x.md".to_owned()), (3, "b.md#c".to_owned())]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let anchors = Document::parse(TEXT).anchors;
        let expected = ["a-key-of-it", "own", "same", "same-1"];
        assert_eq!(anchors.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(anchor("`[[port]]`, and what it-is"), "port-and-what-it-is");
    }
}
