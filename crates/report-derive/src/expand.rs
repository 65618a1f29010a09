//! The implementation that is generated.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Data, DeriveInput, Error, Expr, Fields, Result, Type};

use crate::attributes::{Entries, Label, Metric, Rule};

/// A field and its entries.
struct Field<'a> {
    name: &'a Ident,
    kind: &'a Type,
    entries: Entries,
}

/// The implementation for a type.
///
/// # Errors
/// It is no structure with named fields, or an attribute is wrong.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(input, "only a structure has fields that can be reported"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(input, "fields need names"));
    };
    let whole = Entries::of(&input.attrs)?;
    let fields = fields.named.iter().filter_map(|field| Some((field.ident.as_ref()?, field)));
    let fields = fields
        .map(|(name, field)| Ok(Field { name, kind: &field.ty, entries: Entries::of(&field.attrs)? }))
        .collect::<Result<Vec<_>>>()?;

    let name = &input.ident;
    let (describe, report) = (describe(&whole, &fields)?, report(&whole, &fields)?);
    let merge = match &whole.rule {
        Some(Rule::With(path)) => quote! { #path(self, other); },
        _ => fields.iter().filter_map(merge_field).collect(),
    };
    Ok(quote! {
        impl ::api::report::Report for #name {
            fn describe(labels: &[&'static str], catalogue: &mut ::api::metrics::Catalogue) {
                let _ = (labels, &catalogue);
                #describe
            }

            fn report(&self, labels: &[(&'static str, &str)], samples: &mut ::api::metrics::Samples) {
                let _ = (labels, &samples);
                #report
            }

            fn merge(&mut self, other: &Self) {
                let _ = other;
                #merge
            }
        }
    })
}

/// The metrics of the type and of its fields, each with the field.
fn metrics<'a>(
    whole: &'a Entries,
    fields: &'a [Field<'a>],
) -> impl Iterator<Item = (&'a Metric, Option<&'a Field<'a>>)> {
    let of_fields =
        fields.iter().flat_map(|field| field.entries.metrics.iter().map(move |metric| (metric, Some(field))));
    whole.metrics.iter().map(|metric| (metric, None)).chain(of_fields)
}

fn names(labels: &[Label]) -> Vec<String> {
    labels.iter().map(|label| label.name.to_string()).collect()
}

fn full_name(metric: &Metric) -> String {
    format!("mainstay_{}", metric.name.value())
}

/// The body of `describe`.
fn describe(whole: &Entries, fields: &[Field<'_>]) -> Result<TokenStream> {
    let own = names(&whole.labels);
    let mut body = quote! { let labels = &[labels, &[#(#own),*]].concat()[..]; };
    for (metric, field) in metrics(whole, fields) {
        let (name, further, kind) =
            (full_name(metric), names(&metric.labels), Ident::new(metric.kind, Span::call_site()));
        let help = match (&metric.help, field) {
            (Some(help), _) => help.value(),
            (None, Some(field)) => field.entries.doc.clone(),
            (None, None) => return Err(Error::new_spanned(&metric.name, "a metric of a type needs `help`")),
        };
        let merge = Ident::new(merge_name(metric, field), Span::call_site());
        body.extend(quote! {
            catalogue.add(::api::metrics::Description {
                name: #name,
                kind: ::api::metrics::Kind::#kind,
                labels: [labels, &[#(#further),*]].concat(),
                help: #help,
                merge: ::api::metrics::Merge::#merge,
            });
        });
    }
    for field in fields {
        if let Some(Rule::Nested(labels)) = &field.entries.rule {
            let (kind, further) = (field.kind, names(labels));
            body.extend(quote! {
                <#kind as ::api::report::Report>::describe(&[labels, &[#(#further),*]].concat(), catalogue);
            });
        }
    }
    Ok(body)
}

/// The variant of `api::metrics::Merge` for a metric: its own rule, or its field's.
fn merge_name(metric: &Metric, field: Option<&Field<'_>>) -> &'static str {
    let of_field = field.and_then(|field| match &field.entries.rule {
        Some(Rule::Named(rule)) => Some(rule),
        _ => None,
    });
    match metric.merge.as_ref().or(of_field).map(ToString::to_string).as_deref() {
        Some("sum") => "Sum",
        Some("greatest") => "Greatest",
        Some("least") => "Least",
        _ => "Lead",
    }
}

/// A vector of labels: those above and these.
fn with_labels(above: &TokenStream, labels: &[Label]) -> TokenStream {
    let (names, values): (Vec<_>, Vec<&Expr>) =
        labels.iter().map(|label| (label.name.to_string(), &label.value)).unzip();
    quote! { &[#above, &[#((#names, ::std::string::ToString::to_string(&#values).as_str())),*]].concat() }
}

/// The body of `report`.
fn report(whole: &Entries, fields: &[Field<'_>]) -> Result<TokenStream> {
    let above = quote! { labels };
    let (names, values): (Vec<_>, Vec<&Expr>) =
        whole.labels.iter().map(|label| (label.name.to_string(), &label.value)).unzip();
    let mut body = quote! {
        let own: &[(&'static str, ::std::string::String)] = &[#((#names, ::std::string::ToString::to_string(&#values))),*];
        let own: ::std::vec::Vec<(&'static str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let labels = &[labels, &own].concat()[..];
    };
    for (metric, field) in metrics(whole, fields) {
        let name = full_name(metric);
        let value = match (&metric.value, field) {
            (Some(value), _) => quote! { #value },
            (None, Some(field)) => {
                let field = field.name;
                quote! { self.#field }
            }
            (None, None) => return Err(Error::new_spanned(&metric.name, "a metric of a type needs `value`")),
        };
        let labels = with_labels(&above, &metric.labels);
        body.extend(quote! { samples.put(#name, #labels, ::api::report::Value::value(&(#value))); });
    }
    for Field { name, entries, .. } in fields {
        if let Some(Rule::Nested(labels)) = &entries.rule {
            let labels = with_labels(&above, labels);
            body.extend(quote! { ::api::report::Report::report(&self.#name, #labels, samples); });
        }
    }
    let also = &whole.also;
    body.extend(quote! { #(#also(self, samples);)* });
    Ok(body)
}

/// The statement that merges a field, if it is not the lead's alone.
fn merge_field(Field { name, entries, .. }: &Field<'_>) -> Option<TokenStream> {
    let method = match entries.rule.as_ref()? {
        Rule::Named(rule) if rule == "sum" => quote! { ::api::report::Sum::sum },
        Rule::Named(rule) => quote! { ::api::report::Order::#rule },
        Rule::With(path) => quote! { #path },
        Rule::Nested(_) => quote! { ::api::report::Report::merge },
    };
    Some(quote! { #method(&mut self.#name, &other.#name); })
}
