//! Waits until the cluster shows a state, by watching it; or until a page does, by polling it.
//!
//! Each wait has one deadline; at the deadline the test fails with the expected and the last seen state. When
//! the server is down or the watch is too old, the wait lists and watches again.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Resource;
use kube::{Api, ResourceExt as _};
use mainstay_api::WaitDeployment;
use serde::de::DeserializeOwned;

/// Longest time of any wait in a test: far above the usual time, since the machine also compiles.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Pause before a failed list, or a poll, is repeated.
const RETRY_PERIOD: Duration = Duration::from_millis(50);

/// Waits until the object of this name exists and `accepts` returns true for it, and returns it.
pub async fn until<K>(api: &Api<K>, name: &str, expected: &str, accepts: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut found = until_all(api, &only(name), expected, |objects| objects.iter().any(&accepts)).await;
    found.pop().unwrap_or_else(|| panic!("{name} was accepted and is missing: {expected}"))
}

/// Waits until there is no object of this name.
pub async fn until_gone<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    until_all(api, &only(name), &format!("{name} to be gone"), <[K]>::is_empty).await;
}

/// Waits until `accepts` returns true for the selected objects, sorted by namespace and name, and returns
/// them.
pub async fn until_all<K>(
    api: &Api<K>,
    select: &ListParams,
    expected: &str,
    accepts: impl Fn(&[K]) -> bool,
) -> Vec<K>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    // Kept outside the future, so that they are known after the deadline.
    let mut seen = Vec::new();
    let mut trouble = None;
    let watching = async {
        loop {
            match watch(api, select, &accepts, &mut seen).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    trouble = Some(error);
                    tokio::time::sleep(RETRY_PERIOD).await;
                }
            }
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, watching).await.is_ok();
    assert!(in_time, "waited {PATIENCE:?} for {expected}; last state: {seen:#?}; last error: {trouble:?}");
    seen
}

/// Polls `agrees` until it returns true: for states without a watch, such as a page.
pub async fn until_so(expected: &str, agrees: impl AsyncFn() -> bool) {
    let asking = async {
        while !agrees().await {
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, asking).await.is_ok();
    assert!(in_time, "waited {PATIENCE:?} for {expected}");
}

/// Returns a predicate that is true for a WaitDeployment with this reason of the condition of this type.
pub fn has_reason<'a>(type_: &'a str, reason: &'a str) -> impl Fn(&WaitDeployment) -> bool + 'a {
    move |object| object.condition(type_).is_some_and(|found| found.reason.as_deref() == Some(reason))
}

/// Returns a predicate that is true for a WaitDeployment with this reason in the status entry of a
/// dependency.
pub fn dependency_has_reason<'a>(
    dependency: &'a str,
    reason: &'a str,
) -> impl Fn(&WaitDeployment) -> bool + 'a {
    move |object| {
        let mut dependencies = object.status.iter().flat_map(|status| &status.dependencies);
        dependencies.any(|found| found.name == dependency && found.reason.as_deref() == Some(reason))
    }
}

/// Lists the selected objects, then watches their changes. Returns true once `accepts` returns true, false
/// when the watch ended and a new list is due.
async fn watch<K>(
    api: &Api<K>,
    select: &ListParams,
    accepts: &impl Fn(&[K]) -> bool,
    seen: &mut Vec<K>,
) -> Result<bool, kube::Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let list = api.list(select).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let mut objects: BTreeMap<_, _> = list.items.into_iter().map(|object| (key(&object), object)).collect();
    let parameters = WatchParams {
        label_selector: select.label_selector.clone(),
        field_selector: select.field_selector.clone(),
        ..WatchParams::default()
    };
    let mut events = None;
    loop {
        *seen = objects.values().cloned().collect();
        if accepts(seen) {
            return Ok(true);
        }
        // Opened only if the list is not accepted.
        let events = match &mut events {
            Some(events) => events,
            none => none.insert(Box::pin(api.watch(&parameters, &version).await?)),
        };
        match events.try_next().await? {
            Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                objects.insert(key(&object), object);
            }
            Some(WatchEvent::Deleted(object)) => {
                objects.remove(&key(&object));
            }
            Some(WatchEvent::Bookmark(_)) => {}
            Some(WatchEvent::Error(_)) | None => return Ok(false),
        }
    }
}

fn only(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

fn key<K: Resource>(object: &K) -> (Option<String>, String) {
    (object.namespace(), object.name_any())
}
