//! The command lines of a running link.
//!
//! ```text
//! [forward | backward] NAME VALUE …             settings: delay 25ms jitter 1ms rate 100mbit queue 1000 queue-bytes 90000
//!                                               loss 0.01 duplicate 0.001 reorder 0.01 hold 5ms
//! [forward | backward] cut [in TIME] [for TIME] nothing passes, at once or in so long, for so long or until restored
//! [forward | backward] restore                  what has been cut passes again
//! report                                        tells what was carried, and how late
//! reset                                         begins to count anew
//! end                                           tells it a last time and ends
//! ```
//! Without a direction both are meant.

use std::str::SplitAsciiWhitespace;
use std::time::Duration;

use super::channel::Change;
use super::{BOTH, Direction};
use config::value::parse_duration;

/// What a line asks for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Command {
    /// Other settings.
    Set(&'static [Direction], Vec<Change>),
    /// Nothing passes after so long, for so long.
    Outage { directions: &'static [Direction], after: Duration, lasting: Option<Duration> },
    /// Everything passes again.
    Restore(&'static [Direction]),
    /// How it has been.
    Report,
    /// Counts anew.
    Reset,
    /// Ends.
    End,
}

impl Command {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_ascii_whitespace();
        let mut first = words.next().unwrap_or_default();
        let direction = Direction::parse(first);
        let directions = direction.unwrap_or(&BOTH);
        if direction.is_some() {
            first = words.next().unwrap_or_default();
        }
        let command = match first {
            "cut" => return parse_outage(directions, words),
            "restore" => Self::Restore(directions),
            "report" if direction.is_none() => Self::Report,
            "reset" if direction.is_none() => Self::Reset,
            "end" if direction.is_none() => Self::End,
            _ => return parse_settings(directions, first, words),
        };
        match words.next() {
            Some(word) => Err(format!("{word:?} is too much behind {first:?}")),
            None => Ok(command),
        }
    }
}

fn parse_outage(directions: &'static [Direction], mut words: SplitAsciiWhitespace<'_>) -> Result<Command, String> {
    let (mut after, mut lasting) = (Duration::ZERO, None);
    while let Some(word) = words.next() {
        let time = || parse_duration(words.clone().next().unwrap_or_default());
        match word {
            "in" => after = time()?,
            "for" => lasting = Some(time()?),
            _ => return Err(format!("{word:?} has no meaning here: write cut, and after it in TIME and for TIME")),
        }
        words.next();
    }
    Ok(Command::Outage { directions, after, lasting })
}

fn parse_settings(
    directions: &'static [Direction],
    first: &str,
    mut words: SplitAsciiWhitespace<'_>,
) -> Result<Command, String> {
    let mut changes = Vec::new();
    let mut name = Some(first);
    while let Some(setting) = name {
        let value = words.next().unwrap_or_default();
        let change = Change::parse(setting, value).ok_or_else(|| {
            format!(
                "{setting:?} is no command: write cut, restore, report, reset, end, or settings (delay, jitter, rate, \
                 queue, queue-bytes, loss, duplicate, reorder, hold), with forward or backward before it"
            )
        })?;
        changes.push(change.map_err(|reason| format!("{setting}: {reason}"))?);
        name = words.next();
    }
    Ok(Command::Set(directions, changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let ms = Duration::from_millis;
        for (line, command) in [
            ("delay 25ms loss 0.2", Command::Set(&BOTH, vec![Change::Delay(ms(25)), Change::Loss(0.2)])),
            ("backward  rate none", Command::Set(&[Direction::Backward], vec![Change::Rate(None)])),
            ("cut", Command::Outage { directions: &BOTH, after: ms(0), lasting: None }),
            (
                "forward cut in 2s for 500ms",
                Command::Outage { directions: &[Direction::Forward], after: ms(2000), lasting: Some(ms(500)) },
            ),
            ("restore", Command::Restore(&BOTH)),
            ("report", Command::Report),
            ("reset", Command::Reset),
            ("end", Command::End),
        ] {
            assert_eq!(Command::parse(line), Ok(command), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, part) in [
            ("", "is no command"),
            ("sideways cut", "is no command"),
            ("forward report", "is no command"),
            ("cut of 2s", "has no meaning here"),
            ("cut for long", "is not a duration"),
            ("delay", "delay: "),
            ("loss 0.1 now", "is no command"),
            ("report twice", "too much"),
        ] {
            let refused = Command::parse(line).unwrap_err();
            assert!(refused.contains(part), "{line}: {refused}");
        }
    }
}
