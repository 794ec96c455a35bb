//! Tables of text with aligned columns.

use std::fmt;

use crate::program::escaped;

/// The space between two columns of a printed table.
const GAP: &str = "   ";

/// A table to print: columns, rows of text, and lines and notes around it.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<(&'static str, Role)>,
    /// The rows of the table, each with as many cells as there are columns.
    pub(super) rows: Vec<Vec<String>>,
    /// Lines to print below the table; `--watch` does not print them.
    pub(super) below: Vec<String>,
    /// Notes about the table to print to standard error.
    pub(super) notes: Vec<String>,
    /// Whether a limit leaves out some of the rows.
    pub(super) cut: bool,
}

/// A column of a table with rows made from `T`: its title, its role, and the function that makes a cell.
pub(super) type Column<'a, T> = (&'static str, Role, &'a dyn Fn(&T) -> String);

/// The role of a column when `--watch` looks for changed rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The cell is part of the row's identity.
    Name,
    /// A changed cell in this column prints the row again.
    Value,
    /// The cell changes all the time, as an age does, so a change does not print the row again.
    Volatile,
}

/// The widths of a table's columns, in characters. They only grow, so that later rows are aligned with
/// earlier ones.
#[derive(Debug, Default)]
pub(super) struct Widths(Vec<usize>);

// === impl Table ===

impl Table {
    pub(super) fn new<T>(rows: &[T], columns: &[Column<'_, T>]) -> Self {
        // Errors and names may contain control characters. An empty cell is shown as a dash.
        let cell = |text: String| if text.is_empty() { "-".to_owned() } else { escaped(&text) };
        let row = |row: &T| columns.iter().map(|(.., text)| cell(text(row))).collect();
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

    /// Returns those cells of a row that are in columns of one role.
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
    /// Widens the columns so that the cells of these rows fit.
    pub(super) fn fit<'a>(&mut self, rows: impl IntoIterator<Item = &'a Vec<String>>) {
        for row in rows {
            self.0.resize(self.0.len().max(row.len()), 0);
            for (width, cell) in self.0.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }

    /// Returns a row of the table as one aligned line with a line feed, without blanks at the end.
    pub(super) fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&self.0) {
            let blanks = width.saturating_sub(cell.chars().count());
            line.push_str(cell);
            // Not `{:width$}`, which panics for a width above 65,535.
            line.extend(std::iter::repeat_n(' ', blanks));
            line.push_str(GAP);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests;
