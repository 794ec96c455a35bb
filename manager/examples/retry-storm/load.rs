//! The load of a storm: it creates objects that will fail, and patches others.
//!
//! Creations and patches are spread evenly over their time, independent of the controller, so that the API
//! server has the same work for every controller under measurement.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::interval;

use super::ledger::Ledger;
use super::site::create_map;
use super::storm::Plan;

/// Concurrent creations: enough for any even rate, and few enough to avoid a burst on the server.
const CREATIONS: usize = 16;
/// The data key with the number of the last patch.
const FIELD: &str = "patch";

const FAILING: &str = "failing-";
const HEALTHY: &str = "healthy-";

/// Returns the number of a failing object, by its name.
pub(crate) fn failing(name: &str) -> Option<usize> {
    name.strip_prefix(FAILING)?.parse().ok()
}

/// Returns the number of the last patch of an object.
pub(crate) fn patch_of(map: &ConfigMap) -> Option<usize> {
    map.data.as_ref()?.get(FIELD)?.parse().ok()
}

/// Creates the objects that are patched later.
pub(crate) async fn prepare(maps: &Api<ConfigMap>, plan: &Plan) -> anyhow::Result<()> {
    for number in 0..plan.healthy {
        create_map(maps, &format!("{HEALTHY}{number}")).await?;
    }
    Ok(())
}

/// Creates and patches objects. Returns when the window is over and every request has its response.
pub(crate) async fn storm(maps: Api<ConfigMap>, plan: &Plan, ledger: Arc<Ledger>) -> anyhow::Result<()> {
    tokio::try_join!(create(&maps, plan), patch(&maps, plan, &ledger))?;
    Ok(())
}

async fn create(maps: &Api<ConfigMap>, plan: &Plan) -> anyhow::Result<()> {
    let room = Arc::new(Semaphore::new(CREATIONS));
    let mut ticks = interval(plan.between_creations());
    let mut creations = JoinSet::new();
    for number in 0..plan.failing {
        ticks.tick().await;
        let permit = Arc::clone(&room).acquire_owned().await?;
        let maps = maps.clone();
        creations.spawn(async move {
            let _permit = permit;
            create_map(&maps, &format!("{FAILING}{number}")).await
        });
    }
    all(creations).await.context("creating failing objects")
}

async fn patch(maps: &Api<ConfigMap>, plan: &Plan, ledger: &Arc<Ledger>) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / plan.patches_per_second);
    // The patches of one object are sent one after the other: if they were reordered, a reader might miss
    // one.
    let turns: Vec<Arc<Mutex<()>>> = (0..plan.healthy).map(|_| Arc::default()).collect();
    let mut patches = JoinSet::new();
    for number in 0..plan.patches() {
        ticks.tick().await;
        let (maps, ledger) = (maps.clone(), Arc::clone(ledger));
        let object = number % plan.healthy;
        let (name, turn) = (format!("{HEALTHY}{object}"), Arc::clone(&turns[object]));
        let change = Patch::Merge(json!({"data": {FIELD: number.to_string()}}));
        patches.spawn(async move {
            let _turn = turn.lock().await;
            ledger.sent(number);
            maps.patch(&name, &PatchParams::default(), &change).await?;
            Ok(())
        });
    }
    all(patches).await.context("patching healthy objects")
}

async fn all(mut requests: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(request) = requests.join_next().await {
        request??;
    }
    Ok(())
}
