//! What the pages need of Rust's syntax: doc comments, the types of fields, and options of `serde`.

use std::fs;
use std::path::Path;

use syn::{Attribute, Expr, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// The items of a source file.
///
/// # Errors
/// The file cannot be read, or it is not Rust.
pub(super) fn items(root: &Path, path: &str) -> Result<Vec<Item>, String> {
    let text = fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
    Ok(syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?.items)
}

/// The innermost type of a field, and what surrounds it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Shape {
    /// Name of the innermost type.
    pub(super) name: String,
    pub(super) is_list: bool,
    pub(super) is_optional: bool,
}

impl Shape {
    /// Looks through `Option`, `Vec`, `Spanned` and `Box`.
    pub(super) fn of(ty: &Type) -> Self {
        let Type::Path(path) = ty else { return Self::default() };
        let Some(last) = path.path.segments.last() else { return Self::default() };
        let outer = last.ident.to_string();
        let inner = match &last.arguments {
            PathArguments::AngleBracketed(arguments) if outer != "BTreeMap" => arguments.args.first(),
            _ => None,
        };
        let Some(GenericArgument::Type(inner)) = inner else { return Self { name: outer, ..Self::default() } };
        let inner = Self::of(inner);
        Self { is_list: inner.is_list || outer == "Vec", is_optional: inner.is_optional || outer == "Option", ..inner }
    }
}

/// The text of a doc comment, in one line.
pub(super) fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// Whether an option of `serde` is set: `default`, `flatten`.
pub(super) fn has_serde_option(attributes: &[Attribute], option: &str) -> bool {
    let mut is_set = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        // What else stands in the attribute does not matter.
        let _ = attribute.parse_nested_meta(|meta| {
            is_set |= meta.path.is_ident(option);
            meta.value().and_then(|value| value.parse::<Expr>()).map_or(Ok(()), |_| Ok(()))
        });
    }
    is_set
}
