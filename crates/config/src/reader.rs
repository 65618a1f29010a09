//! From a parsed document to the shape of a file, by serde.
//!
//! The `toml` crate reads values, too, but with five kinds of maps and sequences: tables, values with their places, dates, dates as tables
//! and arrays. The compiler makes the code that reads each shape once for each of them, most of it never used. This reader has one kind. So
//! the program is smaller and is built faster.

use std::fmt;
use std::ops::Range;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_spanned::de::is_spanned;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Why a value does not have the expected shape, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ReadError {
    pub(super) message: String,
    /// Where in the text; `None`: the mistake has not reached a value yet.
    pub(super) span: Option<Range<usize>>,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReadError {}

impl serde::de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), span: None }
    }
}

/// A value to be read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reader<'d> {
    /// A value of a document.
    Value(&'d Spanned<DeValue<'d>>),
    /// A place in the text, where a [`Spanned`] is read.
    Place(usize),
}

impl<'d> Reader<'d> {
    fn span(self) -> Option<Range<usize>> {
        match self {
            Self::Value(value) => Some(value.span()),
            Self::Place(_) => None,
        }
    }

    fn value(self) -> Option<&'d DeValue<'d>> {
        match self {
            Self::Value(value) => Some(value.get_ref()),
            Self::Place(_) => None,
        }
    }

    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let value = match self {
            Self::Value(value) => value.get_ref(),
            Self::Place(place) => return visitor.visit_u64(place as u64),
        };
        match value {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Integer(_) => match integer(value) {
                Some(Unexpected::Signed(number)) => visitor.visit_i64(number),
                Some(Unexpected::Unsigned(number)) => visitor.visit_u64(number),
                _ => Err(ReadError::invalid_value(unexpected(value), &visitor)),
            },
            DeValue::Float(_) => match float(value) {
                Some(number) => visitor.visit_f64(number),
                None => Err(ReadError::invalid_value(unexpected(value), &visitor)),
            },
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            DeValue::Array(items) => visitor.visit_seq(Items(items.iter())),
            DeValue::Table(table) => visitor.visit_map(Entries::of(table)),
            // No key takes one.
            DeValue::Datetime(_) => Err(ReadError::invalid_type(unexpected(value), &visitor)),
        }
    }

    /// The mistake has its place, at the latest here.
    fn placed<T>(self, read: Result<T, ReadError>) -> Result<T, ReadError> {
        read.map_err(|error| ReadError { span: error.span.or_else(|| self.span()), ..error })
    }
}

/// An integer of 64 bits; `None`: it has more.
fn integer(value: &DeValue<'_>) -> Option<Unexpected<'static>> {
    let DeValue::Integer(number) = value else { return None };
    let (text, radix) = (number.as_str(), number.radix());
    let signed = i64::from_str_radix(text, radix).ok().map(Unexpected::Signed);
    signed.or_else(|| u64::from_str_radix(text, radix).ok().map(Unexpected::Unsigned))
}

/// A number; `None`: it is too large.
fn float(value: &DeValue<'_>) -> Option<f64> {
    let DeValue::Float(number) = value else { return None };
    let text = number.as_str();
    text.parse().ok().filter(|number: &f64| !number.is_infinite() || text.contains("inf"))
}

/// How an error names a value.
fn unexpected<'d>(value: &'d DeValue<'d>) -> Unexpected<'d> {
    match value {
        DeValue::String(text) => Unexpected::Str(text),
        DeValue::Integer(_) => integer(value).unwrap_or(Unexpected::Other("integer beyond 64 bits")),
        DeValue::Float(_) => float(value).map_or(Unexpected::Other("number beyond 64 bits"), Unexpected::Float),
        DeValue::Boolean(value) => Unexpected::Bool(*value),
        DeValue::Datetime(_) => Unexpected::Other("date or time"),
        DeValue::Array(_) => Unexpected::Seq,
        DeValue::Table(_) => Unexpected::Map,
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.placed(self.visit(visitor))
    }

    // A key that is missing is `None`, so a value is always `Some`.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let entries = match (self, self.value()) {
            (Self::Value(value), _) if is_spanned(name) => Ok(Entries::spanned(value, fields)),
            (_, Some(DeValue::Table(table))) => Ok(Entries::of(table)),
            (_, Some(value)) => Err(ReadError::invalid_type(unexpected(value), &visitor)),
            (_, None) => Err(ReadError::custom("a place instead of a table")),
        };
        self.placed(entries.and_then(|entries| visitor.visit_map(entries)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.placed(match self.value() {
            Some(DeValue::String(text)) => visitor.visit_enum((**text).into_deserializer()),
            _ => Err(ReadError::custom("wanted a string")),
        })
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq bytes byte_buf map unit
        ignored_any unit_struct tuple_struct tuple identifier
    }
}

/// The items of an array.
struct Items<'d>(std::slice::Iter<'d, Spanned<DeValue<'d>>>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        self.0.next().map(|item| seed.deserialize(Reader::Value(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The entries of a table, or of what a [`Spanned`] is read from.
struct Entries<'d> {
    of: EntriesOf<'d>,
    /// The value of the key that was read last.
    value: Option<Reader<'d>>,
}

