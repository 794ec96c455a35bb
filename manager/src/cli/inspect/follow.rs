//! Following a page: the whole table once, then the rows that have changed.
//!
//! Asks once a second and compares. A row is printed again when a value of it has changed, not when it has merely grown
//! older; one that is not there any more is printed with `gone` for its values. A manager that does not answer is asked
//! again, and said once; so a follower outlives a restart.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::client::Server;
use super::table::{Role, Table, Widths};
use super::{Exit, Page, complain, print, say};
use crate::key::Chain;

/// Between two questions. Each walks a whole queue, so a shorter time would be paid by whoever reconciles.
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

/// Goes on until nobody reads, or the first question makes no sense.
pub(super) async fn follow(
    page: &Page,
    json: bool,
    server: &Server,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let (mut follower, mut trouble, mut answered) = (Follower::default(), None, false);
    let mut period = interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        let body = match server.get(&page.path()).await {
            Ok(body) => body,
            Err(error) if !answered => return error.exit(err),
            Err(error) => {
                let text = Chain(&error).to_string();
                if trouble.as_ref() != Some(&text) {
                    say(err, &format!("{text}; asking again\n"));
                    trouble = Some(text);
                }
                continue;
            }
        };
        (answered, trouble) = (true, None);
        let text = if json {
            body
        } else {
            match page.table(server, &body).await {
                Ok(table) => follower.news(&table, err),
                Err(error) => return complain(&error, err),
            }
        };
        // Also without news, so that one whose reader has gone ends and does not ask for ever.
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(_) => return print(out, err, &text),
        }
    }
}

// === impl Follower ===

impl Follower {
    /// Returns what is to be printed of a table. Notes are said when they change.
    pub(super) fn news(&mut self, table: &Table, err: &mut dyn Write) -> String {
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
        // Of a table that is cut off, who is missing may be among those that are not shown.
        if !table.cut {
            let gone = self.rows.keys().filter(|names| !now.contains_key(*names));
            lines.extend(gone.map(|names| gone_row(table, names)));
        }
        self.rows = now;
        self.widths.fit(&lines);
        if self.notes != table.notes {
            for note in &table.notes {
                say(err, &format!("{note}\n"));
            }
            self.notes.clone_from(&table.notes);
        }
        lines.iter().map(|line| self.widths.line(line)).collect()
    }
}

fn gone_row(table: &Table, names: &[String]) -> Vec<String> {
    let (mut names, mut word) = (names.iter(), Some("gone"));
    let cell = |role| match role {
        Role::Name => names.next().cloned(),
        Role::Value => word.take().map(str::to_owned),
        Role::Moves => None,
    };
    let cells = table.columns.iter().map(|column| column.role).map(cell);
    cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned())).collect()
}
