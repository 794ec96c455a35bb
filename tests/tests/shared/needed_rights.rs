//! Each program needs every right that it declares, and no other; the check at the start names a missing one
//! with its line of code.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Config, CustomResourceExt as _, Resource, ResourceExt as _};
use mainstay::client::infer;
use mainstay::config::{ConfigSchema, Overrides};
use mainstay::manager::{Manager, ManagerOptions};
use mainstay::rbac::{Access, Rights, Rule};
use mainstay::reconcile::BoxError;
use mainstay::testing::{Condition, RightsError, RightsTest, eventually};
use mainstay_api::WaitDeployment;
use mainstay_controllers::{Sockets, config_schema};
use mainstay_tests::TestCluster;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::manager::configuration_of;
use mainstay_tests::report::figure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shop::api::shop::{Shop, ShopSpec};
use tokio::time::Instant;

#[path = "../../../controllers/examples/copier.rs"]
#[expect(dead_code, reason = "its main is not called here")]
mod copier;
#[path = "../../../controllers/examples/directory.rs"]
#[expect(dead_code, reason = "its main is not called here")]
mod directory;
#[path = "../../../controllers/examples/greeter.rs"]
#[expect(dead_code, reason = "its main is not called here")]
mod greeter;

/// The name of the ServiceAccount from which rights are taken away.
const ACCOUNT: &str = "lacks-some";

type Setup = fn(&Manager) -> Result<(), BoxError>;

/// Runs a manager with and without each of its rights while `exercise` uses every feature of it. `clean`
/// deletes what the round before has left.
async fn each_right_is_needed(
    cluster: &TestCluster,
    (schema, setup): (&ConfigSchema, Setup),
    clean: impl AsyncFn(&TestCluster) -> Result<(), BoxError>,
    exercise: impl AsyncFn(&TestCluster, &Manager) -> Result<(), BoxError>,
) {
    let test = async || {
        clean(cluster).await.expect("the objects of the round before are deleted");
        RightsTest::new(cluster.connection().await).schema(schema)
    };
    let mut ordinary = Vec::new();
    let all = test().await.run(setup, async |manager| {
        ordinary = manager.rights().ordinary();
        exercise(cluster, manager).await
    });
    let difference = all.await.err().map(|error| match error.downcast::<RightsError>() {
        Ok(difference) => *difference,
        Err(error) => panic!("{error}"),
    });
    figure("rights.unused", count(difference.as_ref().map_or(0, |error| error.unused.len())), "count");
    assert!(difference.is_none(), "{}", difference.map(|error| error.to_string()).unwrap_or_default());
    assert!(ordinary.len() > 1, "{ordinary:?}");

    for right in &ordinary {
        let without =
            test().await.without(right).run(setup, async |manager| exercise(cluster, manager).await).await;
        let error = without.expect_err(right);
        let error = error.downcast_ref::<RightsError>().unwrap_or_else(|| panic!("{right}: {error}"));
        let (verb, place) = right.split_once(' ').expect("a verb");
        let (resource, namespace) = place.split_once(" in ").unwrap_or((place, ""));
        let is_it = |missing: &String| {
            missing.starts_with(&format!("{verb} {resource}")) && missing.ends_with(namespace)
        };
        assert!(error.missing.iter().all(is_it) && !error.missing.is_empty(), "{right}: {error}");
    }

    let more = |manager: &Manager| {
        setup(manager)?;
        manager.needs(Access::to::<Namespace>(["deletecollection"]).because("on purpose"));
        Ok(())
    };
    let line = line!() - 3;
    let error = test()
        .await
        .run(more, async |manager| exercise(cluster, manager).await)
        .await
        .expect_err("one too many");
    let unused = format!("deletecollection namespaces: on purpose ({}:{line})", file!());
    let expected = format!("rights that the test never used:\n  {unused}\n");
    assert_eq!(error.to_string(), expected);
}

#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn count(items: usize) -> f64 {
    items as f64
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// Deletes an object if there is one, without its finalizers, and waits until it is gone.
async fn forget<K>(api: &Api<K>, name: &str) -> Result<(), BoxError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match api.patch(name, &PatchParams::default(), &free).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        freed => drop(freed?),
    }
    match api.delete(name, &DeleteParams::background()).await {
        // The garbage collector has deleted it.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        deleted => drop(deleted?),
    }
    Ok(Condition::deleted().wait(api, name).await.map(drop)?)
}

