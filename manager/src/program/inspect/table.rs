//! Rows in columns, as wide as what stands in them.

use std::fmt;

/// Between two columns.
const GAP: &str = "   ";

/// Something that is shown in rows.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<(&'static str, Role)>,
    /// As many cells in each as there are columns.
    pub(super) rows: Vec<Vec<String>>,
    /// What is shown below it, a line each; not to whoever follows.
    pub(super) below: Vec<String>,
    /// What is said beside the table, a line each.
    pub(super) notes: Vec<String>,
    /// Not all rows there are: one that is missing may be among the others.
    pub(super) cut: bool,
}

/// A column of a table of `T`: its title, its role, and the cell of a row.
pub(super) type Column<'a, T> = (&'static str, Role, &'a dyn Fn(&T) -> String);

/// What a column is for whoever follows a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Says which row it is.
    Name,
    /// A new value is changed_rows.
    Value,
    /// It moves while nothing happens, as an age does.
    Volatile,
}

/// How wide the columns are. They only grow, so that what is printed later stands below.
#[derive(Debug, Default)]
pub(super) struct Widths(Vec<usize>);

// === impl Table ===

impl Table {
    pub(super) fn new<T>(rows: &[T], columns: &[Column<'_, T>]) -> Self {
        // A terminal acts on some of what errors and names may hold.
        let row = |row| columns.iter().map(|(.., cell)| escaped(&cell(row))).collect();
        Self {
            rows: rows.iter().map(row).collect(),
            columns: columns.iter().map(|(title, role, _)| (*title, *role)).collect(),
            below: Vec::new(),
            notes: Vec::new(),
            cut: false,
        }
    }

    pub(super) fn titles(&self) -> Vec<String> {
        self.columns.iter().map(|(title, _)| (*title).to_owned()).collect()
    }

    /// Returns the cells of a row in columns of one role.
    pub(super) fn cells<'a>(&'a self, row: &'a [String], role: Role) -> impl Iterator<Item = &'a str> {
        let cells = self.columns.iter().zip(row).filter(move |((_, of), _)| *of == role);
        cells.map(|(_, cell)| cell.as_str())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (titles, mut widths) = (self.titles(), Widths::default());
        widths.fit([&titles].into_iter().chain(&self.rows));
        f.write_str(&widths.line(&titles))?;
        self.rows.iter().try_for_each(|row| f.write_str(&widths.line(row)))?;
        if !self.below.is_empty() {
            writeln!(f)?;
        }
        self.below.iter().try_for_each(|line| writeln!(f, "{}", escaped(line)))
    }
}

// === impl Widths ===

impl Widths {
    /// Makes room for these rows.
    pub(super) fn fit<'a>(&mut self, rows: impl IntoIterator<Item = &'a Vec<String>>) {
        for row in rows {
            self.0.resize(self.0.len().max(row.len()), 0);
            for (width, cell) in self.0.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }

    /// Writes a row, ended by a line feed. No line ends in blanks.
    pub(super) fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&self.0) {
            let blanks = width.saturating_sub(cell.chars().count());
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', blanks));
            line.push_str(GAP);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Replaces what would end the line or steer the terminal by its escape, and nothing by a dash.
pub(super) fn escaped(cell: &str) -> String {
    if cell.is_empty() {
        return "-".to_owned();
    }
    let escaped = cell.chars().map(|letter| {
        if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() }
    });
    escaped.collect()
}

#[cfg(test)]
mod tests;
