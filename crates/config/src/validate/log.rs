//! What is logged, how, and how often.

use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawConfig, RawNode};
use super::super::validated::LogFormat;
use super::common::choice;

/// Entries that each place in the program may log in a second by default.
const ENTRIES_PER_SECOND_DEFAULT: u32 = 10;
/// The highest limit that makes sense; beyond it, none is meant.
const ENTRIES_PER_SECOND_MAX: u32 = 100_000;

pub(super) fn format(raw: &RawNode, diagnostics: &mut Diagnostics<'_>) -> LogFormat {
    choice("node.log_format", raw.log_format.as_ref(), &LogFormat::ALL, diagnostics)
}

pub(super) fn entries_per_s(raw: &RawNode, diagnostics: &mut Diagnostics<'_>) -> Option<u32> {
    limit("node.log_per_s", raw.log_per_s.as_ref(), ENTRIES_PER_SECOND_DEFAULT, diagnostics)
}

pub(super) fn firewall_entries_per_s(raw: &RawConfig, diagnostics: &mut Diagnostics<'_>) -> Option<u32> {
    let written = raw.firewall.as_ref().and_then(|section| section.get_ref().log_per_s.as_ref());
    limit("firewall.log_per_s", written, network_functions::log::ENTRIES_PER_SECOND_DEFAULT, diagnostics)
}

/// A limit; 0 is none.
fn limit(
    subject: &str,
    written: Option<&Spanned<u32>>,
    default: u32,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<u32> {
    diagnostics.describe(subject, Some(default.to_string()), format!("0 (no limit) to {ENTRIES_PER_SECOND_MAX}"));
    let Some(written) = written else { return Some(default) };
    let per_s = *written.get_ref();
    if per_s > ENTRIES_PER_SECOND_MAX {
        let mistake = Mistake::new(
            format!("{per_s} entries a second are out of range"),
            format!("write a number from 1 to {ENTRIES_PER_SECOND_MAX}, or 0 for no limit"),
        );
        diagnostics.error(written.span(), subject, mistake);
    }
    (per_s > 0).then_some(per_s)
}
