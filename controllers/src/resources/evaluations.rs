//! What objects are found to be: each version of one is read and evaluated once for each state that is waited for, as long as
//! its result is kept.
//!
//! # Invariants
//! 1. What one look may cost is bounded, whatever is known from earlier ones: equal states give equal answers.

use std::collections::HashMap;
use std::sync::Arc;

use kube::core::DynamicObject;
use mainstay::cache::Entry;
use mainstay::key::KindId;
use mainstay_api::plan::{ResourceCheck, ResourceState};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::expression::{Expression, Failure, MAX_OBJECT_BYTES, MAX_WORK};
use super::results::{Known, Results};
use super::state::{Found, ObjectView};
use super::words::Wanted;

/// Most expressions that are kept read.
const MAX_EXPRESSIONS: usize = 512;
/// Longest object in bytes whose conditions are read at once: some tenths of a millisecond.
const SHORT_BYTES: usize = 64 << 10;
/// What it costs to read a byte of an object, in bytes copied.
const READ_BYTES: u128 = 8;
/// Most that all objects of one look may cost together: half a second at the very worst, and mostly for the first look
/// alone. A selector of hundreds comes by with it; sixteen that each are as costly as they may be do not.
const MAX_LOOK: u128 = 8 * MAX_WORK;

/// Expressions and results. What is in use and had to go is found out again.
#[derive(Debug, Default)]
pub(super) struct Evaluations {
    /// By their text; emptied when they are full.
    expressions: Mutex<HashMap<String, Arc<Result<Expression, Failure>>>>,
    results: Mutex<Results>,
}

/// What may still be spent on one look.
#[derive(Debug)]
pub(super) struct Budget(u128);

// === impl Evaluations ===

impl Evaluations {
    /// Returns what an object of `kind` is found to be.
    ///
    /// # Errors
    /// Says why an expression has no value for it, or that the budget does not suffice.
    pub(super) fn judge(
        &self,
        check: &ResourceCheck,
        kind: &KindId,
        entry: &Entry<DynamicObject>,
        budget: &mut Budget,
    ) -> Result<Found, Failure> {
        let version = &entry.meta().resource_version;
        let state = match &check.state {
            ResourceState::Expression(text) => format!("expression {text}"),
            condition @ ResourceState::Condition { .. } => Wanted(condition).to_string(),
        };
        let of = (kind.clone(), entry.view().request().clone());
        let known = self.results.lock().get(&state, &of, version);
        if let Some(known) = known {
            budget.spend(known.cost)?;
            return known.result;
        }
        let bytes = entry.view().bytes().map_err(|_| Failure::Failed)?.len();
        let mut look = || self.look(check, entry, bytes, budget);
        let (cost, result) = if takes_long(&check.state, bytes) { aside(look) } else { look() }?;
        let known = Known { version: version.clone(), cost, result: result.clone() };
        self.results.lock().insert(&state, of, known);
        result
    }

    /// Returns what it has cost too; an error is one that another budget may not meet, and costs nothing to find again.
    fn look(
        &self,
        check: &ResourceCheck,
        entry: &Entry<DynamicObject>,
        bytes: usize,
        budget: &mut Budget,
    ) -> Result<(u128, Result<Found, Failure>), Failure> {
        let cost = bytes as u128 * READ_BYTES;
        match &check.state {
            ResourceState::Condition { type_, status } => {
                budget.spend(cost)?;
                Ok((cost, Ok(judge_condition(entry, check, type_, status))))
            }
            ResourceState::Expression(text) => {
                let expression = self.expression(text);
                let expression = (*expression).as_ref().map_err(Clone::clone)?;
                if bytes > MAX_OBJECT_BYTES {
                    return Err(Failure::TooCostly);
                }
                budget.spend(cost)?;
                let object = entry.view().decode::<Value>().map_err(|_| Failure::Failed)?;
                // What is refused for itself is not begun.
                let work =
                    Some(expression.cost(&object)).filter(|work| *work <= MAX_WORK).unwrap_or_default();
                budget.spend(work)?;
                let is_true = expression.is_true(&object);
                let found = |is_true| if is_true { Found::There } else { Found::NotThere };
                Ok((cost + work, is_true.map(found)))
            }
        }
    }

    /// Returns why what is waited for cannot be read, whatever there is to look at.
    pub(super) fn refuses(&self, state: &ResourceState) -> Option<Failure> {
        match state {
            ResourceState::Expression(text) => self.expression(text).as_ref().as_ref().err().cloned(),
            ResourceState::Condition { .. } => None,
        }
    }

    /// Returns an expression, read once for all who use it.
    fn expression(&self, text: &str) -> Arc<Result<Expression, Failure>> {
        if let Some(known) = self.expressions.lock().get(text) {
            return Arc::clone(known);
        }
        let read = Arc::new(aside(|| Expression::read(text)));
        let mut known = self.expressions.lock();
        if known.len() >= MAX_EXPRESSIONS {
            known.clear();
        }
        known.insert(text.to_owned(), Arc::clone(&read));
        read
    }
}

// === impl Budget ===

