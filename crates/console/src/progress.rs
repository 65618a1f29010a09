//! Progress of long work: a line on standard error, silent unless that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{count, duration, scaled};

/// The line is drawn at most so often.
const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// A rate is shown once the work has lasted for so long.
const RATED_AFTER: Duration = Duration::from_secs(1);

/// A line on standard error that shows how far long work has come; silent unless standard error is a terminal.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// A line with nothing on it.
    #[must_use]
    pub fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal() }
    }

    /// Replaces the line.
    pub fn show(&self, text: &str) {
        if self.is_terminal {
            // Progress that cannot be shown must not stop the work.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// A piece of work that begins with its first [`Work::show`]. Without a total the remaining time is not known.
    #[must_use]
    pub fn work(&self, unit: Unit, total: Option<u64>) -> Work<'_> {
        Work { progress: self, unit, total, drawn: Mutex::new(None) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

/// What a piece of work is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Things, by their plural.
    Of(&'static str),
    /// Bytes.
    Bytes,
}

impl Unit {
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn amount(self, amount: u64) -> String {
        match self {
            Self::Of(_) => count(amount),
            Self::Bytes => scaled(amount as f64, "B"),
        }
    }

    /// So many a second; of things that are rarer, how long each takes.
    fn rate(self, per_s: f64) -> String {
        match self {
            Self::Of(_) if per_s < 1.0 => format!("{} each", duration(Duration::from_secs_f64(1.0 / per_s))),
            Self::Of(plural) => scaled(per_s, &format!("{plural}/s")),
            Self::Bytes => scaled(per_s, "B/s"),
        }
    }
}

/// A piece of work of which it is known how much is done.
#[derive(Debug)]
pub struct Work<'a> {
    progress: &'a Progress,
    unit: Unit,
    total: Option<u64>,
    drawn: Mutex<Option<Drawn>>,
}

/// When a piece of work began, and when its line was drawn last.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    began: Instant,
    /// What was done already when it began.
    before: u64,
    last: Instant,
}

impl Work<'_> {
    /// Shows how much is done, its rate and the remaining time, with a remark before it.
    pub fn show(&self, done: u64, remark: &str) {
        if !self.progress.is_terminal {
            return;
        }
        let now = Instant::now();
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = drawn.is_none_or(|drawn| now.duration_since(drawn.last) >= DRAWN_EVERY);
        let Drawn { began, before, .. } = drawn.unwrap_or(Drawn { began: now, before: done, last: now });
        if is_due {
            *drawn = Some(Drawn { began, before, last: now });
            let separator = if remark.is_empty() { "" } else { ": " };
            let pace = self.pace(done, before, now.duration_since(began));
            self.progress.show(&format!("{remark}{separator}{pace}"));
        }
    }

    /// How much is done after `elapsed`, of which `before` was done at the beginning.
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn pace(&self, done: u64, before: u64, elapsed: Duration) -> String {
        let plural = match self.unit {
            Unit::Of(plural) => format!(" {plural}"),
            Unit::Bytes => String::new(),
        };
        let of_all = self.total.map_or_else(String::new, |total| format!(" of {}", self.unit.amount(total)));
        let mut text = format!("{}{of_all}{plural}", self.unit.amount(done));
        let done_here = done.saturating_sub(before);
        if elapsed < RATED_AFTER || done_here == 0 {
            return text;
        }
        let per_s = done_here as f64 / elapsed.as_secs_f64();
        text.push_str(&format!(", {}", self.unit.rate(per_s)));
        if let Some(left) = self.total.and_then(|total| total.checked_sub(done)) {
            let remaining = Duration::try_from_secs_f64(left as f64 / per_s).unwrap_or(Duration::MAX);
            text.push_str(&format!(", {} left", duration(remaining)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(unit: Unit, total: Option<u64>, done: u64, seconds: f64) -> String {
        let progress = Progress { is_terminal: false };
        progress.work(unit, total).pace(done, 0, Duration::from_secs_f64(seconds))
    }

    #[test]
    fn work_shows_its_rate_and_the_time_that_the_rest_takes() {
        let seeds = Unit::Of("seeds");
        assert_eq!(pace(seeds, Some(2000), 450, 10.0), "450 of 2 000 seeds, 45 seeds/s, 34 s left");
        assert_eq!(pace(Unit::Of("rounds"), Some(11), 2, 8.0), "2 of 11 rounds, 4 s each, 36 s left");
        assert_eq!(
            pace(Unit::Bytes, Some(4_000_000_000), 1_000_000_000, 10.0),
            "1.0 GB of 4.0 GB, 100 MB/s, 30 s left"
        );
    }

    #[test]
    fn work_that_has_just_begun_or_has_no_end_shows_no_remaining_time() {
        let packets = Unit::Of("packets");
        assert_eq!(pace(packets, Some(100), 0, 5.0), "0 of 100 packets");
        assert_eq!(pace(packets, Some(100), 50, 0.5), "50 of 100 packets");
        assert_eq!(pace(packets, None, 3000, 2.0), "3 000 packets, 1.5 kpackets/s");
    }

    #[test]
    fn work_that_an_earlier_run_did_is_no_part_of_the_rate() {
        let progress = Progress { is_terminal: false };
        let work = progress.work(Unit::Of("jobs"), Some(100));
        assert_eq!(work.pace(60, 40, Duration::from_secs(10)), "60 of 100 jobs, 2 jobs/s, 20 s left");
    }
}
