//! Links between documents, and documents that source names by their path.

use std::collections::BTreeMap;
use std::path::Path;

use super::markdown::Document;

/// The documents of the repository by their paths from its root.
pub(super) type Documents = BTreeMap<String, Document>;

/// The links of a document that lead nowhere: line, and what is wrong.
pub(super) fn check(root: &Path, path: &str, documents: &Documents) -> Vec<(usize, String)> {
    let Some(document) = documents.get(path) else { return Vec::new() };
    let links = document.links.iter().filter(|(_, target)| !is_external(target));
    links.filter_map(|(line, target)| Some((*line, fault(root, path, target, documents)?))).collect()
}

fn is_external(target: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme))
}

/// What is wrong with a relative link, if something is.
fn fault(root: &Path, from: &str, target: &str, documents: &Documents) -> Option<String> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let to = if path.is_empty() { from.to_owned() } else { resolve(from, path) };
    if !root.join(&to).exists() {
        return Some(format!("link to {target}: there is no {to}"));
    }
    let document = documents.get(&to)?;
    let is_missing = anchor.is_some_and(|anchor| !document.anchors.contains(anchor));
    is_missing.then(|| format!("link to {target}: {to} has no such heading"))
}

/// A path from the root, of a path that is relative to a file's folder.
fn resolve(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The documents under `docs/` that a source file names and that do not exist: line, and what is wrong.
pub(super) fn check_mentions(text: &str, documents: &Documents) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (start, _) in line.match_indices("docs/") {
            let rest = &line[start..];
            let length = rest.find(|c: char| !(c.is_alphanumeric() || "/-_.".contains(c))).unwrap_or(rest.len());
            let path = rest[..length].trim_end_matches('.');
            if path.ends_with(".md") && !documents.contains_key(path) {
                wrong.push((index + 1, format!("there is no {path}")));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two documents that exist in the repository, with links of the test's own.
    fn documents() -> Documents {
        let texts = [
            ("README.md", "[a](docs/testing.md#fuzz-it) [b](docs/testing.md#none) [c](docs/none)"),
            ("docs/testing.md", "# Fuzz it\n[d](../README.md) [e](#fuzz-it) [f](https://host/)"),
        ];
        texts.map(|(path, text)| (path.to_owned(), Document::parse(text))).into()
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
        let of = |path| check(root, path, &documents()).into_iter().map(|(_, fault)| fault).collect::<Vec<_>>();
        assert_eq!(of("docs/testing.md"), Vec::<String>::new());
        assert_eq!(
            of("README.md"),
            [
                "link to docs/testing.md#none: docs/testing.md has no such heading",
                "link to docs/none: there is no docs/none",
            ]
        );
    }

    #[test]
    fn documents_that_source_names_exist() {
        let text = concat!("// see docs/testing.md.\nlet x = \"docs/", "none.md\";");
        assert_eq!(check_mentions(text, &documents()).len(), 1);
    }
}