/// Creates a namespace that a program names in its code, if it is not there, and deletes it after the test.
async fn make_namespace(cluster: &TestCluster, name: &str) {
    let namespace = object::<Namespace>(json!({"metadata": {"name": name}}));
    let all: Api<Namespace> = Api::all(cluster.client());
    all.create(&PostParams::default(), &namespace).await.expect("a namespace of this name is left behind");
    cluster.leave_namespace(name);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_greeter_needs_each_right_that_it_declares() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let clean = async |_: &TestCluster| Ok(());
    each_right_is_needed(&cluster, (&config_schema(), greeter::setup), clean, async |_, manager| {
        let listed = async || {
            let answer = manager.checks().answer("/readyz/cache-ConfigMap", None);
            if answer.status == 200 { Ok(()) } else { Err(answer.body) }
        };
        Ok(eventually(Duration::from_secs(30), listed).await?)
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copier_needs_each_right_that_it_declares() {
    let Some(cluster) = TestCluster::shared().await else { return };
    for namespace in ["shop", "attic"] {
        make_namespace(&cluster, namespace).await;
    }
    let [shop, attic] = ["shop", "attic"].map(|name| Api::<ConfigMap>::namespaced(cluster.client(), name));
    let clean = async |_: &TestCluster| {
        forget(&shop, "prices").await?;
        forget(&attic, "shop-prices").await
    };
    each_right_is_needed(&cluster, (&config_schema(), copier::setup), clean, async |_, _| {
        let map = object(json!({"metadata": {"name": "prices"}, "data": {"tea": "3"}}));
        shop.create(&PostParams::default(), &map).await?;
        Condition::exists().wait(&attic, "shop-prices").await?;
        shop.delete("prices", &DeleteParams::default()).await?;
        Condition::deleted().wait(&shop, "prices").await?;
        Ok(Condition::deleted().wait(&attic, "shop-prices").await.map(drop)?)
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_needs_each_right_that_it_declares() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (services, maps) = (cluster.api::<Service>(), cluster.api::<ConfigMap>());
    let clean = async |_: &TestCluster| {
        forget(&services, "web").await?;
        forget(&maps, "directory").await?;
        forget(&maps, "web-card").await
    };
    each_right_is_needed(&cluster, (&config_schema(), directory::setup), clean, async |_, _| {
        let labels = json!({"listed": "yes"});
        let service =
            json!({"metadata": {"name": "web", "labels": labels}, "spec": {"ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &object(service)).await?;
        Condition::exists().wait(&maps, "web-card").await?;
        Condition::new("lists web", |map: &ConfigMap| map.data.iter().any(|data| data.contains_key("web")))
            .wait(&maps, "directory")
            .await?;
        services.delete("web", &DeleteParams::default()).await?;
        Ok(Condition::deleted().wait(&services, "web").await.map(drop)?)
    })
    .await;
    cluster.stop().await;
}

/// The project that `mainstay new shop` makes.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_project_needs_each_right_that_it_declares() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let definition = definitions.create(&PostParams::default(), &Shop::crd()).await.expect("created");
    let name = definition.name_any();
    Condition::is_true("Established").wait(&definitions, &name).await.expect("established");
    let (shops, deployments) = (cluster.api::<Shop>(), cluster.api::<Deployment>());
    let clean = async |_: &TestCluster| {
        forget(&shops, "hello").await?;
        forget(&deployments, "hello").await
    };
    let program = shop::program();
    each_right_is_needed(&cluster, (program.schema(), shop::setup), clean, async |_, _| {
        let spec = ShopSpec { image: "nginx:1.29".to_owned(), replicas: 1 };
        shops.create(&PostParams::default(), &Shop::new("hello", spec)).await?;
        Ok(Condition::is_true("Ready").wait(&shops, "hello").await.map(drop)?)
    })
    .await;
    definitions.delete(&name, &DeleteParams::default()).await.expect("deleted");
    cluster.stop().await;
}

/// Lets the manager use every right: a WaitDeployment with a gate is made ready, and another one takes over a
/// Deployment.
async fn exercise_wait_deployments(cluster: &TestCluster) -> Result<(), BoxError> {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "condition": "Complete"});
    let wait_for = json!({"dependencies": [{"name": "schema", "resource": job, "optional": true}]});
    let spec = json!({"spec": {"replicas": 1, "waitFor": wait_for}});
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let web = wait_deployment("web", &spec);
    objects.create(&PostParams::default(), &web).await?;
    let settled = |name| {
        let has = move |object: &WaitDeployment| object.condition(name).is_some();
        Condition::new("has the condition", has)
    };
    Condition::exists().wait(&deployments, "web").await?;
    settled("Ready").wait(&objects, "web").await?;
    // A Deployment that was there before is read with its managedFields.
    let old = object::<Deployment>(json!({
        "metadata": {"name": "old"},
        "spec": {
            "selector": {"matchLabels": {"app": "old"}},
            "template": {
                "metadata": {"labels": {"app": "old"}},
                "spec": {"containers": [{"name": "main", "image": "example.invalid/main:1"}]},
            },
        },
    }));
    deployments.create(&PostParams::default(), &old).await?;
    objects.create(&PostParams::default(), &wait_deployment("old", &spec)).await?;
    let owned = |old: &Deployment| old.metadata.owner_references.iter().flatten().count() == 1;
    Ok(Condition::new("is owned", owned).wait(&deployments, "old").await.map(drop)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manager_of_waitdeployments_needs_each_right_that_it_declares() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let setup: Setup = |manager| Ok(mainstay_controllers::register(manager, Sockets::default())?);
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let clean = async |_: &TestCluster| {
        for name in ["web", "old"] {
            forget(&objects, name).await?;
            forget(&deployments, name).await?;
        }
        Ok(())
    };
    let subject = (&config_schema(), setup);
    each_right_is_needed(&cluster, subject, clean, async |cluster, _| {
        exercise_wait_deployments(cluster).await
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_of_one_namespace_reads_and_writes_objects_in_no_other_one() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let setup: Setup = |manager| Ok(mainstay_controllers::register(manager, Sockets::default())?);
    let test = RightsTest::new(cluster.connection().await)
        .schema(&config_schema())
        .namespaces([cluster.namespace()])
        .run(setup, async |manager| {
            let rights = manager.rights();
            let wide = rights.rules().iter().filter(|rule| rule.namespace.is_none());
            let wide: Vec<String> = wide.map(|rule| rule.target.to_string()).collect();
            assert_eq!(wide, ["namespaces", "subjectaccessreviews of authorization.k8s.io"]);
            exercise_wait_deployments(&cluster).await
        });
    test.await.expect("every right is used, and none is missing");
    cluster.stop().await;
}

/// Returns the documents of a ServiceAccount that has these rules in the whole cluster.
fn documents(rules: &[PolicyRule]) -> Vec<Value> {
    let (metadata, group) = (json!({"name": ACCOUNT}), "rbac.authorization.k8s.io");
    let subject = json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "replaced"});
    vec![
        json!({"kind": "ServiceAccount", "metadata": metadata}),
        json!({"kind": "ClusterRole", "metadata": metadata, "rules": rules}),
        json!({
            "kind": "ClusterRoleBinding", "metadata": metadata, "subjects": [subject],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ACCOUNT},
        }),
    ]
}

/// Takes each right away in turn, and compares what the check at the start reports.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_at_the_start_names_each_missing_right_and_its_line_of_code() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let setups: [Setup; 4] = [greeter::setup, copier::setup, directory::setup, |manager| {
        Ok(mainstay_controllers::register(manager, Sockets::default())?)
    }];
    let administrator = cluster.connection().await;
    let rights = setups.map(|setup| wired(&cluster, administrator.clone(), setup).rights());
    let all: Vec<PolicyRule> = rights.iter().flat_map(Rights::rules).map(Rule::policy).collect();
    let identity = cluster.install(&documents(&all)).await;
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let role = format!("{ACCOUNT}-{}", cluster.namespace());
    let connection = infer(Some(&identity.kubeconfig), None).await.expect("a connection");
    for (setup, rights) in setups.into_iter().zip(rights) {
        let manager = wired(&cluster, connection.clone(), setup);
        let began = Instant::now();
        let missing = manager.preflight().await.expect("reviewed");
        figure("preflight.ms", began.elapsed().as_secs_f64() * 1e3, "ms");
        figure("rights.rules", count(rights.rules().len()), "count");
        assert_eq!(missing.to_string(), "", "every right is granted");
        for rule in rights.rules() {
            let rest: Vec<PolicyRule> =
                all.iter().filter(|policy| !grants(policy, &rule.policy())).cloned().collect();
            let patch = Patch::Merge(json!({"rules": rest}));
            roles.patch(&role, &PatchParams::default(), &patch).await.expect("the rule is taken away");
            // The same resource may be needed in several namespaces.
            let expected: Vec<&Rule> =
                rights.rules().iter().filter(|one| grants(&one.policy(), &rule.policy())).collect();
            eventually(Duration::from_secs(30), async || {
                let missing = manager.preflight().await.map_err(|error| error.to_string())?;
                let found: Vec<&Rule> = missing.rules().iter().collect();
                if found == expected { Ok(()) } else { Err(format!("without {rule}: {missing}")) }
            })
            .await
            .expect("exactly this rule is reported");
            let line = expected[0].to_string();
            assert!(line.contains(".rs:") || line.contains("leaderElection.enabled"), "{line}");
        }
        let patch = Patch::Merge(json!({"rules": all}));
        roles.patch(&role, &PatchParams::default(), &patch).await.expect("all rules are back");
        eventually(Duration::from_secs(30), async || {
            let missing = manager.preflight().await.map_err(|error| error.to_string())?;
            if missing.is_empty() { Ok(()) } else { Err(missing.to_string()) }
        })
        .await
        .expect("all rights are back");
    }
    cluster.stop().await;
}

/// Makes a manager that is never run.
fn wired(cluster: &TestCluster, connection: Config, setup: Setup) -> Manager {
    let configuration = configuration_of(cluster, &json!({})).to_string();
    let loaded = config_schema().parse(&configuration, "test", &Overrides::default()).expect("valid");
    let options = ManagerOptions { signals: false, ..ManagerOptions::replica(ACCOUNT) };
    let manager = Manager::new(options, loaded, connection).expect("a manager");
    setup(&manager).expect("set up");
    manager
}

/// Returns whether a rule is about the same resource as the other one.
fn grants(policy: &PolicyRule, other: &PolicyRule) -> bool {
    policy.api_groups == other.api_groups && policy.resources == other.resources
}
