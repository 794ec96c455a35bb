//! Creates, edits and deletes WaitDeployments and their Deployments, and ignores errors of the API server.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use mainstay_api::WaitDeployment;
use mainstay_tests::TestCluster;
use mainstay_tests::fixtures::{lay_over, tcp, wait_deployment, with_image};
use mainstay_tests::sockets::Prerequisite;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::schedule::{Change, Edit, OBJECTS, PREREQUISITES, Propagation};

/// Timeout of an edit: an API server that is starting accepts connections before it answers.
const EDIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two attempts of an edit that must succeed.
const RETRY_PERIOD: Duration = Duration::from_millis(200);

pub(super) struct Churn {
    objects: Api<WaitDeployment>,
    deployments: Api<Deployment>,
    /// The addresses that the objects wait for, each with whether it is up.
    prerequisites: Vec<(Prerequisite, bool)>,
    /// Number of requests that succeeded.
    pub(super) granted: usize,
}

impl Churn {
    /// Creates all objects.
    pub(super) async fn begin(cluster: &TestCluster) -> Self {
        let prerequisites = (0..PREREQUISITES).map(|_| (Prerequisite::open(), true)).collect();
        let mut churn =
            Self { objects: cluster.api(), deployments: cluster.api(), prerequisites, granted: 0 };
        churn.restore().await;
        churn
    }

    /// Makes these edits, each at its time or later if the server was slow. Then brings every address up
    /// again.
    pub(super) async fn run(&mut self, edits: &[Edit]) {
        let began = Instant::now();
        for edit in edits {
            sleep_until(began + edit.at).await;
            self.change(edit.object, edit.change).await;
        }
        for (prerequisite, answers) in &mut self.prerequisites {
            if !std::mem::replace(answers, true) {
                prerequisite.come_up();
            }
        }
    }

    /// Creates every missing object and resets the spec of all objects to the first one.
    pub(super) async fn restore(&mut self) {
        for number in 0..OBJECTS {
            let object = self.object(number);
            let change = Patch::Apply(&object);
            let parameters = PatchParams::apply("chaos").force();
            while let Err(error) = self.objects.patch(&name(number), &parameters, &change).await {
                assert!(
                    !matches!(&error, kube::Error::Api(status) if status.code < 429),
                    "{}: {error}",
                    name(number)
                );
                sleep(RETRY_PERIOD).await;
            }
        }
    }

    async fn change(&mut self, number: usize, change: Change) {
        let name = &name(number);
        match change {
            Change::Create => self.create(number).await,
            Change::Replicas(replicas) => self.edit(name, json!({"spec": {"replicas": replicas}})).await,
            Change::Image(image) => self.edit(name, with_image(image)).await,
            Change::WaitFor(which) => {
                self.edit(name, json!({"spec": {"waitFor": self.wait_for(which)}})).await;
            }
            Change::Delete(propagation) => self.delete(name, propagation).await,
            Change::Again(propagation) => {
                self.delete(name, propagation).await;
                self.create(number).await;
            }
            Change::DeleteDeployment => {
                let parameters = DeleteParams::background();
                self.granted += granted(self.deployments.delete(name, &parameters)).await;
            }
            Change::ScaleDeployment(replicas) => {
                let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                let parameters = PatchParams::default();
                self.granted += granted(self.deployments.patch(name, &parameters, &patch)).await;
            }
            Change::Toggle(which) => {
                let (prerequisite, answers) = &mut self.prerequisites[which];
                *answers = !*answers;
                if *answers {
                    prerequisite.come_up();
                } else {
                    prerequisite.go_down().await;
                }
            }
        }
    }

    async fn create(&mut self, number: usize) {
        let object = self.object(number);
        self.granted += granted(self.objects.create(&PostParams::default(), &object)).await;
    }

    async fn edit(&mut self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.granted += granted(self.objects.patch(name, &PatchParams::default(), &patch)).await;
    }

    async fn delete(&mut self, name: &str, propagation: Propagation) {
        let policy = match propagation {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
            Propagation::Orphan => PropagationPolicy::Orphan,
        };
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.granted += granted(self.objects.delete(name, &parameters)).await;
    }

    /// Returns the first version of an object. Only one in eight has a Pod, because this is a test of writes.
    /// Every second one also gates updates.
    fn object(&self, number: usize) -> WaitDeployment {
        let mut wait_for = self.wait_for(number % PREREQUISITES);
        if number.is_multiple_of(2) {
            lay_over(&mut wait_for, &json!({"gates": ["Create", "Update"]}));
        }
        let replicas = usize::from(number.is_multiple_of(8));
        wait_deployment(&name(number), &json!({"spec": {"replicas": replicas, "waitFor": wait_for}}))
    }

    fn wait_for(&self, which: usize) -> Value {
        json!({"dependencies": [tcp("needed", self.prerequisites[which].0.address())]})
    }
}

fn name(number: usize) -> String {
    format!("chaos-{number}")
}

/// Returns 1 if the request succeeds. Refusals and timeouts are expected.
async fn granted<T>(request: impl Future<Output = kube::Result<T>>) -> usize {
    usize::from(matches!(timeout(EDIT_TIMEOUT, request).await, Ok(Ok(_))))
}
