//! Following a page: the whole table once, then the rows that have changed.
//!
//! Requests the page once a second and compares. A row is printed again when a value of it has changed, not when it has
//! merely grown older; a row that has vanished is printed with `gone` for its values. A manager that does not answer is
//! reported once and requested again; so a follower outlives a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::client::{Answer, Server};
use super::table::{Role, Table, Widths};
use super::{Failure, Output, Page, standby};

/// Between two requests. Each walks a whole queue, at the cost of the reconciles.
const PERIOD: Duration = Duration::from_secs(1);

/// What was printed so far.
#[derive(Debug, Default)]
pub(super) struct Follower {
    widths: Widths,
    /// The values of each row, by its names.
    rows: BTreeMap<Vec<String>, Vec<String>>,
    notes: Vec<String>,
    /// Whether the titles are printed.
    titled: bool,
}

/// Goes on until standard output is closed, or the first request fails.
pub(super) async fn follow(
    page: &Page,
    json: bool,
    server: &Server,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let (mut follower, mut trouble, mut answered) = (Follower::default(), None, false);
    let mut period = interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        let Answer { body, standby } = match server.get(&page.path()).await {
            Ok(answer) => answer,
            Err(failure) if !answered => return Err(failure),
            Err(failure) => {
                if trouble.as_ref() != Some(&failure.text) {
                    output.note(&format!("{}; asking again", failure.text.trim_end()));
                    trouble = Some(failure.text);
                }
                continue;
            }
        };
        (answered, trouble) = (true, None);
        let note = standby.map(|standby| standby::note(&standby, &output.command));
        let text = if json {
            follower.tell(note.as_slice(), output);
            body
        } else {
            let mut table = page.table(&body)?;
            table.notes.extend(note);
            follower.changed_rows(&table, output)
        };
        // Also without changed_rows, so that a follower whose reader has gone ends.
        if output.write(&text).is_err() {
            return output.print(&text);
        }
    }
}

// === impl Follower ===

impl Follower {
    /// Returns the rows of a table that are to be printed. Notes are printed when they change.
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
        // A row that is missing from a table that is cut off may be among those that are not shown.
        if !table.cut {
            let gone = self.rows.keys().filter(|names| !now.contains_key(*names));
            lines.extend(gone.map(|names| gone_row(table, names)));
        }
        self.rows = now;
        self.widths.fit(&lines);
        self.tell(&table.notes, output);
        lines.iter().map(|line| self.widths.line(line)).collect()
    }

    fn tell(&mut self, notes: &[String], output: &mut Output<'_>) {
        if self.notes != notes {
            for note in notes {
                output.note(note);
            }
            self.notes = notes.to_vec();
        }
    }
}

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
