//! The page of the objects that the control API answers with.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use syn::{Fields, Item, ItemEnum, ItemStruct};

use super::source::{Shape, doc, has_serde_option};
use super::{NOTICE, cell, source};

/// The files with the types.
const FILES: &[&str] = &[
    "lib.rs",
    "channel_status.rs",
    "class_status.rs",
    "compact_status.rs",
    "ends.rs",
    "event.rs",
    "lazy_status.rs",
    "mirror.rs",
    "orders.rs",
    "path.rs",
    "rate_limit_status.rs",
    "redundancy.rs",
    "service_status.rs",
    "state_service_status.rs",
    "status.rs",
    "syn_proxy_status.rs",
    "url_filter_status.rs",
    "edge.rs",
    "sync.rs",
];
/// The lines of an answer that are described: the value of `line`, and the type.
const LINES: &[(&str, &str)] = &[
    ("status", "Status"),
    ("flow", "Flow"),
    ("event", "Event"),
    ("readiness", "SyncReadiness"),
    ("reload", "ReloadReport"),
];

/// The types of the crate `api`, by their names.
#[derive(Default)]
struct Types {
    structs: BTreeMap<String, ItemStruct>,
    enums: BTreeMap<String, ItemEnum>,
}

/// The page.
///
/// # Errors
/// A file cannot be read, or it lacks a type.
pub(super) fn page(root: &Path) -> Result<String, String> {
    let mut types = Types::default();
    for file in FILES {
        types.add(source::items(root, &format!("crates/api/src/{file}"))?);
    }
    let mut page = format!(
        "# Objects of the control API\n\n{NOTICE}\n\n[Control API](../control-api.md) describes requests and answers. Counters \
         count from the start of the process. Fields whose names end in `_ns` are nanoseconds of the machine's monotonic clock.\n"
    );
    for (line, name) in LINES {
        types.add_object(&mut page, line, name)?;
    }
    Ok(page)
}

impl Types {
    fn add(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Struct(item) => drop(self.structs.insert(item.ident.to_string(), item)),
                Item::Enum(item) => drop(self.enums.insert(item.ident.to_string(), item)),
                _ => {}
            }
        }
    }

    /// Writes the section of an object and of those in it, each under the path that leads to it.
    fn add_object(&self, page: &mut String, path: &str, name: &str) -> Result<(), String> {
        let item = self.structs.get(name).ok_or_else(|| format!("crates/api has no type {name}"))?;
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## `{path}`\n\n{}\n\n| field | type | meaning |\n|---|---|---|\n", doc(&item.attrs));
        let Fields::Named(fields) = &item.fields else { return Err(format!("{name} has fields without names")) };
        let mut below = Vec::new();
        for field in &fields.named {
            let key = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
            let shape = Shape::of(&field.ty);
            let is_flat = has_serde_option(&field.attrs, "flatten");
            let shown = if is_flat { "further fields".to_owned() } else { format!("`{key}`") };
            let kind = self.kind(&shape, has_serde_option(&field.attrs, "skip_serializing_if"));
            let _ = writeln!(page, "| {shown} | {kind} | {} |", cell(&doc(&field.attrs)));
            if self.structs.contains_key(&shape.name) {
                below.push((format!("{path}.{key}{}", if shape.is_list { "[]" } else { "" }), shape.name));
            } else if let Some(item) = self.enums.get(&shape.name) {
                add_values(page, item);
            }
        }
        below.iter().try_for_each(|(path, name)| self.add_object(page, path, name))
    }

    /// The type of a field in JSON.
    fn kind(&self, shape: &Shape, is_left_out: bool) -> String {
        let kind = match shape.name.as_str() {
            "bool" => "boolean",
            "f64" => "number",
            "u8" | "u16" | "u32" | "u64" | "i64" => "integer",
            name if name == "BTreeMap" || self.structs.contains_key(name) => "object",
            _ => "string",
        };
        let kind = if shape.is_list { format!("list of {kind}") } else { kind.to_owned() };
        match (shape.is_optional, is_left_out) {
            (true, false) => format!("{kind} or null"),
            (_, true) => format!("{kind}, or absent"),
            _ => kind,
        }
    }
}

/// Writes the values of a field as rows below it.
fn add_values(page: &mut String, item: &ItemEnum) {
    for variant in &item.variants {
        let _ =
            writeln!(page, "| | `\"{}\"` | {} |", snake_case(&variant.ident.to_string()), cell(&doc(&variant.attrs)));
    }
}

/// A variant's name as `rename_all = "snake_case"` writes it.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for (index, c) in name.char_indices() {
        if c.is_uppercase() && index > 0 {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_follow_under_their_paths_and_values_under_their_fields() {
        let source = r#"
            /// The outer object.
            struct Outer {
                /// Several.
                #[serde(default, skip_serializing_if = "Vec::is_empty")]
                parts: Vec<Part>,
                /// A kind.
                kind: Kind,
            }
            /// A part.
            struct Part {
                /// A number.
                size: Option<u64>,
            }
            enum Kind {
                /// The first.
                FirstOne,
            }
        "#;
        let mut types = Types::default();
        types.add(syn::parse_file(source).expect("it is Rust").items);
        let mut page = String::new();
        types.add_object(&mut page, "outer", "Outer").expect("it is there");
        let head = "| field | type | meaning |\n|---|---|---|\n";
        let expected = format!(
            "\n## `outer`\n\nThe outer object.\n\n{head}| `parts` | list of object, or absent | Several. |\n\
             | `kind` | string | A kind. |\n| | `\"first_one\"` | The first. |\n\
             \n## `outer.parts[]`\n\nA part.\n\n{head}| `size` | integer or null | A number. |\n"
        );
        assert_eq!(page, expected);
        assert!(types.add_object(&mut page, "none", "None").is_err());
    }
}
