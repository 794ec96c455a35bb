//! Tables of a manager's debug pages.

use serde_json::Value;

use super::duration::short;
use super::pages::{
    Caches, Controller, Controllers, Leader, LeaseChange, Queued, Ready, Store, Watch, Watches,
};
use super::table::{Role, Table};
use crate::inspect::configuration::Page;

pub(super) fn controllers(page: &Controllers) -> Table {
    let ready = |Ready { live, new, background, retry }: &Ready| live + new + background + retry;
    Table::new(
        &page.controllers,
        &[
            ("NAME", Role::Name, &|controller| controller.name.to_string()),
            ("STATE", Role::Value, &|controller| state_of(controller).to_owned()),
            ("WORKERS", Role::Value, &|controller| controller.workers.to_string()),
            ("READY", Role::Value, &|controller| ready(&controller.queue.ready).to_string()),
            ("RUNNING", Role::Value, &|controller| controller.queue.running.to_string()),
            ("DELAYED", Role::Value, &|controller| controller.queue.delayed.to_string()),
            ("PARKED", Role::Value, &|controller| controller.queue.parked.to_string()),
            ("OLDEST READY", Role::Volatile, &|controller| short(controller.queue.oldest_ready_seconds)),
        ],
    )
}

fn state_of(controller: &Controller) -> &'static str {
    match (controller.synced, controller.leading) {
        _ if !controller.enabled => "disabled",
        _ if controller.paused => "paused",
        (false, _) => "syncing",
        (true, false) => "standby",
        (true, true) => "working",
    }
}

pub(super) fn queue(page: &Queued) -> Table {
    let mut table = Table::new(
        &page.keys,
        &[
            ("KEY", Role::Name, &|key| key.key.clone()),
            ("STATE", Role::Value, &|key| key.state.to_string()),
            ("ATTEMPTS", Role::Value, &|key| key.attempts.to_string()),
            ("NEXT", Role::Volatile, &|key| short(key.next_run_seconds)),
            ("SINCE", Role::Volatile, &|key| short(Some(key.since_seconds))),
            ("TOOK", Role::Volatile, &|key| short(key.last_duration_seconds)),
            ("CAUSE", Role::Value, &|key| key.cause.clone()),
            ("LAST ERROR", Role::Value, &|key| text(key.last_error.as_deref().or(key.reason.as_deref()))),
        ],
    );
    let shown = page.keys.len();
    if shown == 0 {
        table.notes.push("no key matches".to_owned());
    }
    if shown < page.matched {
        table.cut = true;
        let more = match &page.next {
            Some(next) => format!("the next page: --after {next}"),
            None => "raise --limit, or go through pages with --sort name".to_owned(),
        };
        table.notes.push(format!("{} match, {shown} shown; {more}", page.matched));
    }
    table
}

pub(super) fn caches(page: &Caches) -> Table {
    let state = |store: &Store| match (store.absent, store.down_seconds, store.synced) {
        (true, ..) => "absent",
        (false, Some(_), true) => "down",
        (false, _, false) => "syncing",
        (false, None, true) => "working",
    };
    Table::new(
        &page.caches,
        &[
            ("CLUSTER", Role::Name, &|store| text(store.cluster.as_deref())),
            ("KIND", Role::Name, &|store| store.kind.clone()),
            ("SCOPE", Role::Name, &|store| store.scope.clone()),
            ("PROJECTION", Role::Name, &|store| store.projection.to_string()),
            ("STATE", Role::Value, &|store| state(store).to_owned()),
            ("OBJECTS", Role::Volatile, &|store| store.objects.to_string()),
            ("BYTES", Role::Volatile, &|store| store.bytes.to_string()),
            ("LAST EVENT", Role::Volatile, &|store| short(store.last_event_seconds)),
            ("RELISTS", Role::Value, &|store| store.relists.to_string()),
            ("LEFT OUT", Role::Value, &|store| store.left_out.len().to_string()),
            ("LAST ERROR", Role::Value, &|store| text(store.last_error.as_deref())),
        ],
    )
}

