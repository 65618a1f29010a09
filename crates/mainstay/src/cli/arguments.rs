//! Spellings of earlier releases, and what must be known before the command line is read.

use std::ffi::{OsStr, OsString};

use clap::{ColorChoice, ValueEnum};

/// Options whose values were plain numbers: what they were called, what they are called, and the unit of the number.
const PLAIN_NUMBERS: [(&str, &str, &str); 13] = [
    ("--seconds", "--duration", "s"),
    ("--settle-seconds", "--settle", "s"),
    ("--interval", "--interval", "s"),
    ("--digest-interval", "--digest-interval", "s"),
    ("--failover-every", "--failover-interval", "s"),
    ("--give-up", "--give-up", "s"),
    ("--thresholds", "--thresholds", "ms"),
    ("--batch-ms", "--batch-interval", "ms"),
    ("--rtt-ms", "--rtt", "ms"),
    ("--rtts-ms", "--rtts", "ms"),
    ("--round-trip-ms", "--rtt", "ms"),
    ("--burst-ms", "--burst", "ms"),
    ("--lateness-ms", "--lateness", "ms"),
];
/// Commands that belong to `mainstay lab` and were commands of their own.
const OF_LAB: [&str; 4] = ["bench", "simulate", "synthesize", "link"];
/// The only option that goes before a command.
const COLOR: &str = "--color";

/// A command line with what earlier releases spelt otherwise as it is spelt now.
pub(super) fn current(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = place_of_command(&arguments);
    let is_of_lab = |argument: &OsString| OF_LAB.iter().any(|name| argument == name);
    if cfg!(feature = "lab") && arguments.get(command).is_some_and(is_of_lab) {
        arguments.insert(command, "lab".into());
    }
    // What stands behind `--` are no options.
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    for at in command.min(end)..end {
        let Some((option, value)) = arguments[at].to_str().map(split) else { continue };
        let Some((_, name, unit)) = PLAIN_NUMBERS.iter().find(|(former, ..)| *former == option) else { continue };
        if let Some(value) = value {
            arguments[at] = format!("{name}={}", with_unit(value, unit)).into();
            continue;
        }
        arguments[at] = (*name).into();
        if let Some(value) = arguments.get_mut(at + 1) {
            *value = value.to_str().map_or_else(|| value.clone(), |value| with_unit(value, unit).into());
        }
    }
    arguments
}

/// The choice of `--color`, for the help and for errors of the command line itself.
pub(super) fn color(arguments: &[OsString]) -> ColorChoice {
    let mut values = arguments.iter().enumerate().filter_map(|(at, argument)| match split(argument.to_str()?) {
        (COLOR, Some(value)) => Some(value),
        (COLOR, None) => arguments.get(at + 1)?.to_str(),
        _ => None,
    });
    values.next_back().and_then(|value| ColorChoice::from_str(value, false).ok()).unwrap_or(ColorChoice::Auto)
}

/// Where the command's name stands.
fn place_of_command(arguments: &[OsString]) -> usize {
    let mut at = 1;
    while arguments.get(at).is_some_and(|argument| argument.to_string_lossy().starts_with('-')) {
        at += if arguments[at] == OsStr::new(COLOR) { 2 } else { 1 };
    }
    at
}

/// An option, and the value that stands in the same argument.
fn split(argument: &str) -> (&str, Option<&str>) {
    argument.split_once('=').map_or((argument, None), |(option, value)| (option, Some(value)))
}

/// A value with its unit, or a list of values, each with its unit; anything but plain numbers as it is.
fn with_unit(value: &str, unit: &str) -> String {
    if value.split(',').all(|number| number.parse::<f64>().is_ok()) {
        return value.split(',').map(|number| format!("{number}{unit}")).collect::<Vec<_>>().join(",");
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn plain_numbers_get_the_unit_that_their_option_had() {
        for (former, now) in [
            ("mainstay trace --seconds 0.5", "mainstay trace --duration 0.5s"),
            ("mainstay top --interval=2 --once", "mainstay top --interval=2s --once"),
            ("mainstay top --interval 2s", "mainstay top --interval 2s"),
            ("mainstay study replication --thresholds 0,50 c", "mainstay study replication --thresholds 0ms,50ms c"),
            ("mainstay demo --rtt-ms 20 --seconds", "mainstay demo --rtt 20ms --duration"),
            ("mainstay flows -- --seconds 5", "mainstay flows -- --seconds 5"),
        ] {
            assert_eq!(current(arguments(former)), arguments(now));
        }
    }

    #[cfg(feature = "lab")]
    #[test]
    fn commands_of_the_laboratory_are_found_without_its_name() {
        for (former, now) in [
            ("mainstay bench bulk", "mainstay lab bench bulk"),
            ("mainstay --color never link", "mainstay --color never lab link"),
            ("mainstay lab simulate", "mainstay lab simulate"),
            ("mainstay replay bench", "mainstay replay bench"),
            ("mainstay", "mainstay"),
        ] {
            assert_eq!(current(arguments(former)), arguments(now));
        }
    }

    #[test]
    fn the_last_color_counts() {
        assert_eq!(color(&arguments("mainstay --color always status --color=never")), ColorChoice::Never);
        assert_eq!(color(&arguments("mainstay status")), ColorChoice::Auto);
    }
}
