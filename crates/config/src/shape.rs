//! From the text of a file to its shape, with all mistakes of it rather than the first.
//!
//! The reader (serde) stops at a mistake. It is reported and put right in the parsed document, and the document is read
//! again: a key that resembles a known one is renamed, another is removed, a value of the wrong type is removed, and for
//! a key that is missing there is a stand-in. Diagnostics about stand-ins are left out ([`Diagnostics`]).

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::diagnostic::{Diagnostics, Mistake, STAND_IN_OFFSET};
use super::reader::Reader;

/// Mistakes of the shape that are reported of one file.
const MISTAKES_MAX: usize = 64;
/// Values that stand in for a missing one, tried in this order until the type is right.
const STAND_INS: [&str; 6] = ["\"\"", "0", "false", "0.0", "[]", "{}"];

/// What was read of a file.
pub(super) struct Read<R> {
    /// Its values; a stand-in for each that is missing.
    pub(super) raw: R,
    /// None is missing but those of unknown keys.
    pub(super) is_whole: bool,
}

/// Reads the text as one kind of file; `None` if no value of it can be had. Mistakes are reported.
pub(super) fn read<R: DeserializeOwned>(text: &str, diagnostics: &mut Diagnostics<'_>) -> Option<Read<R>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors.iter().take(MISTAKES_MAX) {
        diagnostics.error(error.span().unwrap_or_default(), "syntax", syntax_mistake(error.message()));
    }
    // An error that follows another mistake may be misleading.
    if errors.iter().any(|error| !error.message().starts_with("duplicate")) {
        return None;
    }
    let mut document = Document::new(table);
    for _ in 0..2 * MISTAKES_MAX {
        let error = match R::deserialize(Reader::Value(&document.root)) {
            Ok(raw) => {
                let is_whole = document.removed.is_empty() && document.stand_ins.is_empty();
                return Some(Read { raw, is_whole });
            }
            Err(error) => error,
        };
        let span = error.span?;
        let Repair { mistake, is_repaired } = document.repair(span.clone(), &error.message);
        if let Some(mistake) = mistake {
            diagnostics.error(span, "syntax", mistake);
        }
        if !is_repaired {
            return None;
        }
    }
    None
}

/// The diagnostic of a mistake, and whether the document can be read without it.
struct Repair {
    mistake: Option<Mistake>,
    is_repaired: bool,
}

/// A step from the document towards a value.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// A parsed file that mistakes are put right in.
struct Document<'a> {
    root: Spanned<DeValue<'a>>,
    /// Where keys with values of a wrong type were removed: the table's place and the key.
    removed: Vec<(Range<usize>, String)>,
    /// For each stand-in, which of [`STAND_INS`] it is.
    stand_ins: Vec<usize>,
    /// What was said last, and of which place.
    last: (Range<usize>, String),
}

impl<'a> Document<'a> {
    fn new(table: Spanned<DeTable<'a>>) -> Self {
        let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        Self { root, removed: Vec::new(), stand_ins: Vec::new(), last: (0..0, String::new()) }
    }

    /// Puts right what the reader found at a place.
    fn repair(&mut self, span: Range<usize>, message: &str) -> Repair {
        if let Some(stand_in) = span.start.checked_sub(STAND_IN_OFFSET) {
            return Repair { mistake: None, is_repaired: self.try_next_stand_in(stand_in) };
        }
        let last = std::mem::replace(&mut self.last, (span.clone(), message.to_owned()));
        let is_new = last != self.last;
        let report = |mistake| is_new.then_some(mistake);
        if let Some(key) = quoted(message, "unknown field ") {
            let (similar, mistake) = unknown_key(key, message);
            return Repair { mistake: report(mistake), is_repaired: self.rename_or_remove(&span, similar) };
        }
        if let Some(key) = quoted(message, "missing field ") {
            let is_consequence = self.removed.contains(&(span.clone(), key.to_owned()));
            let mistake = report(syntax_mistake(message)).filter(|_| !is_consequence);
            return Repair { mistake, is_repaired: self.add_stand_in(&span, key) };
        }
        Repair { mistake: report(syntax_mistake(message)), is_repaired: self.remove(&span) }
    }

    /// Renames the key at a place, or removes it with its value.
    fn rename_or_remove(&mut self, span: &Range<usize>, similar: Option<&str>) -> bool {
        let place = find(self.root.get_ref(), &|key, _| key.is_some_and(|key| key.span() == *span));
        let Some((Step::Key(key), parent)) = place.as_deref().and_then(<[Step]>::split_last) else { return false };
        let Some(table) = table_at(&mut self.root, parent) else { return false };
        let Some(value) = table.remove(key.as_str()) else { return false };
        if let Some(similar) = similar.filter(|similar| !table.contains_key(*similar)) {
            table.insert(Spanned::new(span.clone(), DeString::from(similar.to_owned())), value);
        }
        true
    }

    /// Removes the value at a place from the table or array that holds it.
    fn remove(&mut self, span: &Range<usize>) -> bool {
        let Some(place) = find(self.root.get_ref(), &|_, value| value.span() == *span) else { return false };
        let Some((last, parent)) = place.split_last() else { return false };
        let Some(container) = value_at(&mut self.root, parent) else { return false };
        let container_span = container.span();
        match (container.get_mut(), last) {
            (DeValue::Table(table), Step::Key(key)) => {
                self.removed.push((container_span, key.clone()));
                table.remove(key.as_str()).is_some()
            }
            (DeValue::Array(array), Step::Index(index)) => {
                self.removed.push((container_span, String::new()));
                let items = std::mem::replace(array, DeArray::new()).into_iter().enumerate();
                items.filter(|(number, _)| number != index).for_each(|(_, item)| array.push(item));
                true
            }
            _ => false,
        }
    }

