//! What parsers answer.

/// What a parser knows from a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspected<T> {
    /// The bytes are what the parser is for, and this is in them.
    Found(T),
    /// The bytes are something else, whatever follows.
    Other,
    /// More bytes are needed.
    Partial,
    /// The bytes are what the parser is for, and recipients read them in different ways, or refuse them.
    Malformed,
}

impl<T> Inspected<T> {
    /// The same with the found value converted.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Inspected<U> {
        match self {
            Self::Found(value) => Inspected::Found(convert(value)),
            Self::Other => Inspected::Other,
            Self::Partial => Inspected::Partial,
            Self::Malformed => Inspected::Malformed,
        }
    }

    /// The found value.
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(value) => Some(value),
            Self::Other | Self::Partial | Self::Malformed => None,
        }
    }

    /// Whether more bytes do not change the answer.
    pub const fn is_settled(&self) -> bool {
        !matches!(self, Self::Partial)
    }
}

/// Whether `prefix` begins with `pattern`; partial while it is a part of the pattern.
pub(super) fn starts_with(prefix: &[u8], pattern: &[u8]) -> Inspected<()> {
    let common_bytes = prefix.len().min(pattern.len());
    match prefix[..common_bytes] == pattern[..common_bytes] {
        true if common_bytes == pattern.len() => Inspected::Found(()),
        true => Inspected::Partial,
        false => Inspected::Other,
    }
}
