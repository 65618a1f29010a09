//! The keys of a configuration file, from the types that it is read into: names, types and doc comments.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Field, Fields, Item, Lit, Token};

use super::source::{Shape, doc, has_serde_option};

/// The types of values: how the page calls them, and the range that the type itself has.
const KINDS: [(&str, &str, Option<&str>); 16] = [
    ("Text", "string", None),
    ("String", "string", None),
    ("bool", "boolean", Some("`true` or `false`")),
    ("f64", "number", None),
    ("u8", "integer", Some("0 to 255")),
    ("u16", "integer", Some("0 to 65535")),
    ("u32", "integer", None),
    ("u64", "integer", None),
    ("DurationText", "duration", None),
    ("AddressText", "address", None),
    ("SocketAddressText", "socket address", None),
    ("PrefixText", "prefix", None),
    ("PathText", "path", None),
    ("PortText", "ports", None),
    ("ProtocolText", "protocol", None),
    ("SizeText", "size", None),
];
/// Types with two forms: the second is a string in place of a number.
const NUMBERS_OR_WORDS: [&str; 2] = ["MssText", "WorkersText"];

/// A key of a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    /// How its value is written: `integer`, `list of prefix`.
    pub(super) kind: String,
    /// What the type allows, if that is narrower than its kind.
    pub(super) range: Option<&'static str>,
    /// It has to be given.
    pub(super) is_required: bool,
    /// The doc comment.
    pub(super) meaning: String,
    /// The text of the doc comment behind "Default:".
    pub(super) default: Option<String>,
}

/// A section of a file, with the keys that stand in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Section {
    /// The names up to it: `replication.peer`; empty at the top of the file.
    pub(super) name: String,
    /// There can be several: `[[port]]`.
    pub(super) is_list: bool,
    /// The doc comments of its field, if that has one of its own, and of its type.
    pub(super) meaning: String,
    pub(super) keys: Vec<Key>,
}

/// A type that a section is read into.
struct Structure {
    meaning: String,
    fields: Vec<Field>,
}

/// The types of the crate that files are read into, by their names.
#[derive(Default)]
pub(super) struct Schema {
    structures: BTreeMap<String, Structure>,
}