enum EntriesOf<'d> {
    Table(toml::map::Iter<'d, Spanned<DeString<'d>>, Spanned<DeValue<'d>>>),
    /// Start, end and value, by the names of the fields of `Spanned`.
    Spanned(std::slice::Iter<'static, &'static str>, &'d Spanned<DeValue<'d>>),
}

impl<'d> Entries<'d> {
    fn of(table: &'d DeTable<'d>) -> Self {
        Self { of: EntriesOf::Table(table.iter()), value: None }
    }

    fn spanned(value: &'d Spanned<DeValue<'d>>, fields: &'static [&'static str]) -> Self {
        Self { of: EntriesOf::Spanned(fields.iter(), value), value: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        match &mut self.of {
            EntriesOf::Table(entries) => {
                let Some((key, value)) = entries.next() else { return Ok(None) };
                self.value = Some(Reader::Value(value));
                let text: &str = key.get_ref();
                let read = seed.deserialize(StrDeserializer::new(text));
                read.map(Some).map_err(|error: ReadError| ReadError { span: error.span.or(Some(key.span())), ..error })
            }
            EntriesOf::Spanned(fields, value) => {
                self.value = Some(match fields.len() {
                    3 => Reader::Place(value.span().start),
                    2 => Reader::Place(value.span().end),
                    _ => Reader::Value(value),
                });
                // `Spanned` insists on names that it can keep.
                fields.next().map(|field| seed.deserialize(BorrowedStrDeserializer::new(field))).transpose()
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let value = self.value.take().ok_or_else(|| ReadError::custom("a value without a key"))?;
        value.placed(seed.deserialize(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape {
        name: Spanned<String>,
        #[serde(default)]
        sizes: Vec<u64>,
        share: Option<f64>,
        #[serde(default)]
        inner: Vec<Inner>,
        kind: Option<Kind>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        on: bool,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Large,
    }

    fn read(text: &str) -> Result<Shape, ReadError> {
        let table = toml::de::DeTable::parse(text).expect("it is TOML");
        let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        Shape::deserialize(Reader::Value(&root))
    }

    #[test]
    fn values_are_read_as_the_toml_crate_reads_them() {
        for text in [
            "name = \"a\"",
            "name = \"a\"\nsizes = [1, 0x10, 18446744073709551615]\nshare = inf\nkind = \"large\"",
            "name = 'é'\nshare = 1e-3\n[[inner]]\non = true\n[[inner]]\non = false",
        ] {
            let ours = read(text).expect("it has the shape");
            assert_eq!(ours, toml::from_str::<Shape>(text).expect("it has the shape"), "{text}");
        }
        let name = read("share = 0.5\nname = \"abc\"").unwrap().name;
        assert_eq!((name.span(), name.into_inner()), (19..24, "abc".to_owned()));
    }

    #[test]
    fn a_mistake_has_the_text_and_the_place_that_the_toml_crate_gives_it() {
        for text in [
            "sizes = []",
            "name = 1",
            "name = \"a\"\nsizes = [1, \"b\"]",
            "name = \"a\"\nsizes = [-1]",
            "name = \"a\"\nshare = true",
            "name = \"a\"\nother = 1",
            "name = \"a\"\nkind = \"small\"",
            "name = \"a\"\n[[inner]]\noff = 1",
            "name = \"a\"\ninner = [1]",
        ] {
            let (ours, theirs) = (read(text).unwrap_err(), toml::from_str::<Shape>(text).unwrap_err());
            assert_eq!((ours.message.as_str(), &ours.span), (theirs.message(), &theirs.span()), "{text}");
        }
        let large = read("name = 'a'\nsizes = [99999999999999999999]").unwrap_err();
        let expected = "invalid value: integer beyond 64 bits, expected u64";
        assert_eq!((large.message.as_str(), large.span), (expected, Some(20..40)));
        let date = read("name = 2026-01-01").unwrap_err();
        assert_eq!((date.message.as_str(), date.span), ("invalid type: date or time, expected a string", Some(7..17)));
    }
}
