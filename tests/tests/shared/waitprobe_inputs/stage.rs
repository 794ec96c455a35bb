//! A manager, objects with a `waitProbe` in its namespace, and checks of the result of each.

use std::net::{Ipv6Addr, SocketAddr};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::process::get;
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};

/// The expected result of an object.
pub(super) enum Expected {
    /// Its prerequisite listens, so its Deployment is created.
    Opens,
    /// Its status has this reason, and a message with all these texts.
    Refused(&'static str, Vec<String>),
    /// The API server refuses it, and names this field.
    Inadmissible(&'static str),
}

/// One manager, and the raw objects of its namespace, which need not decode.
pub(super) struct Stage {
    pub(super) cluster: TestCluster,
    pub(super) manager: LocalManager,
    pub(super) objects: Api<DynamicObject>,
}

/// A listener on both loopback addresses, at one port.
pub(super) struct BothFamilies {
    v4: Prerequisite,
    v6: Prerequisite,
}

// === impl Stage ===

impl Stage {
    pub(super) async fn set_up(changes: &Value) -> Option<Self> {
        let cluster = TestCluster::shared().await?;
        let identity = cluster.install_base().await;
        let manager = LocalManager::start(&cluster, &identity, changes).await;
        let resource = ApiResource::erase::<WaitDeployment>(&());
        let objects = Api::namespaced_with(cluster.client(), cluster.namespace(), &resource);
        Some(Self { cluster, manager, objects })
    }

    pub(super) async fn create(&self, name: &str, wait_probe: &Value) -> Result<DynamicObject, kube::Error> {
        let object = wait_deployment(name, &json!({"waitProbe": wait_probe, "spec": {"replicas": 0}}));
        self.objects.create(&PostParams::default(), &object).await
    }

    pub(super) async fn edit(&self, name: &str, wait_probe: &Value) {
        let patch = Patch::Merge(json!({"waitProbe": wait_probe}));
        self.objects.patch(name, &PatchParams::default(), &patch).await.expect("edited");
    }

    pub(super) async fn opens(&self, name: &str) {
        wait::until(&self.cluster.api::<Deployment>(), name, &format!("Deployment {name}"), |_| true).await;
    }

    /// Waits until the condition `Ready` of the current generation has this reason, and returns its message.
    pub(super) async fn message_for(&self, name: &str, reason: &str) -> String {
        let state = format!("{name} to have the reason {reason}");
        let object = wait::until(&self.objects, name, &state, |object| {
            let seen = object.data["status"]["observedGeneration"].as_i64();
            seen == object.metadata.generation && ready(object)["reason"] == reason
        });
        let object = object.await;
        ready(&object)["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for the first result of its prerequisite.
    pub(super) async fn is_probed(&self, name: &str) {
        wait::until(&self.objects, name, &format!("{name} to be probed"), |object| {
            ready(object)["status"] == "False" && ready(object)["reason"] == "WaitingForDependencies"
        })
        .await;
    }

    /// Creates the objects, then checks the result of each.
    pub(super) async fn check(&self, cases: Vec<(Value, Expected)>) {
        let deployments = self.cluster.api::<Deployment>();
        let mut to_follow = Vec::new();
        for (at, (wait_probe, expected)) in cases.into_iter().enumerate() {
            let name = format!("case-{at}");
            match (self.create(&name, &wait_probe).await, expected) {
                (Err(kube::Error::Api(refusal)), Expected::Inadmissible(field)) => {
                    assert_eq!(refusal.code, 422, "{wait_probe}: {refusal:?}");
                    assert!(refusal.message.contains(field), "{wait_probe}: {}", refusal.message);
                }
                (Ok(_), Expected::Inadmissible(_)) => panic!("the API server admits {wait_probe}"),
                (Ok(_), expected) => to_follow.push((name, wait_probe, expected)),
                (Err(error), _) => panic!("the API server refuses {wait_probe}: {error}"),
            }
        }
        for (name, wait_probe, expected) in to_follow {
            if let Expected::Refused(reason, parts) = expected {
                let message = self.message_for(&name, reason).await;
                for part in parts {
                    assert!(message.contains(&part), "{wait_probe}: expected {part:?} in {message:?}");
                }
                let deployment = deployments.get_opt(&name).await.expect("read");
                assert!(deployment.is_none(), "{wait_probe}: refused, yet there is a Deployment");
            } else {
                self.opens(&name).await;
            }
        }
    }

    /// Asserts that the manager still reconciles, and stops in order.
    pub(super) async fn still_works(self) {
        self.create("after-all", &Value::Null).await.expect("created");
        self.opens("after-all").await;
        assert_eq!(get(self.manager.probes(), "/livez").await.0, 200);
        self.manager.stop().await.expect("stopped in order");
    }
}

// === impl BothFamilies ===

impl BothFamilies {
    pub(super) fn open() -> Self {
        // The port is free for IPv4 and may be taken for IPv6 by a concurrent test.
        let mut v4 = Prerequisite::closed();
        let mut v6 =
            Prerequisite::closed_at(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), v4.address().port()));
        v4.come_up();
        v6.come_up();
        Self { v4, v6 }
    }

    pub(super) fn port(&self) -> u16 {
        self.v4.address().port()
    }

    pub(super) fn connections(&self) -> usize {
        self.v4.connections() + self.v6.connections()
    }
}

// === functions ===

pub(super) fn ready(object: &DynamicObject) -> &Value {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready").unwrap_or(&Value::Null)
}

/// Expects a refusal by the gate, which names the field, quotes the value and lists the accepted values.
pub(super) fn invalid(field: &str, value: &str, expected: &str) -> Expected {
    Expected::Refused("InvalidProbe", vec![format!("waitProbe.{field} {value}: "), expected.to_owned()])
}

pub(super) fn denied(by: &str) -> Expected {
    Expected::Refused("PolicyDenied", vec![by.to_owned()])
}
