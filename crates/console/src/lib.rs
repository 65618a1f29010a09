//! What commands print: tables and JSON to standard output, progress to a terminal, numbers that people can read.

pub mod color;
mod fit;
mod progress;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

pub use fit::wrap;
pub use progress::{Progress, Unit, Work};

/// On which side of its column a cell stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a line of headings, its columns as wide as their widest cell.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// The columns at the left that name a row.
    keys: usize,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(heading, align)| ((*heading).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new(), keys: 1 }
    }

    /// A table without rows, its headings between bars (`PORT|INTERFACE|>RECEIVED`): that of a column of numbers begins with `>`.
    #[must_use]
    pub fn of(headings: &str) -> Self {
        let column = |heading: &str| match heading.strip_prefix('>') {
            Some(heading) => (heading.to_owned(), Align::Right),
            None => (heading.to_owned(), Align::Left),
        };
        Self { columns: headings.split('|').map(column).collect(), rows: Vec::new(), keys: 1 }
    }

    /// The same, of whose columns the first `keys` name a row. [`Table::render_within`] repeats them.
    #[must_use]
    pub fn keyed_by(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// Adds a row; cells that are missing are empty, cells beyond the columns are left out.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<_> = cells.into_iter().collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, each line with its newline. Its headings are bold where standard output shows colours.
    #[must_use]
    pub fn render(&self) -> String {
        let widths: Vec<_> = (0..self.columns.len()).map(|column| self.natural_width(column)).collect();
        let headings: Vec<_> = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        let mut text = String::new();
        for (number, row) in std::iter::once(&headings).chain(&self.rows).enumerate() {
            let mut line = String::new();
            for ((cell, (_, align)), &width) in row.iter().zip(&self.columns).zip(&widths) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                // Writing to a string cannot fail.
                let _ = match align {
                    Align::Left => write!(line, "{cell:<width$}"),
                    Align::Right => write!(line, "{cell:>width$}"),
                };
            }
            let line = line.trim_end();
            text.push_str(&if number == 0 && !line.is_empty() { color::heading(line) } else { line.to_owned() });
            text.push('\n');
        }
        text
    }
}

/// Prints text to standard output. A reader that has seen enough (`head`) is no error.
///
/// # Errors
/// The operating system would not take the text.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints a piece of a text that goes on. A reader that has seen enough (`head`) ends the process, quietly: the rest has no
/// reader.
///
/// # Errors
/// The operating system would not take the text.
pub fn print_more(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(end_if_nobody_reads)
}

/// Ends the process, quietly, if the error is that the reader is gone; the error otherwise.
pub fn end_if_nobody_reads(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    error
}

/// Prints a value as one JSON object, indented.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Prints a result, as one JSON object or for people.
///
/// # Errors
/// As [`print()`].
pub fn print_as(json: bool, value: &impl serde::Serialize, describe: impl FnOnce() -> String) -> io::Result<()> {
    if json { print_json(value) } else { print(&describe()) }
}

/// `12 345 678`, with thin gaps that are plain spaces.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `1.2 G`, with `unit` behind it: three digits and a decimal prefix.
#[must_use]
pub fn scaled(number: f64, unit: &str) -> String {
    let mut scaled = number;
    for prefix in ["", "k", "M", "G", "T"] {
        // 999.5 would be shown as 1000.
        if scaled.abs() < 999.5 {
            let decimals = usize::from(scaled.abs() < 9.95 && !(prefix.is_empty() && scaled.fract() == 0.0));
            return format!("{scaled:.decimals$} {prefix}{unit}");
        }
        scaled /= 1000.0;
    }
    format!("{scaled:.0} P{unit}")
}

/// `2.5 ms`, `31 s`, `4 min 10 s`, `3 h 5 min`, `12 d 4 h`: the two largest units.
#[must_use]
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0 => {
            let ms = duration.as_secs_f64() * 1e3;
            if ms < 9.95 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
        }
        1..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// A time since 1970 as `2026-11-23T01:02:03.000004Z` (RFC 3339).
#[must_use]
pub fn rfc3339(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (second, micros) = (seconds % 86_400, since_1970.subsec_micros());
    // The civil calendar, in years that begin in March: leap days are at their ends.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// `1 peer`, `2 peers`.
#[must_use]
pub fn counted(number: usize, noun: &str) -> String {
    format!("{} {noun}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

/// "yes" or "no".
#[must_use]
pub const fn yes_no(is_true: bool) -> &'static str {
    if is_true { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::of("PEER|>LAG|ROLE");
        table.row(["1".to_owned(), "0.3 ms".to_owned(), "standby".to_owned()]);
        table.row(["right".to_owned(), "12 s".to_owned()]);
        assert_eq!(table.render(), "PEER      LAG  ROLE\n1      0.3 ms  standby\nright    12 s\n");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let times = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"),
            (4_107_542_399_999_999, "2100-02-28T23:59:59.999999Z"),
        ];
        for (micros, text) in times {
            assert_eq!(rfc3339(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn numbers_are_readable() {
        let counts = [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")];
        for (number, text) in counts {
            assert_eq!(count(number), text);
        }
        let scales = [
            (0.0, "0 bit/s"),
            (0.25, "0.2 bit/s"),
            (12.0, "12 bit/s"),
            (999.6, "1.0 kbit/s"),
            (1.25e9, "1.2 Gbit/s"),
            (5e15, "5 Pbit/s"),
        ];
        for (number, text) in scales {
            assert_eq!(scaled(number, "bit/s"), text);
        }
        let durations = [
            (1, "1.0 ms"),
            (250, "250 ms"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (250_000, "4 min 10 s"),
            (11_100_000, "3 h 5 min"),
            (446_400_000, "5 d 4 h"),
        ];
        for (ms, text) in durations {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
    }
}
