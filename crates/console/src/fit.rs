//! Tables and texts in lines of limited length.

use super::Table;

/// Spaces between two columns.
const GAP: usize = 2;
/// A column is at least so wide, however little room there is.
const COLUMN_MIN: usize = 8;

/// Breaks lines that are longer than `width`, at a space if there is one. What is broken off is indented by `indent`.
#[must_use]
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let mut room = width;
        for (number, part) in parts(line, width, width.saturating_sub(indent)).into_iter().enumerate() {
            if number > 0 {
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent));
                room = width.saturating_sub(indent);
            }
            debug_assert!(part.chars().count() <= room.max(1), "{part}");
            wrapped.push_str(part);
        }
        wrapped.push_str(end);
    }
    wrapped
}

/// The parts of a line, of which the first has at most `first` characters and the others at most `others`.
fn parts(line: &str, first: usize, others: usize) -> Vec<&str> {
    let (mut parts, mut rest, mut room) = (Vec::new(), line, first.max(1));
    while rest.chars().count() > room {
        let limit = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
        // A space right behind the limit ends the part, too. Spaces at the beginning are an indent.
        let indent = rest.len() - rest.trim_start().len();
        let within = &rest[..limit + usize::from(rest[limit..].starts_with(' '))];
        let spaces = || within.rmatch_indices(' ').map(|(at, _)| at).filter(|at| *at > indent);
        let at = spaces().find(|at| !is_within_number(rest, *at)).or_else(|| spaces().next());
        let (part, behind) = rest.split_at(at.unwrap_or(limit));
        parts.push(part.trim_end());
        rest = behind.trim_start();
        room = others.max(1);
    }
    parts.push(rest);
    parts
}

/// Whether the space is one of those that divide the digits of a number.
fn is_within_number(text: &str, at: usize) -> bool {
    let is_digit = |character: Option<char>| character.is_some_and(|character| character.is_ascii_digit());
    is_digit(text[..at].chars().next_back()) && is_digit(text[at + 1..].chars().next())
}

impl Table {
    /// As [`Table::render`], in lines of at most `width` characters. Columns that find no room follow below, behind the columns
    /// that name a row. A cell that is wider than its column goes on in the next line.
    #[must_use]
    pub fn render_within(&self, width: usize) -> String {
        let natural: Vec<usize> = (0..self.columns.len()).map(|column| self.natural_width(column)).collect();
        let keys = self.keys.min(self.columns.len());
        // Half of a line at most names the row.
        let key_room = (width / 2).saturating_sub(GAP * keys) / keys.max(1);
        let key_widths: Vec<usize> =
            natural[..keys].iter().map(|natural| (*natural).min(key_room.max(COLUMN_MIN))).collect();
        let taken: usize = key_widths.iter().map(|width| width + GAP).sum();
        let room = width.saturating_sub(taken).max(COLUMN_MIN);
        let mut parts: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut used = room + 1;
        for group in self.groups(keys) {
            let widths: Vec<(usize, usize)> = group.map(|column| (column, natural[column].min(room))).collect();
            let needed: usize = widths.iter().map(|(_, width)| width + GAP).sum();
            if used + needed > room + GAP || parts.is_empty() {
                parts.push(Vec::new());
                used = 0;
            }
            used += needed;
            parts.last_mut().into_iter().for_each(|part| part.extend(&widths));
        }
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let rendered = parts.into_iter().map(|part| {
            let columns: Vec<(usize, usize)> = key_widths.iter().copied().enumerate().chain(part).collect();
            self.render_columns(&columns)
        });
        rendered.collect::<Vec<_>>().join("\n")
    }

    pub(super) fn natural_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or_default()
    }

    /// The columns behind the keys; one without a heading belongs to the column before.
    fn groups(&self, keys: usize) -> Vec<std::ops::Range<usize>> {
        let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
        for (number, (heading, _)) in self.columns.iter().enumerate().skip(keys) {
            match groups.last_mut().filter(|_| heading.is_empty()) {
                Some(group) => group.end = number + 1,
                None => groups.push(number..number + 1),
            }
        }
        groups
    }

    /// Some columns, each with its number and its width, as a table. A row takes as many lines as its longest cell.
    fn render_columns(&self, columns: &[(usize, usize)]) -> String {
        let selected = columns.iter().map(|(column, _)| self.columns[*column].clone()).collect();
        let mut table = Self { columns: selected, rows: Vec::new(), keys: self.keys };
        for row in &self.rows {
            let cells: Vec<Vec<&str>> =
                columns.iter().map(|(column, width)| parts(&row[*column], *width, *width)).collect();
            let lines = cells.iter().map(Vec::len).max().unwrap_or_default();
            for line in 0..lines {
                table.row(cells.iter().map(|cell| cell.get(line).copied().unwrap_or_default().to_owned()));
            }
        }
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_fits(text: &str, width: usize) {
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{line:?} in\n{text}");
        }
    }

    #[test]
    fn a_table_that_fits_stays_as_it_is() {
        let mut table = Table::of("NAME|>COUNT");
        table.row(["one".to_owned(), "1".to_owned()]);
        assert_eq!(table.render_within(80), table.render());
    }

    #[test]
    fn columns_without_room_follow_below_behind_the_name_of_their_row() {
        let mut table = Table::of("PEER|ADDRESS|>RECEIVED|>|>LOST");
        table.row(["1", "10.99.0.2:3781", "1 234", "1.5 MB", "0"].map(str::to_owned));
        let expected = "\
PEER  ADDRESS
1     10.99.0.2:3781

PEER  RECEIVED          LOST
1        1 234  1.5 MB     0
";
        assert_eq!(table.render_within(30), expected);
    }

    #[test]
    fn long_cells_go_on_in_the_next_line() {
        let mut table = Table::of("NAME|STATE");
        let name = "a-name-without-any-space-that-is-longer-than-half-of-the-line";
        table.row([name.to_owned(), "down since a moment ago, for a reason that takes many words".to_owned()]);
        table.row(["b".to_owned(), "up".to_owned()]);
        let text = table.render_within(40);
        assert_fits(&text, 40);
        let joined: String = text.split_whitespace().collect();
        assert!(text.lines().count() > 4 && joined.contains("b") && text.contains("many"), "{text}");
    }

    #[test]
    fn texts_are_broken_at_spaces_and_indented() {
        let text = "Filter       multi-level: 12 000 of 1 000 000 entries\n             and more\n";
        let wrapped = wrap(text, 40, 13);
        assert_fits(&wrapped, 40);
        assert_eq!(
            wrapped,
            "Filter       multi-level: 12 000 of\n             1 000 000 entries\n             and more\n"
        );
        assert_fits(&wrap(&"x".repeat(200), 40, 13), 40);
    }
}
