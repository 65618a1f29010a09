//! From a parsed document to the shape of a file, by serde.
//!
//! The `toml` crate reads values, too, but with four kinds of maps: tables, values with their places, dates and dates as tables. The
//! compiler makes the code that reads each shape once for each of them, two thirds of it never used. This reader has two kinds. So the
//! program is smaller and is built faster.

use std::fmt;
use std::ops::Range;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_spanned::de::{SpannedDeserializer, is_spanned};
use toml::Spanned;
use toml::de::{DeString, DeValue};

/// Why a value does not have the expected shape, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ReadError {
    pub(super) message: String,
    /// Where in the text; `None`: the mistake has not reached a value yet.
    pub(super) span: Option<Range<usize>>,
}

impl ReadError {
    /// At this place, unless its own is known.
    fn at(self, span: Range<usize>) -> Self {
        Self { span: self.span.or(Some(span)), ..self }
    }
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

/// A value of a document, to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'d>(pub(super) &'d Spanned<DeValue<'d>>);

impl<'de> Reader<'_> {
    fn visit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Integer(number) => {
                let (text, radix) = (number.as_str(), number.radix());
                match (i64::from_str_radix(text, radix), u64::from_str_radix(text, radix)) {
                    (Ok(number), _) => visitor.visit_i64(number),
                    (_, Ok(number)) => visitor.visit_u64(number),
                    _ => Err(ReadError::invalid_value(Unexpected::Other("integer beyond 64 bits"), &visitor)),
                }
            }
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(value) if value.is_finite() || number.as_str().contains("inf") || value.is_nan() => {
                    visitor.visit_f64(value)
                }
                _ => Err(ReadError::custom("floating-point number overflowed")),
            },
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            // No key takes one.
            DeValue::Datetime(_) => Err(ReadError::invalid_type(Unexpected::Other("date or time"), &visitor)),
            DeValue::Array(items) => visitor.visit_seq(Items(items.iter())),
            DeValue::Table(table) => visitor.visit_map(Entries { entries: table.iter(), value: None }),
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.visit(visitor).map_err(|error| error.at(self.0.span()))
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
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if is_spanned(name) {
            return visitor.visit_map(SpannedDeserializer::new(self, self.0.span()));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let read = match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_enum((**text).into_deserializer()),
            _ => Err(ReadError::custom("wanted a string")),
        };
        read.map_err(|error: ReadError| error.at(self.0.span()))
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq bytes byte_buf map unit
        ignored_any unit_struct tuple_struct tuple identifier
    }
}

impl<'de> IntoDeserializer<'de, ReadError> for Reader<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The items of an array.
struct Items<'d>(std::slice::Iter<'d, Spanned<DeValue<'d>>>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        self.0.next().map(|item| seed.deserialize(Reader(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The entries of a table.
struct Entries<'d> {
    entries: toml::map::Iter<'d, Spanned<DeString<'d>>, Spanned<DeValue<'d>>>,
    /// The value of the key that was read last.
    value: Option<&'d Spanned<DeValue<'d>>>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        let text: &str = key.get_ref();
        seed.deserialize(text.into_deserializer()).map(Some).map_err(|error: ReadError| error.at(key.span()))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let value = self.value.take().ok_or_else(|| ReadError::custom("a value without a key"))?;
        seed.deserialize(Reader(value)).map_err(|error| error.at(value.span()))
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
        Shape::deserialize(Reader(&root))
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
            "name = \"a\"\nshare = 1e999",
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
