//! Citations: papers by the keys of `docs/bibliography.md`, RFCs by well-formed numbers.

use std::collections::BTreeSet;

use super::passage::{Kind, Passage, without_code};

/// What a citation names behind the work.
const PARTS: [&str; 10] =
    ["section", "sections", "chapter", "chapters", "figure", "figures", "table", "tables", "algorithm", "appendix"];
/// Digits of the longest number of an RFC.
const RFC_DIGITS_MAX: usize = 5;

/// The keys of the bibliography: the first column of its table.
pub(super) fn keys(bibliography: &str) -> BTreeSet<String> {
    let rows = bibliography.lines().filter_map(|line| line.strip_prefix('|'));
    let cells = rows.filter_map(|row| row.split('|').next()).map(|cell| cell.trim().trim_matches('`'));
    cells.filter(|cell| is_key(cell)).map(str::to_owned).collect()
}

/// Capitals and hyphens, two capitals at least: `FT-FW`.
fn is_key(text: &str) -> bool {
    text.chars().filter(char::is_ascii_uppercase).count() >= 2
        && text.chars().all(|c| c.is_ascii_uppercase() || c == '-')
}

/// The malformed and unresolved citations of a passage: line, and what is wrong.
pub(super) fn check(passage: &Passage, keys: &BTreeSet<String>) -> Vec<(usize, String)> {
    if passage.kind == Kind::Name {
        return Vec::new();
    }
    let text = without_code(&passage.text);
    let tokens: Vec<(usize, &str)> = tokens(&text);
    let mut wrong = Vec::new();
    for (index, (offset, token)) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1).map_or("", |(_, next)| *next);
        let after = tokens.get(index + 2).map_or("", |(_, after)| *after);
        let is_whole = text[..*offset].ends_with(['(', '[']);
        if let Some(fault) = fault(token, next, after, is_whole.then_some(keys)) {
            wrong.push((passage.line_of(*offset), fault));
        }
    }
    wrong
}

/// What is wrong with a citation that begins with a token. A key has to resolve where nothing else stands before it in
/// brackets: elsewhere it may be the last word of a name.
fn fault(token: &str, next: &str, after: &str, keys: Option<&BTreeSet<String>>) -> Option<String> {
    let word = token.trim_end_matches([',', ':']);
    if word.eq_ignore_ascii_case("seed") && is_seed_number(next) {
        return Some(format!("\"{word} {next}\": cite the paper by a key of docs/bibliography.md"));
    }
    let is_cited = PARTS.contains(&next) && after.starts_with(|c: char| c.is_ascii_digit() || "IVXA".contains(c));
    if is_cited && is_seed_number(word) {
        return Some(format!("\"{word} {next}\": cite the paper by a key of docs/bibliography.md"));
    }
    if is_cited && is_key(word) && keys.is_some_and(|keys| !keys.contains(word)) {
        return Some(format!("\"{word}, {next} {after}\": docs/bibliography.md has no such key"));
    }
    if word == "RFC" && next.starts_with(|c: char| c.is_ascii_digit()) {
        let digits = next.trim_end_matches(|c: char| !c.is_ascii_digit());
        let is_number = digits.len() <= RFC_DIGITS_MAX && !digits.starts_with('0') && digits.parse::<u32>().is_ok();
        return (!is_number).then(|| format!("\"RFC {next}\": not the number of an RFC"));
    }
    let glued = word.strip_prefix("RFC").and_then(|rest| rest.trim_start_matches('-').chars().next());
    glued.filter(char::is_ascii_digit).map(|_| format!("\"{word}\": write \"RFC\", a blank and the number"))
}

/// Numbers that files once had: `000` to `009`.
fn is_seed_number(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    digits.len() == 3 && digits.starts_with("00") && digits.chars().all(|c| c.is_ascii_digit())
}

/// The pieces of a text between blanks, brackets and quotes, and where they begin.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let is_between = |c: char| c.is_whitespace() || "()[]\"*".contains(c);
    let mut offset = 0;
    let mut tokens = Vec::new();
    for piece in text.split_inclusive(is_between) {
        let token = piece.trim_end_matches(is_between);
        if !token.is_empty() {
            tokens.push((offset, token));
        }
        offset += piece.len();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> usize {
        let keys = keys("| key | work |\n|---|---|\n| FT-FW | a paper |\n| RE | another |\n");
        check(&Passage::new(Kind::Prose, 1, text), &keys).len()
    }

    #[test]
    fn keys_resolve_where_a_part_of_a_work_is_named() {
        assert_eq!(wrong("as it is (FT-FW, section 6.1) and RE\nfigure 3"), 0);
        assert_eq!(wrong(concat!("as it is (MISS", "ING, section 6.1)")), 1);
        assert_eq!(wrong("TCP section of the file"), 0);
    }

    #[test]
    fn papers_are_not_cited_by_the_number_of_a_file() {
        assert_eq!(wrong(concat!("see se", "ed 00", "1, section 4")), 2);
        assert_eq!(wrong("RNG seed 1234"), 0);
    }

    #[test]
    fn numbers_of_rfcs_are_well_formed() {
        assert_eq!(wrong("RFC 9293 section 3.7.1, (RFC 826), RFCs"), 0);
        assert_eq!(wrong(concat!("RFC", "9293")), 1);
        assert_eq!(wrong(concat!("RFC ", "0826 and RFC ", "1234567")), 2);
    }
}