pub(super) fn watches(page: &Watches) -> Table {
    let state = |watch: &Watch| match (watch.absent, watch.working) {
        (true, _) => "absent",
        (false, true) => "working",
        (false, false) => "down",
    };
    Table::new(
        &page.watches,
        &[
            ("CLUSTER", Role::Name, &|watch| text(watch.cluster.as_deref())),
            ("KIND", Role::Name, &|watch| watch.kind.clone()),
            ("SCOPE", Role::Name, &|watch| watch.scope.clone()),
            ("NAMESPACE", Role::Name, &|watch| text(watch.namespace.as_deref())),
            ("STATE", Role::Value, &|watch| state(watch).to_owned()),
            ("SINCE", Role::Volatile, &|watch| short(Some(watch.since_seconds))),
            ("LISTS", Role::Value, &|watch| watch.lists.to_string()),
            ("WATCHES", Role::Value, &|watch| watch.watches.to_string()),
            ("LAST ERROR", Role::Value, &|watch| text(watch.last_error.as_deref())),
        ],
    )
}

pub(super) fn config(page: &Page) -> Table {
    let value = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        other => other.to_string(),
    };
    let mut table = Table::new(
        &page.settings,
        &[
            ("SETTING", Role::Name, &|setting| setting.path.clone()),
            ("VALUE", Role::Value, &|setting| value(&setting.value)),
            ("FROM", Role::Value, &|setting| setting.from.clone()),
            ("A CHANGE APPLIES", Role::Value, &|setting| {
                if setting.live { "live" } else { "at next start" }.to_owned()
            }),
        ],
    );
    let refused = page.refused.iter().flat_map(|refused| &refused.problems);
    table.notes.extend(refused.map(|problem| format!("refused: {problem}")));
    table.notes.extend(page.restart_needed.iter().map(|change| format!("at the next start: {change}")));
    table
}

pub(super) fn leader(page: &Leader) -> Table {
    let lease = page.lease.as_ref().map(|lease| format!("{}/{}", lease.namespace, lease.name));
    let yes = |so: bool| if so { "yes" } else { "no" }.to_owned();
    let time = |seconds: Option<f64>| seconds.map(|_| short(seconds)).unwrap_or_default();
    let rows = [
        ("identity", page.identity.clone(), String::new()),
        ("lease", lease.unwrap_or_else(|| "none: leads without an election".to_owned()), String::new()),
        ("leading", yes(page.leading), String::new()),
        ("holder", text(page.holder.as_deref()), time(page.holder_seconds)),
        ("transitions", page.transitions.map(|count| count.to_string()).unwrap_or_default(), String::new()),
        ("last term ended", text(page.lost.as_deref()), String::new()),
        ("writes allowed", yes(page.fence_open), time(page.fence_seconds)),
    ];
    let mut table = Table::new(
        &rows,
        &[
            ("WHAT", Role::Name, &|(name, ..)| (*name).to_owned()),
            ("VALUE", Role::Value, &|(_, value, _)| value.clone()),
            ("FOR", Role::Volatile, &|(.., time)| time.clone()),
        ],
    );
    table.below = page.history.iter().map(line).collect();
    table
}

/// Returns the text of a table cell; empty for an unknown value.
fn text(value: Option<&str>) -> String {
    value.unwrap_or_default().to_owned()
}

/// Returns a change of the Lease as one line of its history, such as `3s ago: web-0 became leader`.
fn line(turn: &LeaseChange) -> String {
    let holder = turn.identity.as_deref().unwrap_or("no replica");
    let reason = turn.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let event = match &*turn.event {
        "becameLeader" => "became leader",
        "stoppedLeading" => "stopped leading",
        "newHolder" => "holds the Lease",
        other => other,
    };
    format!("{} ago: {holder} {event}{reason}", short(Some(turn.seconds_ago)))
}
