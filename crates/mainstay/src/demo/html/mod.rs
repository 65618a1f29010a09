//! The result as one page that needs nothing else.

use super::report::Report;

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    super::table::describe(report)
}
