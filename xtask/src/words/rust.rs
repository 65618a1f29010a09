//! The passages of Rust's source: comments, string literals, and names where they are defined.
//!
//! Names are found by the tokens around them, so macros count too: behind `fn`, `struct` and the like, before a colon
//! (fields, parameters), in patterns of `let`, and as variants of an `enum`. Uses of foreign names are left alone.

use super::passage::{Kind, Passage};

/// A piece of source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'a> {
    /// The text behind the slashes, or within the stars.
    Comment(&'a str),
    /// What lies between the quotes.
    Text(&'a str),
    Name(&'a str),
    /// Numbers, characters and lifetimes.
    Other,
    Punctuation(char),
}

/// Words of the language that a definition's name follows.
const DEFINE: [&str; 10] = ["fn", "struct", "enum", "union", "trait", "type", "mod", "const", "static", "mut"];
/// Words of the language, which are no names.
const KEYWORDS: [&str; 24] = [
    "as", "async", "const", "crate", "dyn", "else", "enum", "fn", "for", "if", "impl", "in", "let", "move", "mut",
    "pub", "ref", "self", "static", "super", "type", "unsafe", "where", "while",
];

/// The passages of a source file.
pub(super) fn passages(source: &str) -> Vec<Passage> {
    let tokens = tokens(source);
    let mut passages = texts(&tokens);
    passages.extend(names(&tokens));
    passages
}

/// Comments and string literals. Comments on consecutive lines, without code between them, are one passage.
fn texts(tokens: &[(usize, Token<'_>)]) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut comment: Option<Passage> = None;
    for (line, token) in tokens {
        match token {
            Token::Comment(text) => match &mut comment {
                Some(open) if open.line_of(open.text.len()) + 1 == *line => {
                    open.text.push('\n');
                    open.text.push_str(text);
                }
                _ => passages.extend(comment.replace(Passage::new(Kind::Prose, *line, *text))),
            },
            Token::Text(text) => passages.push(Passage::new(Kind::Prose, *line, without_escapes(text))),
            _ => passages.extend(comment.take()),
        }
    }
    passages.extend(comment);
    passages
}

/// Blanks escapes and placeholders of a string literal; every byte keeps its place.
fn without_escapes(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut is_placeholder = false;
    while let Some(c) = characters.next() {
        match c {
            '\\' => {
                kept.push('\x01');
                // A line break that is escaped joins two lines of a sentence.
                match characters.next() {
                    Some('\n') => {
                        kept.pop();
                        kept.push_str(" \n");
                    }
                    Some(escaped) => kept.extend(std::iter::repeat_n('\x01', escaped.len_utf8())),
                    None => {}
                }
            }
            '{' if characters.peek() != Some(&'{') && text.contains('}') => {
                is_placeholder = true;
                kept.push('\x01');
            }
            '}' => {
                is_placeholder = false;
                kept.push('\x01');
            }
            _ if is_placeholder && c != '\n' => kept.extend(std::iter::repeat_n('\x01', c.len_utf8())),
            _ => kept.push(c),
        }
    }
    kept
}

/// Names where they are defined, each once.
fn names(tokens: &[(usize, Token<'_>)]) -> Vec<Passage> {
    let code: Vec<(usize, Token<'_>)> =
        tokens.iter().filter(|(_, token)| !matches!(token, Token::Comment(_))).copied().collect();
    let at = |index: Option<usize>| index.and_then(|index| code.get(index)).map_or(Token::Other, |(_, token)| *token);
    let mut seen = std::collections::HashSet::new();
    let mut names = Vec::new();
    let mut scopes = Scopes::default();
    for (index, (line, token)) in code.iter().enumerate() {
        let (previous, next) = (at(index.checked_sub(1)), at(Some(index + 1)));
        let is_variant = scopes.advance(*token, previous);
        let Token::Name(name) = token else { continue };
        if KEYWORDS.contains(name) {
            continue;
        }
        let before = at(index.checked_sub(2));
        let is_typed = next == Token::Punctuation(':')
            && at(Some(index + 2)) != Token::Punctuation(':')
            && previous != Token::Punctuation(':');
        let is_called = [':', '(', '{', '!', '.'].iter().any(|c| next == Token::Punctuation(*c));
        if (is_typed || is_variant || follows_definition(previous, before) || (scopes.is_pattern && !is_called))
            && seen.insert(*name)
        {
            names.push(Passage::new(Kind::Name, *line, *name));
        }
    }
    names
}

/// Whether a name behind these two tokens is defined there: `fn name`, but not `&mut name` and `*const Name`.
fn follows_definition(previous: Token<'_>, before: Token<'_>) -> bool {
    let Token::Name(keyword) = previous else {
        return previous == Token::Punctuation('!') && before == Token::Name("macro_rules");
    };
    let is_reference = ['&', '*'].iter().any(|c| before == Token::Punctuation(*c)) || before == Token::Other;
    DEFINE.contains(&keyword) && !(is_reference && ["mut", "const"].contains(&keyword))
}

/// What encloses a token, as far as names depend on it.
#[derive(Default)]
struct Scopes {
    /// Depth of brackets of any kind.
    depth: usize,
    /// Depth inside the braces of an `enum`.
    variants: Option<usize>,
    /// An `enum` was begun, and its braces come.
    is_enum: bool,
    /// Between `let` and its `=`, `:` or `;`.
    is_pattern: bool,
}

impl Scopes {
    /// Takes the next token; returns whether it is the name of a variant.
    fn advance(&mut self, token: Token<'_>, previous: Token<'_>) -> bool {
        match token {
            Token::Name("enum") => self.is_enum = true,
            Token::Name("let") => self.is_pattern = true,
            Token::Punctuation('=' | ';' | ':') => self.is_pattern = false,
            Token::Punctuation(c @ ('{' | '(' | '[')) => {
                self.depth += 1;
                if c == '{' && self.is_enum {
                    (self.is_enum, self.variants) = (false, Some(self.depth));
                }
            }
            Token::Punctuation('}' | ')' | ']') => {
                self.depth = self.depth.saturating_sub(1);
                self.variants = self.variants.filter(|depth| *depth <= self.depth);
            }
            Token::Name(_) => {
                let begins = ['{', ',', ']'].iter().any(|c| previous == Token::Punctuation(*c));
                return begins && self.variants == Some(self.depth);
            }
            _ => {}
        }
        false
    }
}

/// Splits source into tokens with their lines, from 1.
fn tokens(source: &str) -> Vec<(usize, Token<'_>)> {
    let mut scanner = Scanner { source, offset: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = scanner.next_token() {
        tokens.push(token);
    }
    tokens
}

struct Scanner<'a> {
    source: &'a str,
    offset: usize,
    line: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.offset..]
    }

    /// Passes a number of bytes, and returns them.
    fn take(&mut self, length: usize) -> &'a str {
        let taken = &self.rest()[..length];
        self.line += taken.matches('\n').count();
        self.offset += length;
        taken
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        self.take(rest.find(|c| !is_part(c)).unwrap_or(rest.len()))
    }

    fn next_token(&mut self) -> Option<(usize, Token<'a>)> {
        self.take_while(char::is_whitespace);
        let line = self.line;
        let rest = self.rest();
        let first = rest.chars().next()?;
        let token = if let Some(comment) = rest.strip_prefix("//") {
            let text = self.take(2 + comment.find('\n').unwrap_or(comment.len()));
            Token::Comment(text.trim_start_matches(['/', '!']))
        } else if rest.starts_with("/*") {
            Token::Comment(self.take_block_comment())
        } else if first == '"' {
            Token::Text(self.take_string(0))
        } else if first.is_ascii_digit() {
            self.take_while(|c| c.is_alphanumeric() || c == '_');
            Token::Other
        } else if first == '\'' {
            self.take_character();
            Token::Other
        } else if first.is_alphabetic() || first == '_' {
            self.take_name()
        } else {
            self.take(first.len_utf8());
            Token::Punctuation(first)
        };
        Some((line, token))
    }

    fn take_block_comment(&mut self) -> &'a str {
        let (rest, mut depth, mut length) = (self.rest(), 0, 0);
        while length < rest.len() {
            match &rest.as_bytes()[length..] {
                [b'/', b'*', ..] => (depth, length) = (depth + 1, length + 2),
                [b'*', b'/', ..] => (depth, length) = (depth - 1, length + 2),
                _ => length += 1,
            }
            if depth == 0 {
                break;
            }
        }
        self.take(length).trim_start_matches("/*").trim_end_matches("*/")
    }

    /// A string from its opening quote on: with a number of `#` behind the quotes it is raw, without it has escapes.
    fn take_string(&mut self, hashes: usize) -> &'a str {
        let rest = &self.rest()[1..];
        let length = if hashes > 0 {
            rest.find(&format!("\"{}", "#".repeat(hashes)))
        } else {
            let mut is_escaped = false;
            rest.bytes().position(|byte| {
                let is_end = byte == b'"' && !is_escaped;
                is_escaped = byte == b'\\' && !is_escaped;
                is_end
            })
        };
        let length = length.unwrap_or(rest.len());
        let end = (1 + length + 1 + hashes).min(self.rest().len());
        self.take(end);
        &rest[..length]
    }

    /// A character in quotes, or a lifetime.
    fn take_character(&mut self) {
        let rest = self.rest();
        let mut characters = rest.char_indices().skip(1);
        let length = match (characters.next(), characters.next()) {
            (Some((_, '\\')), Some((escaped, c))) => {
                let after = escaped + c.len_utf8();
                rest[after..].find('\'').map_or(rest.len(), |length| after + length + 1)
            }
            (Some(_), Some((quote, '\''))) => quote + 1,
            _ => 1,
        };
        self.take(length);
        if length == 1 {
            self.take_while(|c| c.is_alphanumeric() || c == '_');
        }
    }

    /// A name, or a string whose prefix (`r`, `b`, `br`, `c`) looks like one.
    fn take_name(&mut self) -> Token<'a> {
        let name = self.take_while(|c| c.is_alphanumeric() || c == '_');
        let rest = self.rest();
        let hashes = rest.find(|c| c != '#').unwrap_or(0);
        let is_quoted = rest[hashes..].starts_with('"');
        match name {
            "r" | "br" | "cr" if is_quoted && hashes > 0 => {
                self.take(hashes);
                Token::Text(self.take_string(hashes))
            }
            "r" | "br" | "cr" if is_quoted => Token::Text(self.take_raw_string()),
            "b" | "c" if rest.starts_with('"') => Token::Text(self.take_string(0)),
            "b" if rest.starts_with('\'') => {
                self.take_character();
                Token::Other
            }
            _ => Token::Name(name),
        }
    }

    /// A raw string without `#`: it ends at the next quote.
    fn take_raw_string(&mut self) -> &'a str {
        let rest = &self.rest()[1..];
        let length = rest.find('"').unwrap_or(rest.len());
        self.take((length + 2).min(self.rest().len()));
        &rest[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind(source: &str, kind: Kind) -> Vec<(usize, String)> {
        let passages = passages(source).into_iter().filter(|passage| passage.kind == kind);
        passages.map(|passage| (passage.line, passage.text.replace('\x01', "~"))).collect()
    }

    fn names(source: &str) -> Vec<String> {
        of_kind(source, Kind::Name).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn names_count_where_they_are_defined() {
        assert_eq!(names("fn f(a: u8) -> b::C { d.e(g) }"), ["f", "a"]);
        assert_eq!(names("let (a, mut b) = c; if let Some(d) = e {}"), ["a", "b", "d"]);
        assert_eq!(names("enum A { #[x] B(C), D { e: F }, G = 1 } fn h() {}"), ["A", "B", "D", "e", "G", "h"]);
        assert_eq!(names("impl A for B { const C: D = E; } fn f(x: &mut G) {}"), ["C", "f", "x"]);
        assert_eq!(names("macro_rules! m { () => { struct S; } }"), ["m", "S"]);
    }

    #[test]
    fn comments_of_consecutive_lines_are_one_passage() {
        let source = "/// One\n/// two\nfn f() {} // three\n\n/* four /* five */ */";
        let expected = [(1, " One\n two".to_owned()), (3, " three".to_owned()), (5, " four /* five */ ".to_owned())];
        let found = of_kind(source, Kind::Prose);
        assert_eq!(found, expected);
    }

    #[test]
    fn strings_lose_escapes_and_placeholders() {
        let found = of_kind(r####"f("a\tb {name} \"c\"", r#"d "e" {"#, '"', b"g", 'h')"####, Kind::Prose);
        let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["a~~b ~~~~~~ ~~c~~", "d \"e\" {", "g"]);
    }

    #[test]
    fn a_quote_character_does_not_open_a_string() {
        assert_eq!(names("fn f<'a>(x: &'a str) { let y = '\\''; let z = '\"'; }"), ["f", "x", "y", "z"]);
    }
}
