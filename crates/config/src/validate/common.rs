//! What checks have in common: values, choices, names and ranges, each reported with its place.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use flow::{AddressOf, Affinity, PortId};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake, Text};
use super::super::validated::Port;
use super::super::value::{self, SizeText};

/// Longest node or port name.
const NAME_BYTES_MAX: usize = 32;
/// A datagram has to hold a connection's state, and must not exceed UDP's.
pub(super) const DATAGRAM_BYTES: RangeInclusive<u16> = 1024..=65_507;
/// A change waits so long by default, so that others share its datagram.
pub(super) const BATCH_DELAY_DEFAULT: Duration = Duration::from_millis(1);
/// The longest that a change may wait for others.
pub(super) const BATCH_DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(100);

/// What keeps the packets of a connection on one node.
const AFFINITIES: [(&str, Affinity); 4] = [
    ("learned", Affinity::Learned),
    ("tuple", Affinity::Tuple),
    ("near-host", Affinity::Address(AddressOf::NearHost)),
    ("far-host", Affinity::Address(AddressOf::FarHost)),
];

/// The value of `text`, or `None` after having reported what is wrong with it.
pub(super) fn parsed<T>(
    subject: &str,
    text: &Text,
    parse: impl FnOnce(&str) -> Result<T, Mistake>,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<T> {
    parse(text.get_ref()).map_err(|mistake| diagnostics.error(text.span(), subject, mistake)).ok()
}

/// The values of a list, without those that were reported.
pub(super) fn parsed_list<T, R>(
    subject: &str,
    list: &[Spanned<R>],
    parse: impl Fn(&R) -> Result<T, Mistake>,
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<T> {
    let mut values = Vec::with_capacity(list.len());
    for item in list {
        match parse(item.get_ref()) {
            Ok(value) => values.push(value),
            Err(mistake) => diagnostics.error(item.span(), subject, mistake),
        }
    }
    values
}

/// The choice that `text` names.
pub(super) fn one_of<T: Copy>(
    subject: &str,
    text: &Text,
    choices: &[(&str, T)],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<T> {
    let chosen = choices.iter().find(|(name, _)| name == text.get_ref());
    if chosen.is_none() {
        let mistake = Mistake::new(format!("{:?} is not known", text.get_ref()), format!("write {}", quoted(choices)));
        diagnostics.error(text.span(), subject, mistake);
    }
    chosen.map(|(_, choice)| *choice)
}

/// The names of choices as they are written.
pub(super) fn quoted<T>(choices: &[(&str, T)]) -> String {
    choices.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ")
}

/// A name that can stand in metrics and tables.
pub(super) fn named(subject: &str, text: &Text, diagnostics: &mut Diagnostics<'_>) -> String {
    diagnostics.describe(subject, None, format!("1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"));
    let name = text.get_ref();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(allowed) {
        let mistake = Mistake::new(
            format!("{name:?} cannot be a name"),
            format!("use 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' or '.'"),
        );
        diagnostics.error(text.span(), subject, mistake);
    }
    name.clone()
}

/// The port that a section refers to by its name.
pub(super) fn port_named(
    subject: &str,
    text: &Text,
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<PortId> {
    let found = ports.iter().find(|port| port.name == *text.get_ref());
    if found.is_none() {
        let names: Vec<_> = ports.iter().map(|port| format!("{:?}", port.name)).collect();
        let remedy = if names.is_empty() {
            "add a [[port]] with that name".to_owned()
        } else {
            format!("write one of {} or add a [[port]]", names.join(", "))
        };
        diagnostics.error(text.span(), subject, Mistake::new(format!("there is no port {:?}", text.get_ref()), remedy));
    }
    found.map(|port| port.id)
}

/// "IPv4" or "IPv6".
pub(super) fn family_name(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// A duration within a range, or its default.
pub(super) fn ranged(
    subject: &str,
    text: Option<&Text>,
    default: Duration,
    range: RangeInclusive<Duration>,
    diagnostics: &mut Diagnostics<'_>,
) -> Duration {
    let span = durations(&range);
    diagnostics.describe(subject, Some(value::written_duration(default)), span.clone());
    let Some(text) = text else { return default };
    let Some(duration) = parsed(subject, text, value::duration, diagnostics) else { return default };
    if !range.contains(&duration) {
        let mistake =
            Mistake::new(format!("{:?} is out of range", text.get_ref()), format!("choose a duration from {span}"));
        diagnostics.error(text.span(), subject, mistake);
        return default;
    }
    duration
}

/// A range of durations as it is written.
pub(super) fn durations(range: &RangeInclusive<Duration>) -> String {
    format!("{} to {}", value::written_duration(*range.start()), value::written_duration(*range.end()))
}

/// A number within a range, or its default, which may be that there is none.
pub(super) fn within<T: Copy + PartialOrd + std::fmt::Display, D: From<T> + Into<Option<T>> + Copy>(
    subject: &str,
    written: Option<&Spanned<T>>,
    default: D,
    range: RangeInclusive<T>,
    diagnostics: &mut Diagnostics<'_>,
) -> D {
    let number: Option<T> = default.into();
    let span = format!("{} to {}", range.start(), range.end());
    diagnostics.describe(subject, number.map(|number| number.to_string()), span.clone());
    let Some(written) = written else { return default };
    let number = *written.get_ref();
    if !range.contains(&number) {
        let mistake = Mistake::new(format!("{number} is out of range"), format!("choose a number from {span}"));
        diagnostics.error(written.span(), subject, mistake);
        return default;
    }
    D::from(number)
}

/// A number of bytes within a range. `None`: it is not written, or wrong.
pub(super) fn sized(
    subject: &str,
    written: Option<&Spanned<SizeText>>,
    default: usize,
    range: &RangeInclusive<usize>,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<usize> {
    let span = [range.start(), range.end()].map(|bytes| value::written_size(*bytes)).join(" to ");
    diagnostics.describe(subject, Some(value::written_size(default)), span.clone());
    let written = written?;
    let checked = value::size(written.get_ref()).and_then(|bytes| {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if range.contains(&bytes) {
            Ok(bytes)
        } else {
            Err(Mistake::new(format!("{bytes} bytes are out of range"), format!("write a size from {span}")))
        }
    });
    checked.map_err(|mistake| diagnostics.error(written.span(), subject, mistake)).ok()
}

/// Whether a key is set, or its default.
pub(super) fn flag(subject: &str, written: Option<bool>, default: bool, diagnostics: &mut Diagnostics<'_>) -> bool {
    diagnostics.describe(subject, Some(default.to_string()), "true or false".to_owned());
    written.unwrap_or(default)
}

/// The choice that a key names, or the default.
pub(super) fn choice<T: Copy + Default + PartialEq>(
    subject: &str,
    text: Option<&Text>,
    choices: &[(&str, T)],
    diagnostics: &mut Diagnostics<'_>,
) -> T {
    let default = choices.iter().find(|(_, choice)| *choice == T::default()).map(|(name, _)| format!("\"{name}\""));
    diagnostics.describe(subject, default, quoted(choices));
    text.and_then(|text| one_of(subject, text, choices, diagnostics)).unwrap_or_default()
}

/// A path that does not depend on where the program was started.
pub(super) fn absolute_path(subject: &str, text: &Text, diagnostics: &mut Diagnostics<'_>) -> Option<PathBuf> {
    let path = PathBuf::from(text.get_ref());
    if path.is_absolute() {
        return Some(path);
    }
    let mistake = Mistake::new(format!("{:?} is not an absolute path", text.get_ref()), "begin it with /");
    diagnostics.error(text.span(), subject, mistake);
    None
}

/// The affinity that a key names.
pub(super) fn affinity(key: &str, written: Option<&Text>, diagnostics: &mut Diagnostics<'_>) -> Affinity {
    choice(key, written, &AFFINITIES, diagnostics)
}
