//! The scenarios of three well-known operators, each with exactly the rights that the operator declares.

mod cron_job;
mod foo;
mod memcached;

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, CustomResourceExt, Resource};
use mainstay::manager::Manager;
use mainstay::program::Program;
use mainstay::reconcile::BoxError;
use mainstay::testing::{Condition, RightsTest, eventually};
use mainstay_tests::TestCluster;
use mainstay_tests::wait::PATIENCE;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The objects of one kind in the namespace of a test.
struct Objects<K>(Api<K>);

/// Defines the kind `K` and runs its operator in the namespace of this test while `scenarios` runs. Fails if
/// the operator lacks a right, or has one that it never used.
async fn run<K: CustomResourceExt>(
    cluster: &TestCluster,
    program: &Program,
    setup: impl FnOnce(&Manager) -> Result<(), BoxError>,
    scenarios: impl AsyncFnOnce() -> Result<(), BoxError>,
) {
    let definition = json!(K::crd());
    cluster.define(&definition).await;
    let test = RightsTest::new(cluster.connection().await).schema(program.schema());
    let test = test.namespaces([cluster.namespace()]).run(setup, async |_| scenarios().await);
    test.await.unwrap_or_else(|error| panic!("{error}"));
    cluster.undefine(&definition).await;
}

/// Waits until an Event with this reason is recorded for the object of this name.
async fn recorded(cluster: &TestCluster, name: &str, reason: &str) -> Result<(), BoxError> {
    let events: Api<Event> = cluster.api();
    let is_it = |event: &Event| {
        let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
        event.reason.as_deref() == Some(reason) && regarding == Some(name)
    };
    let found = async || {
        let list = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        if list.items.iter().any(is_it) { Ok(()) } else { Err(format!("no Event {reason} of {name}")) }
    };
    Ok(eventually(Duration::from_secs(30), found).await?)
}

/// Returns status and reason of a condition.
fn condition<'a>(object: &'a Value, type_: &str) -> Option<(&'a str, &'a str)> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    let found = conditions.find(|condition| condition["type"] == type_)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?))
}

// === impl Objects ===

impl<K> Objects<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    fn of(cluster: &TestCluster) -> Self {
        Self(cluster.api())
    }

    /// Creates an object, given as JSON.
    async fn create(&self, object: Value) -> Result<K, BoxError> {
        Ok(self.0.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Returns the message with which the server refuses to create an object.
    async fn refused(&self, object: Value) -> String {
        match self.create(object).await {
            Ok(created) => panic!("created: {created:?}"),
            Err(error) => error.to_string(),
        }
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<K, BoxError> {
        Ok(self.0.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Patches the status of an object.
    async fn patch_status(&self, name: &str, status: Value) -> Result<K, BoxError> {
        let patch = Patch::Merge(json!({ "status": status }));
        Ok(self.0.patch_status(name, &PatchParams::default(), &patch).await?)
    }

    /// Waits until the object of this name, as JSON, is as `holds` wants, and returns it.
    async fn until(
        &self,
        name: &str,
        expected: &str,
        holds: impl Fn(&Value) -> bool + Send + Sync + 'static,
    ) -> Result<Value, BoxError> {
        let found = Condition::new(expected, move |object: &K| holds(&json!(object)));
        Ok(json!(found.wait(&self.0, name).await?))
    }

    /// Deletes an object and waits until it is gone.
    async fn delete(&self, name: &str) -> Result<(), BoxError> {
        self.0.delete(name, &DeleteParams::background()).await?;
        self.gone(name).await
    }

    /// Waits until an object is gone, as long as the garbage collector of the real server may take to notice
    /// a new kind of owners.
    async fn gone(&self, name: &str) -> Result<(), BoxError> {
        Ok(Condition::deleted().within(PATIENCE).wait(&self.0, name).await.map(drop)?)
    }
}
