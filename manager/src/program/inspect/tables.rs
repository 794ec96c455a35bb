//! The answers of a manager as tables.

use std::borrow::Cow;

use super::duration::short;
use super::pages::{Caches, Controllers, Counts, Leader, Queued, Ready, Turn, Watches};
use super::table::{Column, Role, Table, column};
use crate::inspect::configuration::Page;

const CONTROLLERS: &[Column] = &[
    column("NAME", Role::Name),
    column("STATE", Role::Value),
    column("WORKERS", Role::Value),
    column("READY", Role::Value),
    column("RUNNING", Role::Value),
    column("DELAYED", Role::Value),
    column("PARKED", Role::Value),
    column("OLDEST READY", Role::Moves),
];

const QUEUE: &[Column] = &[
    column("KEY", Role::Name),
    column("STATE", Role::Value),
    column("ATTEMPTS", Role::Value),
    column("NEXT", Role::Moves),
    column("SINCE", Role::Moves),
    column("TOOK", Role::Moves),
    column("CAUSE", Role::Value),
    column("LAST ERROR", Role::Value),
];

const CACHES: &[Column] = &[
    column("CLUSTER", Role::Name),
    column("KIND", Role::Name),
    column("SCOPE", Role::Name),
    column("PROJECTION", Role::Name),
    column("STATE", Role::Value),
    column("OBJECTS", Role::Moves),
    column("BYTES", Role::Moves),
    column("LAST EVENT", Role::Moves),
    column("RELISTS", Role::Value),
    column("LEFT OUT", Role::Value),
    column("LAST ERROR", Role::Value),
];

const WATCHES: &[Column] = &[
    column("CLUSTER", Role::Name),
    column("KIND", Role::Name),
    column("SCOPE", Role::Name),
    column("NAMESPACE", Role::Name),
    column("STATE", Role::Value),
    column("SINCE", Role::Moves),
    column("LISTS", Role::Value),
    column("WATCHES", Role::Value),
    column("LAST ERROR", Role::Value),
];

const CONFIG: &[Column] = &[
    column("SETTING", Role::Name),
    column("VALUE", Role::Value),
    column("FROM", Role::Value),
    column("A CHANGE APPLIES", Role::Value),
];

const LEADER: &[Column] =
    &[column("WHAT", Role::Name), column("VALUE", Role::Value), column("FOR", Role::Moves)];

pub(super) fn controllers(page: Controllers) -> Table {
    let rows = page.controllers.into_iter().map(|controller| {
        let Counts { ready: Ready { live, background, retry }, delayed, running, parked, .. } =
            controller.queue;
        let state = match (controller.synced, controller.leading) {
            _ if !controller.enabled => "disabled",
            _ if controller.paused => "paused",
            (false, _) => "syncing",
            (true, false) => "standby",
            (true, true) => "working",
        };
        vec![
            controller.name.into_owned(),
            state.to_owned(),
            controller.workers.to_string(),
            (live + background + retry).to_string(),
            running.to_string(),
            delayed.to_string(),
            parked.to_string(),
            short(controller.queue.oldest_ready_seconds),
        ]
    });
    Table::new(CONTROLLERS, rows.collect())
}

/// `leader` is the answer for `/debug/leader`, where this replica does not lead.
pub(super) fn queue(page: Queued, leader: Option<&Leader>) -> Table {
    let shown = page.keys.len();
    let rows = page.keys.into_iter().map(|key| {
        vec![
            key.key,
            key.state.into_owned(),
            key.attempts.to_string(),
            short(key.next_run_seconds),
            short(Some(key.since_seconds)),
            short(key.last_duration_seconds),
            key.cause,
            key.last_error.or(key.reason.map(Cow::into_owned)).unwrap_or_default(),
        ]
    });
    let mut table = Table::new(QUEUE, rows.collect());
    if !page.leading {
        let holder = leader.and_then(|leader| leader.holder.as_deref()).unwrap_or("nobody it knows of");
        let text = format!("a standby, whose keys are kept warm and do not run; the leader is {holder}");
        table.notes.push(text);
    }
    if shown == 0 {
        table.notes.push("no key matches".to_owned());
    }
    if shown < page.matched {
        table.cut = true;
        let more = match page.next {
            Some(next) => format!("the next page: --after {next}"),
            None => "raise --limit, or go through pages with --sort name".to_owned(),
        };
        table.notes.push(format!("{} match, {shown} shown; {more}", page.matched));
    }
    table
}

