//! What commands print: tables and JSON to standard output, progress to a terminal, numbers that people can read.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

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
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(heading, align)| ((*heading).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new() }
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

    /// The table as text, each line with its newline.
    #[must_use]
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or_default()
        };
        let widths: Vec<_> = (0..self.columns.len()).map(width).collect();
        let headings: Vec<_> = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
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
            text.push_str(line.trim_end());
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

/// Prints a value as one JSON object, indented.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// A line on standard error that tells how far long work has come; silent unless standard error is a terminal.
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
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
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
        let mut table = Table::new(&[("PEER", Align::Left), ("LAG", Align::Right), ("ROLE", Align::Left)]);
        table.row(["1".to_owned(), "0.3 ms".to_owned(), "standby".to_owned()]);
        table.row(["right".to_owned(), "12 s".to_owned()]);
        assert_eq!(table.render(), "PEER      LAG  ROLE\n1      0.3 ms  standby\nright    12 s\n");
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
