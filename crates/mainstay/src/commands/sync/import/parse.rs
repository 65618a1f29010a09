//! The format of conntrackd.conf(5): statements, each a line of words, some of which hold further ones in braces.
//!
//! ```text
//!   Sync {
//!       Mode FTFW {
//!           ACKWindowSize 300      # a comment
//!       }
//!   }
//! ```

use std::fmt;

/// Sections within sections, at most. conntrackd knows four levels.
const DEPTH_MAX: usize = 16;

/// A statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Statement {
    /// The line that it begins on, from 1.
    pub(super) line: usize,
    /// Its words, of which there is at least one.
    pub(super) words: Vec<String>,
    /// What it holds in braces; empty where it has none.
    pub(super) block: Vec<Statement>,
}

impl Statement {
    /// Its first word.
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Its second word, or nothing.
    pub(super) fn value(&self) -> &str {
        self.words.get(1).map_or("", String::as_str)
    }

    /// Whether its first word is this one, in any case.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }

    /// The last statement in it of that name.
    pub(super) fn find(&self, name: &str) -> Option<&Self> {
        self.block.iter().rfind(|statement| statement.is(name))
    }
}

/// What is wrong with the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// Where, from 1.
    pub line: usize,
    /// What, and what to do about it.
    pub problem: &'static str,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.problem)
    }
}

impl std::error::Error for SyntaxError {}

/// A part of a line.
#[derive(Debug)]
enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Reads the text.
pub(super) fn parse(text: &str) -> Result<Vec<Statement>, SyntaxError> {
    // The sections that are open, the outermost first; the last one takes statements.
    let mut open: Vec<Statement> = vec![Statement::default()];
    let mut current = Statement::default();
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let mut last_line = 1;
    for (line, text) in lines {
        last_line = line;
        let error = |problem| Err(SyntaxError { line, problem });
        for token in tokens(text) {
            match token {
                Token::Word(word) => {
                    if current.words.is_empty() {
                        current.line = line;
                    }
                    current.words.push(word);
                }
                Token::Open if current.words.is_empty() => {
                    // The brace may stand on a line of its own.
                    let Some(statement) = open.last_mut().and_then(|section| section.block.pop()) else {
                        return error("a brace opens a section without a name: write the section's name before it");
                    };
                    if !statement.block.is_empty() {
                        return error("a second brace opens here: remove it");
                    }
                    open.push(statement);
                }
                Token::Open => open.push(std::mem::take(&mut current)),
                Token::Close => {
                    end_statement(&mut open, &mut current);
                    let (Some(section), Some(outer)) = (open.pop(), open.last_mut()) else {
                        return error("a brace closes no section: remove it");
                    };
                    outer.block.push(section);
                }
                Token::End => end_statement(&mut open, &mut current),
            }
            if open.len() > DEPTH_MAX {
                return error("too many sections within sections: is it a conntrackd.conf?");
            }
        }
    }
    match (open.pop(), open.pop()) {
        (Some(whole), None) => Ok(whole.block),
        _ => Err(SyntaxError { line: last_line, problem: "the file ends within a section: add the closing brace" }),
    }
}

fn end_statement(open: &mut [Statement], current: &mut Statement) {
    if let Some(section) = open.last_mut().filter(|_| !current.words.is_empty()) {
        section.block.push(std::mem::take(current));
    }
}

/// The parts of a line, and its end.
fn tokens(line: &str) -> impl Iterator<Item = Token> {
    let mut rest = line;
    let mut ended = false;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let mut characters = rest.chars();
        let token = match characters.next() {
            None | Some('#') if ended => return None,
            None | Some('#') => {
                ended = true;
                return Some(Token::End);
            }
            Some('{') => Token::Open,
            Some('}') => Token::Close,
            Some('"') => {
                let (word, after) = characters.as_str().split_once('"').unwrap_or((characters.as_str(), ""));
                rest = after;
                return Some(Token::Word(word.to_owned()));
            }
            Some(_) => {
                let ends = |character: char| character.is_whitespace() || matches!(character, '{' | '}' | '#' | '"');
                let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
                rest = after;
                return Some(Token::Word(word.to_owned()));
            }
        };
        rest = characters.as_str();
        Some(token)
    })
}