pub(super) fn caches(page: Caches) -> Table {
    let rows = page.caches.into_iter().map(|store| {
        let state = match (store.absent, store.down_seconds, store.synced) {
            (true, ..) => "absent",
            (false, Some(_), true) => "down",
            (false, _, false) => "syncing",
            (false, None, true) => "working",
        };
        vec![
            store.cluster.unwrap_or_default(),
            store.kind,
            store.scope,
            store.projection.into_owned(),
            state.to_owned(),
            store.objects.to_string(),
            store.bytes.to_string(),
            short(store.last_event_seconds),
            store.relists.to_string(),
            store.left_out.len().to_string(),
            store.last_error.unwrap_or_default(),
        ]
    });
    Table::new(CACHES, rows.collect())
}

pub(super) fn watches(page: Watches) -> Table {
    let rows = page.watches.into_iter().map(|watch| {
        let state = match (watch.absent, watch.working) {
            (true, _) => "absent",
            (false, true) => "working",
            (false, false) => "down",
        };
        vec![
            watch.cluster.unwrap_or_default(),
            watch.kind,
            watch.scope,
            watch.namespace.unwrap_or_default(),
            state.to_owned(),
            short(Some(watch.since_seconds)),
            watch.lists.to_string(),
            watch.watches.to_string(),
            watch.last_error.unwrap_or_default(),
        ]
    });
    Table::new(WATCHES, rows.collect())
}

pub(super) fn config(page: Page) -> Table {
    let rows = page.settings.into_iter().map(|setting| {
        let applies = if setting.live { "live" } else { "at next start" };
        let value = match setting.value {
            serde_json::Value::String(text) if !text.is_empty() => text,
            other => other.to_string(),
        };
        vec![setting.path, value, setting.from, applies.to_owned()]
    });
    let mut table = Table::new(CONFIG, rows.collect());
    let refused = page.refused.into_iter().flat_map(|refused| refused.problems);
    table.notes.extend(refused.map(|problem| format!("refused: {problem}")));
    table.notes.extend(page.restart_needed.into_iter().map(|change| format!("at the next start: {change}")));
    table
}

pub(super) fn leader(page: Leader) -> Table {
    let lease = page.lease.map(|lease| format!("{}/{}", lease.namespace, lease.name));
    let yes = |so: bool| if so { "yes" } else { "no" }.to_owned();
    let never = |value: Option<f64>| value.map(|seconds| short(Some(seconds))).unwrap_or_default();
    let rows = [
        ("identity", page.identity, String::new()),
        ("lease", lease.unwrap_or_else(|| "none: leads without an election".to_owned()), String::new()),
        ("leading", yes(page.leading), String::new()),
        ("holder", page.holder.unwrap_or_default(), never(page.holder_seconds)),
        ("transitions", page.transitions.map(|count| count.to_string()).unwrap_or_default(), String::new()),
        ("last term ended", page.lost.unwrap_or_default().into_owned(), String::new()),
        ("writes may leave", yes(page.fence_open), never(page.fence_seconds)),
    ];
    let mut table = Table::new(
        LEADER,
        rows.into_iter().map(|(what, value, time)| vec![what.to_owned(), value, time]).collect(),
    );
    table.below = page.history.iter().map(line).collect();
    table
}

/// One line of the history of a Lease.
fn line(turn: &Turn) -> String {
    let holder = turn.identity.as_deref().unwrap_or("nobody");
    let reason = turn.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let event = match &*turn.event {
        "becameLeader" => "became leader",
        "stoppedLeading" => "stopped leading",
        "newHolder" => "holds the Lease",
        other => other,
    };
    format!("{} ago: {holder} {event}{reason}", short(Some(turn.seconds_ago)))
}
