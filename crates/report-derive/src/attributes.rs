//! What stands in `#[report(...)]`.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, Lit, LitStr, Meta, Path, Result, Token, parenthesized};

/// A label and its value.
pub(crate) struct Label {
    pub(crate) name: Ident,
    pub(crate) value: Expr,
}

impl Parse for Label {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: input.parse()? })
    }
}

/// How workers' values become one.
pub(crate) enum Rule {
    /// A method of `api::report` of this name: `sum`, `greatest` or `least`.
    Named(Ident),
    /// A function.
    With(Path),
    /// The type's own way.
    Nested(Vec<Label>),
}

/// A metric.
pub(crate) struct Metric {
    /// `Counter` or `Gauge`.
    pub(crate) kind: &'static str,
    pub(crate) name: LitStr,
    pub(crate) labels: Vec<Label>,
    pub(crate) value: Option<Expr>,
    pub(crate) help: Option<LitStr>,
    pub(crate) merge: Option<Ident>,
}

impl Metric {
    fn parse(kind: &'static str, input: ParseStream<'_>) -> Result<Self> {
        let content;
        parenthesized!(content in input);
        let name = content.parse()?;
        let mut metric = Self { kind, name, labels: Vec::new(), value: None, help: None, merge: None };
        while content.parse::<Option<Token![,]>>()?.is_some() && !content.is_empty() {
            let label: Label = content.parse()?;
            match label.name.to_string().as_str() {
                "value" => metric.value = Some(label.value),
                "help" => metric.help = Some(text(&label.value)?),
                "merge" => metric.merge = Some(rule_name(&label.value)?),
                _ => metric.labels.push(label),
            }
        }
        Ok(metric)
    }
}

fn text(expression: &Expr) -> Result<LitStr> {
    match expression {
        Expr::Lit(literal) if let Lit::Str(text) = &literal.lit => Ok(text.clone()),
        other => Err(Error::new_spanned(other, "a string is expected")),
    }
}

fn rule_name(expression: &Expr) -> Result<Ident> {
    match expression {
        Expr::Path(path) => path.path.require_ident().cloned(),
        other => Err(Error::new_spanned(other, "`sum`, `greatest` or `least` is expected")),
    }
}

fn labels(input: ParseStream<'_>) -> Result<Vec<Label>> {
    let content;
    parenthesized!(content in input);
    Ok(Punctuated::<Label, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

fn path(input: ParseStream<'_>) -> Result<Path> {
    let content;
    parenthesized!(content in input);
    content.parse()
}

/// All that the attributes of a type or of a field have.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) rule: Option<Rule>,
    pub(crate) metrics: Vec<Metric>,
    pub(crate) labels: Vec<Label>,
    pub(crate) also: Vec<Path>,
    /// The documentation, on one line.
    pub(crate) doc: String,
}

impl Entries {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut entries = Self::default();
        for attribute in attributes {
            if attribute.path().is_ident("doc") {
                entries.add_doc(attribute);
            }
            if attribute.path().is_ident("report") {
                attribute.parse_args_with(|input: ParseStream<'_>| entries.read(input))?;
            }
        }
        Ok(entries)
    }

    /// Reads entries, separated by commas.
    fn read(&mut self, input: ParseStream<'_>) -> Result<()> {
        loop {
            self.read_entry(input)?;
            if input.parse::<Option<Token![,]>>()?.is_none() || input.is_empty() {
                return Ok(());
            }
        }
    }

    fn read_entry(&mut self, input: ParseStream<'_>) -> Result<()> {
        let word: Ident = input.parse()?;
        let rule = match word.to_string().as_str() {
            "sum" | "greatest" | "least" => Rule::Named(word.clone()),
            "with" => Rule::With(path(input)?),
            "nested" if input.peek(syn::token::Paren) => Rule::Nested(labels(input)?),
            "nested" => Rule::Nested(Vec::new()),
            "counter" => return Metric::parse("Counter", input).map(|metric| self.metrics.push(metric)),
            "gauge" => return Metric::parse("Gauge", input).map(|metric| self.metrics.push(metric)),
            "labels" => return labels(input).map(|labels| self.labels.extend(labels)),
            "also" => return path(input).map(|path| self.also.push(path)),
            _ => {
                let text = "not an entry of `report`: see the documentation of `report-derive`";
                return Err(Error::new(word.span(), text));
            }
        };
        match self.rule.replace(rule) {
            Some(_) => Err(Error::new(word.span(), "a field has one rule")),
            None => Ok(()),
        }
    }

    fn add_doc(&mut self, attribute: &Attribute) {
        if let Meta::NameValue(pair) = &attribute.meta
            && let Ok(line) = text(&pair.value)
        {
            if !self.doc.is_empty() {
                self.doc.push(' ');
            }
            self.doc.push_str(line.value().trim());
        }
    }
}