impl Budget {
    fn spend(&mut self, cost: u128) -> Result<(), Failure> {
        self.0 = self.0.checked_sub(cost).ok_or(Failure::TooMuch)?;
        Ok(())
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self(MAX_LOOK)
    }
}

// === private ===

/// Returns whether an object of so many bytes is to be looked at [aside](self::aside): that costs more than the conditions
/// of a small one, of which a selector picks hundreds.
fn takes_long(state: &ResourceState, bytes: usize) -> bool {
    matches!(state, ResourceState::Expression(_)) || bytes > SHORT_BYTES
}

/// Does what may take a while. Meanwhile another thread does what this worker would; a runtime of one thread has none.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn judge_condition(entry: &Entry<DynamicObject>, check: &ResourceCheck, type_: &str, status: &str) -> Found {
    // With a status of another form it has no such condition.
    let Ok(object) = entry.view().decode::<ObjectView>() else { return Found::NotThere };
    let found = object.judge(type_, status);
    let failed = check.group == "batch" && check.kind == "Job" && object.is("Failed");
    if found == Found::NotThere && failed { Found::Failed } else { found }
}

#[cfg(test)]
mod tests {
    use mainstay::cache::Store;
    use mainstay::key::Request;
    use mainstay_api::plan::Which;
    use serde_json::json;

    use super::*;

    fn entry(version: &str, succeeded: u32) -> (KindId, Entry<DynamicObject>) {
        let jobs = KindId::new("batch", "v1", "Job", "jobs", true);
        let status = if succeeded > 0 { "True" } else { "False" };
        let job = json!({
            "metadata": {"name": "migrate", "namespace": "shop", "resourceVersion": version},
            "status": {"succeeded": succeeded, "conditions": [{"type": "Complete", "status": status}]},
        });
        let store: Store<DynamicObject> = Store::from_values(&jobs, [job]);
        let entry = store.entry(&Request::namespaced("shop", "migrate")).unwrap().unwrap();
        (jobs, entry)
    }

    fn checks() -> [ResourceCheck; 2] {
        let check = |state| ResourceCheck {
            group: "batch".to_owned(),
            version: "v1".to_owned(),
            kind: "Job".to_owned(),
            which: Which::Name("migrate".to_owned()),
            state,
        };
        let condition = ResourceState::Condition { type_: "Complete".to_owned(), status: "True".to_owned() };
        [condition, ResourceState::Expression("object.status.succeeded > 0".to_owned())].map(check)
    }

    #[test]
    fn a_version_of_an_object_is_looked_at_once() {
        let evaluations = Evaluations::default();
        for check in checks() {
            let judge = |version: &str, succeeded| {
                let (jobs, entry) = entry(version, succeeded);
                evaluations.judge(&check, &jobs, &entry, &mut Budget::default())
            };
            assert_eq!(judge("7", 1), Ok(Found::There));
            // A server does not do that; it shows that nobody looks again.
            assert_eq!(judge("7", 0), Ok(Found::There));
            assert_eq!(judge("8", 0), Ok(Found::NotThere), "another version");
            assert_eq!(judge("9", 1), Ok(Found::There));
        }
    }

    #[test]
    fn an_expression_is_not_answered_by_what_reads_like_it() {
        let evaluations = Evaluations::default();
        let (jobs, entry) = entry("7", 1);
        let [condition, mut expression] = checks();
        expression.state = ResourceState::Expression(Wanted(&condition.state).to_string());
        let judge = |check| evaluations.judge(check, &jobs, &entry, &mut Budget::default());
        assert_eq!(judge(&condition), Ok(Found::There));
        assert!(matches!(judge(&expression), Err(Failure::Invalid(_))));
    }

    #[test]
    fn a_look_costs_the_same_whatever_is_known() {
        let evaluations = Evaluations::default();
        let (jobs, entry) = entry("7", 1);
        for check in checks() {
            let look = |budget: &mut Budget| evaluations.judge(&check, &jobs, &entry, budget);
            let mut first = Budget::default();
            assert_eq!(look(&mut first), Ok(Found::There));
            let cost = MAX_LOOK - first.0;
            assert!(cost > 0);
            let mut again = Budget(cost + cost - 1);
            assert_eq!(look(&mut again), Ok(Found::There));
            assert_eq!(look(&mut again), Err(Failure::TooMuch), "though it is known");
        }
    }

    #[test]
    fn conditions_of_small_objects_are_read_on_the_spot() {
        let [condition, expression] = checks().map(|check| check.state);
        assert!(!takes_long(&condition, SHORT_BYTES));
        assert!(takes_long(&condition, SHORT_BYTES + 1));
        assert!(takes_long(&expression, 1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_worker_that_waits_leaves_its_place() {
        let (told, heard) = std::sync::mpsc::channel();
        let mut tasks = tokio::task::JoinSet::new();
        // Alone on the only worker, the first would wait for the second in vain.
        let patience = std::time::Duration::from_mins(1);
        tasks.spawn(async move { aside(|| heard.recv_timeout(patience).unwrap()) });
        tasks.spawn(async move { told.send(()).unwrap() });
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
}