    fn add_stand_in(&mut self, span: &Range<usize>, key: &str) -> bool {
        let is_it = |_: Option<&Spanned<DeString<'_>>>, value: &Spanned<DeValue<'_>>| {
            value.span() == *span && value.get_ref().is_table()
        };
        let Some(place) = find(self.root.get_ref(), &is_it) else { return false };
        let Some(table) = table_at(&mut self.root, &place) else { return false };
        let offset = STAND_IN_OFFSET + self.stand_ins.len();
        let Some(value) = stand_in(0, offset) else { return false };
        table.insert(Spanned::new(offset..offset, DeString::from(key.to_owned())), value);
        self.stand_ins.push(0);
        true
    }

    fn try_next_stand_in(&mut self, number: usize) -> bool {
        let offset = STAND_IN_OFFSET + number;
        let Some(kind) = self.stand_ins.get_mut(number) else { return false };
        *kind += 1;
        let Some(value) = stand_in(*kind, offset) else { return false };
        let place = find(self.root.get_ref(), &|_, value| value.span().start == offset);
        let held = place.and_then(|place| value_at(&mut self.root, &place));
        held.map(|held| *held = value).is_some()
    }
}

/// A value of one of the kinds of [`STAND_INS`], at a place behind the text.
fn stand_in<'a>(kind: usize, offset: usize) -> Option<Spanned<DeValue<'a>>> {
    let value = DeValue::parse(STAND_INS.get(kind)?).ok()?;
    Some(Spanned::new(offset..offset, value.into_inner()))
}

/// The way to the innermost value that `is_it` finds, by its key and itself.
fn find(
    value: &DeValue<'_>,
    is_it: &impl Fn(Option<&Spanned<DeString<'_>>>, &Spanned<DeValue<'_>>) -> bool,
) -> Option<Vec<Step>> {
    let within = |key: Option<&Spanned<DeString<'_>>>, child: &Spanned<DeValue<'_>>, step: Step| {
        if let Some(mut way) = find(child.get_ref(), is_it) {
            way.insert(0, step);
            return Some(way);
        }
        is_it(key, child).then(|| vec![step])
    };
    match value {
        DeValue::Table(table) => {
            table.iter().find_map(|(key, child)| within(Some(key), child, Step::Key(key.get_ref().to_string())))
        }
        DeValue::Array(array) => {
            array.iter().enumerate().find_map(|(index, child)| within(None, child, Step::Index(index)))
        }
        _ => None,
    }
}

fn value_at<'t, 'a>(root: &'t mut Spanned<DeValue<'a>>, way: &[Step]) -> Option<&'t mut Spanned<DeValue<'a>>> {
    way.iter().try_fold(root, |value, step| match (value.get_mut(), step) {
        (DeValue::Table(table), Step::Key(key)) => table.get_mut(key.as_str()),
        (DeValue::Array(array), Step::Index(index)) => array.get_mut(*index),
        _ => None,
    })
}

fn table_at<'t, 'a>(root: &'t mut Spanned<DeValue<'a>>, way: &[Step]) -> Option<&'t mut DeTable<'a>> {
    match value_at(root, way)?.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// The key that a message of the reader begins with.
fn quoted<'m>(message: &'m str, beginning: &str) -> Option<&'m str> {
    message.trim_start().strip_prefix(beginning)?.strip_prefix('`')?.split('`').next()
}

/// The known key that an unknown one was probably meant to be, and the diagnostic of it.
fn unknown_key<'m>(key: &str, message: &'m str) -> (Option<&'m str>, Mistake) {
    let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
    let problem = format!("unknown field `{key}`");
    if key == "chain" {
        return (None, Mistake::new(problem, "move `chain` above the first [section] of the file"));
    }
    if let Some(similar) = most_similar(key, &known) {
        return (Some(similar), Mistake::new(problem, format!("did you mean `{similar}`? If not, remove it")));
    }
    let remedy = match known.len() {
        0 => "remove it".to_owned(),
        _ => format!("remove it, or write one of `{}`", known.join("`, `")),
    };
    (None, Mistake::new(problem, remedy))
}

/// The known name that differs from a name in few letters, if there is one.
fn most_similar<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let distance = |known: &&&str| strsim::osa_distance(name, known);
    // Of three letters one may differ, of six two.
    let distance_max = (name.chars().count() / 3).max(1);
    known.iter().min_by_key(distance).filter(|known| distance(known) <= distance_max).copied()
}

/// What to do about a mistake that the TOML reader found.
fn syntax_mistake(message: &str) -> Mistake {
    let message = message.trim().replace('\n', ", ");
    let remedy = if message.starts_with("missing field") {
        "add it to this section"
    } else if message.starts_with("duplicate") {
        "keep one of the two"
    } else if message.starts_with("invalid") || message.starts_with("expected") {
        "write the value as docs/configuration.md shows it"
    } else {
        "correct the TOML here"
    };
    Mistake::new(message, remedy)
}