impl Schema {
    /// Adds the types of a source file. Of types with the same name the one counts that was added last.
    ///
    /// # Errors
    /// The macro of timeouts has another form.
    pub(super) fn add(&mut self, items: Vec<Item>) -> Result<(), String> {
        for item in items {
            match item {
                Item::Struct(item) => {
                    if let Fields::Named(fields) = item.fields {
                        let structure =
                            Structure { meaning: doc(&item.attrs), fields: fields.named.into_iter().collect() };
                        self.structures.insert(item.ident.to_string(), structure);
                    }
                }
                Item::Macro(item) if item.mac.path.is_ident("timeouts") => {
                    let structure = timeouts.parse2(item.mac.tokens).map_err(|error| error.to_string())?;
                    self.structures.insert("RawTimeouts".to_owned(), structure);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The sections of a file that is read into a type.
    ///
    /// # Errors
    /// There is no such type, or a value's type is not one of [`KINDS`].
    pub(super) fn sections(&self, root: &str) -> Result<Vec<Section>, String> {
        let mut sections = Vec::new();
        let top = Section { name: String::new(), is_list: false, meaning: String::new(), keys: Vec::new() };
        self.add_section(root, top, &mut sections)?;
        sections.retain(|section| !section.keys.is_empty());
        Ok(sections)
    }

    fn add_section(&self, of: &str, mut section: Section, sections: &mut Vec<Section>) -> Result<(), String> {
        let structure = self.structures.get(of).ok_or_else(|| format!("there is no type {of}"))?;
        let separator = if section.meaning.is_empty() { "" } else { " " };
        section.meaning = format!("{}{separator}{}", section.meaning, structure.meaning);
        let (name, index) = (section.name.clone(), sections.len());
        sections.push(section);
        for field in &structure.fields {
            let key = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
            let shape = Shape::of(&field.ty);
            if self.structures.contains_key(&shape.name) {
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                // A comment that only repeats the section's name is left out.
                let meaning = Some(doc(&field.attrs)).filter(|text| !text.starts_with("`["));
                let meaning = meaning.unwrap_or_default();
                let below = Section { name, is_list: shape.is_list, meaning, keys: Vec::new() };
                self.add_section(&shape.name, below, sections)?;
            } else {
                let key = Self::key(key, field, &shape)?;
                sections[index].keys.push(key);
            }
        }
        Ok(())
    }

    fn key(name: String, field: &Field, shape: &Shape) -> Result<Key, String> {
        let (kind, range) = if NUMBERS_OR_WORDS.contains(&shape.name.as_str()) {
            ("integer or string", None)
        } else {
            let found = KINDS.iter().find(|(known, ..)| *known == shape.name);
            let (_, kind, range) = found.ok_or_else(|| {
                format!("the type {} of the key {name} has no name for the pages: add it to KINDS", shape.name)
            })?;
            (*kind, *range)
        };
        let kind = if shape.is_list { format!("list of {kind}") } else { kind.to_owned() };
        let doc = doc(&field.attrs);
        let (meaning, default) =
            doc.split_once(" Default: ").map_or((doc.as_str(), None), |(meaning, default)| (meaning, Some(default)));
        Ok(Key {
            name,
            kind,
            range,
            is_required: !shape.is_optional && !has_serde_option(&field.attrs, "default"),
            meaning: meaning.to_owned(),
            default: default.map(|text| text.trim_end_matches('.').to_owned()),
        })
    }
}

/// The keys that the macro of timeouts makes: a doc comment, a name, `=` and seconds. The comment of the whole stands first.
fn timeouts(input: ParseStream<'_>) -> syn::Result<Structure> {
    let meaning = doc(&input.call(Attribute::parse_inner)?);
    let mut fields = Vec::new();
    while !input.is_empty() {
        let attributes = input.call(Attribute::parse_outer)?;
        let name: syn::Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        input.parse::<Lit>()?;
        input.parse::<Token![,]>()?;
        let field: TokenStream = format!("{name}: Option<DurationText>").parse()?;
        let mut field = Field::parse_named.parse2(field)?;
        field.attrs = attributes;
        fields.push(field);
    }
    Ok(Structure { meaning, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        struct Root {
            /// At the top.
            list: Option<Vec<Text>>,
            /// `[section]`.
            section: Option<Spanned<Inner>>,
            /// Several.
            #[serde(default)]
            entry: Vec<Spanned<Entry>>,
        }
        /// A section.
        struct Inner {
            /// A number
            /// of things. Default: the number of peers.
            count: Option<Spanned<u8>>,
            #[serde(default)]
            log: bool,
            nested: super::Entry,
        }
        /// An entry.
        struct Entry {
            /// Either.
            port: PortText,
        }
        timeouts! {
            //! Times.
            /// How long. 
            udp = 30,
        }
    "#;

    fn schema() -> Schema {
        let mut schema = Schema::default();
        schema.add(syn::parse_file(SOURCE).expect("it is Rust").items).expect("its macro is understood");
        schema
    }

    #[test]
    fn structures_are_sections_and_other_types_are_keys() {
        let sections = schema().sections("Root").expect("it is there");
        let found: Vec<_> = sections.iter().map(|it| (it.name.as_str(), it.is_list, it.meaning.as_str())).collect();
        let expected = [
            ("", false, ""),
            ("section", false, "A section."),
            ("section.nested", false, "An entry."),
            ("entry", true, "Several. An entry."),
        ];
        assert_eq!(found, expected);
        assert_eq!(sections[0].keys[0].kind, "list of string");
        assert_eq!((sections[3].keys[0].kind.as_str(), sections[3].keys[0].is_required), ("ports", true));
    }

    #[test]
    fn a_doc_comment_is_the_meaning_and_may_end_with_the_default() {
        let inner = schema().sections("Root").expect("it is there").remove(1);
        let count = &inner.keys[0];
        assert_eq!(
            (count.meaning.as_str(), count.default.as_deref()),
            ("A number of things.", Some("the number of peers"))
        );
        assert_eq!((count.range, count.is_required), (Some("0 to 255"), false));
        assert!(!inner.keys[1].is_required);
    }

    #[test]
    fn keys_that_a_macro_makes_count() {
        let section = schema().sections("RawTimeouts").expect("it is there").remove(0);
        let key = &section.keys[0];
        assert_eq!((section.meaning.as_str(), key.name.as_str(), key.meaning.as_str()), ("Times.", "udp", "How long."));
    }

    #[test]
    fn a_type_without_a_name_for_the_page_is_refused() {
        let mut schema = Schema::default();
        let items = syn::parse_file("struct Root { key: Option<Unknown> }").expect("it is Rust").items;
        schema.add(items).expect("there is no macro");
        assert!(schema.sections("Root").expect_err("it is unknown").contains("Unknown of the key key"));
    }
}
