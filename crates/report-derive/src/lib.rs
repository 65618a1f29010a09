//! `#[derive(Report)]`: a field of a status names its metrics, and the rule by which the workers' values become one.
//!
//! ```text
//!   #[report(labels(port = self.name))]            labels of all metrics of the type
//!   #[report(counter("name", ...))]                a metric of the field, or of the type if it stands above the type
//!   #[report(gauge("name", ...))]
//!       label = EXPRESSION                         a further label of this metric
//!       value = EXPRESSION                         its value, if it is not that of the field
//!       help = "..."                               its help, if it is not the field's documentation
//!       merge = RULE                               how workers' values become one, if not as those of the field
//!   #[report(sum)] (greatest) (least)              workers' values are added; the greatest or the least counts
//!   #[report(with(function))]                      the function merges the field, or the whole type: `fn(&mut T, &T)`
//!   #[report(nested)] #[report(nested(label = EXPRESSION))]   the field's type reports itself, under these labels too
//!   #[report(also(function))]                      the function adds samples: `fn(&Type, &mut Samples)`
//! ```
//!
//! A field without a rule keeps the value of the lead worker. Expressions see `self`. The trait is `api::report::Report`.

mod attributes;
mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `api::report::Report`.
#[proc_macro_derive(Report, attributes(report))]
pub fn derive_report(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
