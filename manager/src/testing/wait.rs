//! Waits of tests on a cluster: bounded in time, with an error that shows the last result.

use std::fmt;
use std::time::Duration;

use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

/// Time between two checks of a wait in a test.
const PERIOD: Duration = Duration::from_millis(50);

/// Longest time that a [`Condition`] waits, unless [`Condition::within`] sets another limit.
const PATIENCE: Duration = Duration::from_secs(30);

/// The error of a test's wait that has reached its time limit.
#[derive(Clone, Debug, thiserror::Error)]
#[error("waited {limit:?}; last result: {last}")]
pub struct NotYet {
    /// The time limit of the wait.
    pub limit: Duration,
    /// The last error of the repeated check.
    pub last: String,
}

/// Calls `check` every 50 ms until it returns `Ok`, for at most `limit`.
///
/// ```
/// use std::time::Duration;
/// use mainstay::testing::eventually;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut count = 0;
/// let counted = eventually(Duration::from_secs(1), async || {
///     count += 1;
///     if count < 3 { Err(format!("counted to {count}")) } else { Ok(count) }
/// });
/// assert_eq!(counted.await.unwrap(), 3);
///
/// let never = eventually(Duration::from_millis(60), async || Err::<(), _>("no Deployment"));
/// assert_eq!(never.await.unwrap_err().to_string(), "waited 60ms; last result: no Deployment");
/// # }
/// ```
///
/// # Errors
/// Fails if the limit is reached. The error shows the last error of `check`.
pub async fn eventually<T, E: fmt::Display>(
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, NotYet> {
    let deadline = Instant::now() + limit;
    let mut last = "the first check has not returned".to_owned();
    while let Ok(result) = timeout_at(deadline, check()).await {
        match result {
            Ok(value) => return Ok(value),
            Err(error) => last = error.to_string(),
        }
        if Instant::now() + PERIOD > deadline {
            break;
        }
        sleep(PERIOD).await;
    }
    Err(NotYet { limit, last })
}

/// A condition on an object that a test waits for, with a time limit.
///
/// ```no_run
/// # use k8s_openapi::api::apps::v1::Deployment;
/// use mainstay::testing::Condition;
///
/// # async fn check(deployments: kube::Api<Deployment>) -> Result<(), mainstay::testing::NotYet> {
/// Condition::is_true("Available").wait(&deployments, "web").await?;
/// Condition::deleted().wait(&deployments, "old").await?;
/// # Ok(())
/// # }
/// ```
#[derive(derive_more::Debug)]
#[debug("Condition({:?})", self.description)]
pub struct Condition<K> {
    description: String,
    holds: Box<Holds<K>>,
    limit: Duration,
}

type Holds<K> = dyn Fn(Option<&K>) -> bool + Send + Sync;

// === impl Condition ===

impl<K> Condition<K> {
    /// Makes a condition: the object exists and `holds` returns true for it. The error shows `description`,
    /// such as `has two replicas`.
    #[must_use]
    pub fn new(description: &str, holds: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        Self::of(description.to_owned(), move |object| object.is_some_and(&holds))
    }

    /// Makes the condition that the object exists.
    #[must_use]
    pub fn exists() -> Self {
        Self::new("exists", |_| true)
    }

    /// Makes the condition that no object has the name.
    #[must_use]
    pub fn deleted() -> Self {
        Self::of("is deleted".to_owned(), |object| object.is_none())
    }

    /// Sets the longest time to wait for the condition, instead of 30 s.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    fn of(description: String, holds: impl Fn(Option<&K>) -> bool + Send + Sync + 'static) -> Self {
        Self { description, holds: Box::new(holds), limit: PATIENCE }
    }
}

impl<K: Serialize> Condition<K> {
    /// Makes the condition that the entry of this type in the object's `status.conditions` has status `True`.
    #[must_use]
    pub fn is_true(type_: &str) -> Self {
        let wanted = type_.to_owned();
        Self::new(&format!("has condition {type_}"), move |object| {
            let conditions = serde_json::to_value(object).unwrap_or_default();
            let conditions = conditions.pointer("/status/conditions").and_then(Value::as_array);
            conditions
                .is_some_and(|all| all.iter().any(|one| one["type"] == *wanted && one["status"] == "True"))
        })
    }
}

impl<K: Resource + Clone + fmt::Debug + DeserializeOwned + Serialize> Condition<K> {
    /// Reads the object every 50 ms until the condition holds, and returns it; `None` if it does not exist
    /// then. A read that fails is repeated.
    ///
    /// # Errors
    /// Fails if the limit is reached. The error shows the object as it was read last, or why it could not be
    /// read.
    pub async fn wait(&self, api: &Api<K>, name: &str) -> Result<Option<K>, NotYet> {
        eventually(self.limit, async || {
            let read = api.get_opt(name).await.map_err(|error| format!("{name} cannot be read: {error}"))?;
            if (self.holds)(read.as_ref()) {
                return Ok(read);
            }
            let shown = read.map(|mut object| {
                object.managed_fields_mut().clear();
                serde_json::to_string(&object).unwrap_or_else(|_| format!("{object:?}"))
            });
            let shown = shown.unwrap_or_else(|| "no such object".to_owned());
            Err(format!("expected that {name} {}; found {shown}", self.description))
        })
        .await
    }
}
