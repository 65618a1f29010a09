//! The pages of configuration keys: a gateway's, and those of `mainstay edge` and `mainstay sync`.

use std::fmt::Write;
use std::path::Path;

use super::schema::{Key, Schema, Section};
use super::{NOTICE, Setting, cell, source};

/// The files with the types that a gateway's file is read into.
const GATEWAY: &[&str] = &[
    "value.rs",
    "raw.rs",
    "raw/classifier.rs",
    "raw/limits.rs",
    "raw/membership.rs",
    "raw/rate_limit.rs",
    "raw/reachability.rs",
    "raw/redundancy.rs",
    "raw/router_advertisements.rs",
    "raw/service.rs",
    "raw/syn_proxy.rs",
    "raw/url_filter.rs",
    "backups.rs",
    "compact.rs",
    "lazy.rs",
    "security.rs",
    "timeouts.rs",
];
/// The file with the types of `mainstay sync`, whose names hide a gateway's.
const SYNC: &str = "raw/sync.rs";
/// The file with the types of `mainstay edge`.
const EDGE: &str = "raw/edge.rs";

/// The page of a gateway's keys, with ranges and defaults as its checks note them.
pub(super) fn gateway(root: &Path, settings: &[Setting]) -> Result<String, String> {
    let sections = schema(root, GATEWAY)?.sections("RawConfig")?;
    let title = "Configuration keys of a gateway";
    Ok(page(title, "[Configuration](../configuration.md) has examples and advice.", &sections, settings))
}

/// The page of the keys of `mainstay sync`.
pub(super) fn sync(root: &Path, settings: &[Setting]) -> Result<String, String> {
    let files: Vec<&str> = GATEWAY.iter().copied().chain([SYNC]).collect();
    let sections = schema(root, &files)?.sections("RawSync")?;
    let title = "Configuration keys of mainstay sync";
    Ok(page(title, "[mainstay sync](../sync.md) has examples and advice.", &sections, settings))
}

/// The page of the keys of `mainstay edge`.
pub(super) fn edge(root: &Path, settings: &[Setting]) -> Result<String, String> {
    let files: Vec<&str> = GATEWAY.iter().copied().chain([EDGE]).collect();
    let sections = schema(root, &files)?.sections("RawEdgeFile")?;
    let title = "Configuration keys of mainstay edge";
    Ok(page(title, "[Edges](../edge.md) has examples and advice.", &sections, settings))
}

fn schema(root: &Path, files: &[&str]) -> Result<Schema, String> {
    let mut schema = Schema::default();
    for file in files {
        let path = format!("crates/config/src/{file}");
        schema.add(source::items(root, &path)?).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(schema)
}

fn page(title: &str, see: &str, sections: &[Section], settings: &[Setting]) -> String {
    let mut page = format!(
        "# {title}\n\n{NOTICE}\n\n{see} Types of values are written as [described there](../configuration.md#how-values-are-written).\n"
    );
    // With a section, those below it are refused.
    let is_at_or_below =
        |name: &str, key: &str| name.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let is_refused =
        |name: &str| settings.iter().any(|setting| setting.is_refused && is_at_or_below(name, &setting.key));
    for section in sections.iter().filter(|section| !is_refused(&section.name)) {
        let heading = match (section.name.as_str(), section.is_list) {
            ("", _) => "Top of the file".to_owned(),
            (name, false) => format!("`[{name}]`"),
            (name, true) => format!("`[[{name}]]`"),
        };
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {heading}\n\n{}\n\n", section.meaning);
        page.push_str("| key | type | range | default | meaning |\n|---|---|---|---|---|\n");
        for key in &section.keys {
            let name =
                if section.name.is_empty() { key.name.clone() } else { format!("{}.{}", section.name, key.name) };
            if !is_refused(&name) {
                page.push_str(&row(key, settings.iter().find(|setting| setting.key == name)));
            }
        }
    }
    page
}

fn row(key: &Key, setting: Option<&Setting>) -> String {
    let noted_range = setting.map(|setting| as_code(&setting.range)).filter(|_| key.kind != "boolean");
    let range = noted_range.or(key.range.map(str::to_owned)).unwrap_or_default();
    let noted = setting.and_then(|setting| setting.default.as_ref()).map(|default| format!("`{default}`"));
    // The doc comment goes before: it knows of defaults that depend on other keys.
    let default = key.default.clone().or(noted).unwrap_or_else(|| without_default(key).to_owned());
    let cells = [&format!("`{}`", key.name), &key.kind, &range, &default, &key.meaning].map(|text| cell(text));
    format!("| {} |\n", cells.join(" | "))
}

/// A range with its quoted values as code.
fn as_code(range: &str) -> String {
    let pieces = range.split('"').enumerate();
    pieces.map(|(index, piece)| if index % 2 == 1 { format!("`\"{piece}\"`") } else { piece.to_owned() }).collect()
}

/// What stands for the default of a key that has none.
fn without_default(key: &Key) -> &'static str {
    match key.kind.as_str() {
        _ if key.is_required => "required",
        "boolean" => "`false`",
        kind if kind.starts_with("list") => "`[]`",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(default: Option<&str>) -> Key {
        Key {
            name: "a".to_owned(),
            kind: "integer".to_owned(),
            range: Some("0 to 255"),
            is_required: false,
            meaning: "It is.".to_owned(),
            default: default.map(str::to_owned),
        }
    }

    fn setting(key: &str, range: &str) -> Setting {
        let is_refused = range.is_empty();
        Setting { key: key.to_owned(), default: Some("7".to_owned()), range: range.to_owned(), is_refused }
    }

    #[test]
    fn the_check_decides_the_range_and_the_comment_the_default() {
        let setting = setting("s.a", "1 or \"b\"");
        assert_eq!(row(&key(None), Some(&setting)), "| `a` | integer | 1 or `\"b\"` | `7` | It is. |\n");
        assert_eq!(row(&key(Some("as `b`")), Some(&setting)), "| `a` | integer | 1 or `\"b\"` | as `b` | It is. |\n");
        assert_eq!(row(&key(None), None), "| `a` | integer | 0 to 255 | none | It is. |\n");
    }

    #[test]
    fn refused_keys_and_sections_are_left_out() {
        let section = |name: &str| Section {
            name: name.to_owned(),
            is_list: false,
            meaning: "A section.".to_owned(),
            keys: vec![key(None)],
        };
        let sections = [section("kept"), section("refused"), section("refused.below"), section("bare")];
        let page = page("Title", "See.", &sections, &[setting("refused", ""), setting("bare.a", "")]);
        assert!(page.contains("## `[kept]`\n\nA section.") && page.contains("| `a` |"), "{page}");
        assert!(!page.contains("[refused") && page.ends_with("|---|\n"), "{page}");
    }
}
