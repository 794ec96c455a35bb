//! Waiting for the cluster to show something, by watching it; or for a page, by asking again.
//!
//! Each wait has one deadline; a test that meets it fails with what was waited for and what was seen last. A
//! server that is away, or whose history is too short, only means that the watch begins anew.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Resource;
use kube::{Api, ResourceExt as _};
use mainstay_api::WaitDeployment;
use serde::de::DeserializeOwned;

/// How long anything may take: far above what is usual, since the machine also compiles.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Pause before a server that refused, or has not agreed, is asked again.
const RETRY_PERIOD: Duration = Duration::from_millis(50);

/// Waits until the object exists and `accepts` it, and returns it.
pub async fn until<K>(api: &Api<K>, name: &str, what: &str, accepts: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut found = until_all(api, &only(name), what, |objects| objects.iter().any(&accepts)).await;
    found.pop().unwrap_or_else(|| panic!("{name} was seen and is not there: {what}"))
}

/// Waits until there is no object of this name.
pub async fn until_gone<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    until_all(api, &only(name), &format!("{name} to be gone"), <[K]>::is_empty).await;
}

/// Waits until the selected objects, sorted by namespace and name, are such that `accepts` agrees, and returns them.
pub async fn until_all<K>(
    api: &Api<K>,
    select: &ListParams,
    what: &str,
    accepts: impl Fn(&[K]) -> bool,
) -> Vec<K>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    // Kept outside the future, so that a missed deadline can tell.
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
    assert!(in_time, "waited {PATIENCE:?} for {what}; seen last: {seen:#?}; last error: {trouble:?}");
    seen
}

/// Waits until something agrees that tells nobody when it changes, such as a page to be asked again.
pub async fn until_so(what: &str, agrees: impl AsyncFn() -> bool) {
    let asking = async {
        while !agrees().await {
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, asking).await.is_ok();
    assert!(in_time, "waited {PATIENCE:?} for {what}");
}

/// What to wait for: a condition with this reason.
pub fn says<'a>(type_: &'a str, reason: &'a str) -> impl Fn(&WaitDeployment) -> bool + 'a {
    move |object| object.condition(type_).is_some_and(|found| found.reason.as_deref() == Some(reason))
}

/// What to wait for: a dependency that is told of with this reason.
pub fn tells<'a>(dependency: &'a str, reason: &'a str) -> impl Fn(&WaitDeployment) -> bool + 'a {
    move |object| {
        let mut told = object.status.iter().flat_map(|status| &status.dependencies);
        told.any(|told| told.name == dependency && told.reason.as_deref() == Some(reason))
    }
}

/// Lists, then follows the changes. True once accepted, false when the watch ended and a new list is due.
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
        // Opened only when the list did not do.
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
