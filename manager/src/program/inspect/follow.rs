//! `inspect -w`: prints the whole table once, then the rows that change.
//!
//! The page is requested once a second. A row is printed again if one of its values has changed; ages are not
//! compared. A row that has vanished is printed with `gone` for its values. An error is printed once while
//! the requests continue, so that the command survives a restart of the manager.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::client::{Answer, Server};
use super::table::{Role, Table, Widths};
use super::{Failure, Output, Page, standby, unknown_form};

/// Time between two requests for a followed page. Each request walks the whole queue, which delays
/// reconciles.
const PERIOD: Duration = Duration::from_secs(1);

/// The state of `inspect --watch`: the rows and notes printed so far.
#[derive(Debug, Default)]
pub(super) struct Follower {
    widths: Widths,
    /// The last printed values of each row, by the cells that name the row.
    rows: BTreeMap<Vec<String>, Vec<String>>,
    notes: Vec<String>,
    /// Whether the column titles have been printed.
    titled: bool,
}

/// Requests a page again and again and prints its changes, until standard output is closed. Fails if the
/// first request fails, an answer cannot be parsed, or standard output cannot be written to.
pub(super) async fn follow(
    page: &Page,
    json: bool,
    server: &Server,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let (path, parse) = page.request();
    let (mut follower, mut trouble, mut answered) = (Follower::default(), None, false);
    let mut period = interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        let Answer { body, standby } = match server.get(&path).await {
            Ok(answer) => answer,
            Err(failure) if !answered => return Err(failure),
            Err(failure) => {
                if trouble.as_ref() != Some(&failure.text) {
                    output.note(&format!("{}; trying again", failure.text.trim_end()));
                    trouble = Some(failure.text);
                }
                continue;
            }
        };
        (answered, trouble) = (true, None);
        let note = standby.map(|standby| standby::note(&standby, &output.command));
        let text = if json {
            follower.print_notes(note.as_slice(), output);
            body
        } else {
            let mut table = parse(&body).map_err(|error| unknown_form(&path, &error))?;
            table.notes.extend(note);
            follower.changed_rows(&table, output)
        };
        // An empty text is written too, to notice a closed standard output.
        if output.write(&text).is_err() {
            return output.print(&text);
        }
    }
}

// === impl Follower ===

impl Follower {
    /// Returns the lines to print: the column titles at the first call, and the rows that have changed since
    /// the last call. Prints the notes of the table if they changed.
    pub(super) fn changed_rows(&mut self, table: &Table, output: &mut Output<'_>) -> String {
        let mut lines = Vec::new();
        if !std::mem::replace(&mut self.titled, true) {
            lines.push(table.titles());
        }
        let mut now = BTreeMap::new();
        for row in &table.rows {
            let cells = |role| table.cells(row, role).map(str::to_owned).collect::<Vec<_>>();
            let (names, values) = (cells(Role::Name), cells(Role::Value));
            if self.rows.get(&names) != Some(&values) {
                lines.push(row.clone());
            }
            now.insert(names, values);
        }
        // In a table with a limit, a missing row may still exist beyond the limit.
        if !table.cut {
            let gone = self.rows.keys().filter(|names| !now.contains_key(*names));
            lines.extend(gone.map(|names| gone_row(table, names)));
        }
        self.rows = now;
        self.widths.fit(&lines);
        self.print_notes(&table.notes, output);
        lines.iter().map(|line| self.widths.line(line)).collect()
    }

    fn print_notes(&mut self, notes: &[String], output: &mut Output<'_>) {
        if self.notes != notes {
            for note in notes {
                output.note(note);
            }
            self.notes = notes.to_vec();
        }
    }
}

/// Returns the row to print, with the word `gone`, for a row of the table that has vanished.
fn gone_row(table: &Table, names: &[String]) -> Vec<String> {
    let (mut names, mut word) = (names.iter(), Some("gone"));
    let mut cell = |role| match role {
        Role::Name => names.next().cloned(),
        Role::Value => word.take().map(str::to_owned),
        Role::Volatile => None,
    };
    let cells = table.columns.iter().map(|(_, role)| cell(*role));
    cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned())).collect()
}
