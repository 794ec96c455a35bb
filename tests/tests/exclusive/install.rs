//! Each form in `deploy` installs; managers that run exactly as its manifests state reconcile; an update and
//! its roll-back keep all objects; an uninstall leaves what `docs/install.md` says.
//!
//! No kubelet runs Pods in a test, so the test reads the manifests back from the API server and starts the
//! processes itself: with the token of their account, the files of their configuration, their arguments and
//! ports, one loopback address for each Pod.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::TestCluster;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::process::{ManagerProcess, get, memory};
use mainstay_tests::wait::{has_reason, until, until_gone, until_so};
use serde_json::json;
use tokio::process::Command;

/// The namespace of the manager in all manifests.
const SYSTEM: &str = "mainstay-system";
/// The name of the objects of the manager.
const NAME: &str = "mainstay";
/// A namespace of users.
const SHOP: &str = "shop";

/// A process that runs as one Pod of the installed Deployment would.
pub(super) struct Replica {
    pub(super) process: ManagerProcess,
    probes: SocketAddr,
    /// The limit of memory in megabytes.
    limit: f64,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs kubectl without a namespace of the test.
async fn kubectl(cluster: &TestCluster, arguments: &[&str]) -> String {
    cluster.kubectl(&[&["--namespace="], arguments].concat()).await
}

async fn served(cluster: &TestCluster) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    until(&definitions, "waitdeployments.apps.mainstay.dev", "it is served", |definition| {
        let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True")
    })
    .await;
}

fn objects(cluster: &TestCluster) -> Api<WaitDeployment> {
    Api::namespaced(cluster.client(), SHOP)
}

/// Creates a WaitDeployment without required dependencies and waits until it is available.
async fn reconciled(cluster: &TestCluster, name: &str) {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "condition": "Complete"});
    let wait_for = json!({"dependencies": [{"name": "schema", "resource": job, "optional": true}]});
    let changes = json!({"spec": {"replicas": 1, "waitFor": wait_for}});
    let object = wait_deployment(name, &changes);
    objects(cluster).create(&PostParams::default(), &object).await.expect("created");
    until(&objects(cluster), name, "it is available", has_reason("Ready", "Available")).await;
}

/// Returns the uid of each WaitDeployment and Deployment of the users.
async fn uids(cluster: &TestCluster) -> Vec<Option<String>> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), SHOP);
    let everything = ListParams::default();
    let objects = objects(cluster).list(&everything).await.expect("listed").items;
    let deployments = deployments.list(&everything).await.expect("listed").items;
    let uids = objects.into_iter().map(|object| object.metadata.uid);
    uids.chain(deployments.into_iter().map(|deployment| deployment.metadata.uid)).collect()
}

// === impl Replica ===

impl Replica {
    /// Starts a process as Pod `number` of the installed Deployment.
    async fn start(cluster: &TestCluster, number: u8) -> Self {
        Self::start_of(cluster, NAME, number, &[]).await
    }

    /// Starts a process as Pod `number` of the installed Deployment of this name, with these variables.
    pub(super) async fn start_of(
        cluster: &TestCluster,
        name: &str,
        number: u8,
        environment: &[(&str, &str)],
    ) -> Self {
        let system = format!("{name}-system");
        let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &system);
        let deployment = deployments.get(name).await.expect("installed");
        let pod = deployment.spec.template.spec.expect("a Pod");
        let account = pod.service_account_name.clone().expect("a ServiceAccount");
        let container: &Container = pod.containers.first().expect("a container");
        let mount = container.volume_mounts.iter().flatten().next().expect("a mount").mount_path.clone();
        let map =
            pod.volumes.iter().flatten().find_map(|volume| volume.config_map.as_ref()).expect("a ConfigMap");
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &system);
        let map = maps.get(&map.name).await.expect("installed");
        let folder = cluster.scratch(&format!("config-{number}"));
        std::fs::create_dir_all(&folder).expect("made");
        for (file, text) in map.data.iter().flatten() {
            std::fs::write(folder.join(file), text).expect("written");
        }
        let port = |name: &str| {
            let ports = container.ports.iter().flatten();
            let port =
                ports.filter(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
            u16::try_from(port.into_iter().next().expect("a port")).expect("a port")
        };
        let at = |name| SocketAddr::from(([127, 0, 2, number], port(name)));
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
        let arguments = container.args.iter().flatten();
        command.args(arguments.map(|argument| argument.replace(&mount, &folder.display().to_string())));
        command.arg("--kubeconfig").arg(cluster.kubeconfig_in(&system, &account).await);
        // A kubelet gives each Pod its namespace and an address of its own.
        command.arg(format!("--leader-election-namespace={system}"));
        command.arg(format!("--health-probe-bind-address={}", at("probes")));
        command.arg(format!("--metrics-bind-address={}", at("metrics")));
        command.arg("--inspect-bind-address=");
        command.envs(environment.iter().copied());
        for variable in container.env.iter().flatten() {
            let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
            let value = match &*field.expect("a field of the Pod").field_path {
                "metadata.name" => format!("{name}-{number}"),
                "metadata.namespace" => system.clone(),
                path => format!("{path}-{number}"),
            };
            command.env(&variable.name, value);
        }
        let limit =
            container.resources.as_ref().and_then(|resources| resources.limits.as_ref()?.get("memory"));
        let limit =
            limit.and_then(|limit| limit.0.strip_suffix("Mi")?.parse::<f64>().ok()).expect("a limit in Mi");
        let replica =
            Self { process: ManagerProcess::spawn(command), probes: at("probes"), limit: limit * 1.048_576 };
        for probe in [&container.readiness_probe, &container.liveness_probe] {
            let path =
                probe.as_ref().and_then(|probe| probe.http_get.as_ref()?.path.clone()).expect("a path");
            until_so(&format!("{path} of replica {number}"), async || replica.answers(&path).await).await;
        }
        replica
    }

    async fn answers(&self, path: &str) -> bool {
        // Nothing listens before the process has come that far.
        tokio::net::TcpStream::connect(self.probes).await.is_ok() && get(self.probes, path).await.0 == 200
    }

    /// Stops the process in order, within its limit of memory.
    pub(super) async fn stop(mut self) {
        let peak = memory(self.process.id(), "VmHWM").expect("a running process");
        assert!(peak < self.limit, "{peak} MB, and the limit is {} MB", self.limit);
        self.process.terminate();
        let status = self.process.ended().await;
        assert!(status.success(), "{status}: {:#?}", self.process.log());
    }
}

/// Runs two replicas of what is installed: they reconcile, also after the leader was killed.
async fn two_replicas_reconcile(cluster: &TestCluster, form: &str) {
    let mut one = Replica::start(cluster, 1).await;
    one.process.leads().await;
    let two = Replica::start(cluster, 2).await;
    reconciled(cluster, &format!("{form}-one")).await;
    one.process.kill();
    one.process.ended().await;
    reconciled(cluster, &format!("{form}-two")).await;
    two.stop().await;
}

/// Takes everything away, and checks what is left.
async fn uninstalled(cluster: &TestCluster, arguments: &[&str]) {
    kubectl(cluster, arguments).await;
    let all = Api::<Namespace>::all(cluster.client());
    if all
        .get_opt(SYSTEM)
        .await
        .expect("an answer")
        .is_some_and(|found| found.metadata.deletion_timestamp.is_some())
    {
        until_gone(&all, SYSTEM).await;
    }
    let roles = Api::<ClusterRole>::all(cluster.client()).list(&ListParams::default()).await.expect("listed");
    let left = roles.items.iter().filter_map(|role| role.metadata.name.as_deref());
    assert_eq!(left.filter(|name| name.starts_with(NAME)).collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_form_installs_updates_and_leaves_what_the_docs_say() {
    let Some(cluster) = TestCluster::exclusive_without_crds().await else { return };
    kubectl(&cluster, &["create", "namespace", SHOP]).await;
    let deploy = workspace().join("deploy");
    let path = |name: &str| deploy.join(name).display().to_string();

    // One file.
    kubectl(&cluster, &["apply", "-f", &path("install.yaml")]).await;
    served(&cluster).await;
    every_rendering_is_valid(&cluster, &deploy).await;
    two_replicas_reconcile(&cluster, "yaml").await;
    let before = uids(&cluster).await;
    assert_eq!(before.len(), 4);

    // The base of the version before manifests were made from code, and back.
    let old = workspace().join("tests/fixtures/base-before-manifests.yaml").display().to_string();
    for manifests in [&["-f", &*old][..], &["-k", &path("base")]] {
        kubectl(&cluster, &[&["apply"], manifests].concat()).await;
        let replica = Replica::start(&cluster, 1).await;
        assert_eq!(uids(&cluster).await, before, "{manifests:?}");
        replica.stop().await;
    }
    two_replicas_reconcile(&cluster, "kustomize").await;
    let dependents = uids(&cluster).await;
    assert_eq!(dependents.len(), 8);

    uninstalled(&cluster, &["delete", "-k", &path("base"), "--wait=false"]).await;
    // Definition and objects go together, and the garbage collector deletes the Deployments.
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), SHOP);
    until_so("no Deployment of the users", async || {
        deployments.list(&ListParams::default()).await.is_ok_and(|list| list.items.is_empty())
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), SHOP);
    until_so("no Pod of the users", async || {
        pods.list(&ListParams::default()).await.is_ok_and(|list| list.items.is_empty())
    })
    .await;

    if let Some(helm) = helm() {
        by_chart(&cluster, &helm, &path("chart")).await;
    }
    cluster.stop().await;
}

/// Lets the API server check each component with the base, and the static Pod, strictly.
async fn every_rendering_is_valid(cluster: &TestCluster, deploy: &Path) {
    let folder = cluster.scratch("renderings");
    let copied = Command::new("cp").arg("-R").arg(deploy).arg(&folder).status().await.expect("cp runs");
    assert!(copied.success());
    let strictly = ["apply", "--dry-run=server", "--validate=strict"];
    let root = folder.display().to_string();
    // This cluster has no ServiceMonitors, which the component `monitoring` needs.
    let components = std::fs::read_dir(folder.join("components")).expect("a folder");
    for component in components.map(|entry| entry.expect("an entry").file_name()) {
        let component = component.to_str().filter(|name| *name != "monitoring");
        let Some(component) = component else { continue };
        let kustomization = json!({"resources": ["base"], "components": [format!("components/{component}")]});
        std::fs::write(folder.join("kustomization.yaml"), kustomization.to_string()).expect("written");
        let all = [&strictly[..], &["-k", &root]].concat();
        let output = cluster.try_kubectl(&[&["--namespace="], &*all].concat()).await;
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !warned.contains("PodSecurity"), "{component}: {warned}");
    }
    let pod = folder.join("static-pod/pod.yaml").display().to_string();
    kubectl(cluster, &[&strictly[..], &["-f", &pod]].concat()).await;
}

/// Returns the path of helm, which `.ci/full` builds and names in this variable.
fn helm() -> Option<PathBuf> {
    std::env::var_os("MAINSTAY_HELM").map(PathBuf::from)
}

async fn by_chart(cluster: &TestCluster, helm: &Path, chart: &str) {
    let run = async |arguments: &[&str]| {
        let output = Command::new(helm)
            .args(arguments)
            .env("KUBECONFIG", cluster.kubeconfig_path())
            .env("HOME", cluster.scratch("helm"))
            .output()
            .await
            .expect("helm runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    };
    let install = ["install", NAME, chart, "--namespace", SYSTEM, "--create-namespace"];
    let wrong = run(&[&install[..], &["--set", "replicas=two"]].concat()).await.expect_err("refused");
    assert!(wrong.contains("replicas"), "{wrong}");
    let wrong = run(&[&install[..], &["--set", "image.repo=x"]].concat()).await.expect_err("refused");
    assert!(wrong.contains("image") && wrong.contains("repo"), "{wrong}");
    let wrong =
        run(&[&install[..], &["--set", "serviceMonitor.enabled=true"]].concat()).await.expect_err("refused");
    assert!(wrong.contains("set serviceMonitor.enabled=false"), "{wrong}");
    let all = ["networkPolicy", "priorityClass"].map(|switch| format!("--set={switch}.enabled=true"));
    let rendered =
        run(&[&["template"], &install[1..], &[&*all[0], &*all[1], "--include-crds", "--kube-version=1.36"]]
            .concat())
        .await;
    let file = cluster.scratch("chart.yaml");
    std::fs::write(&file, rendered.expect("rendered")).expect("written");
    let missing = ["--namespace=", "apply", "--dry-run=server", "-f", file.to_str().expect("text")];
    let missing = cluster.try_kubectl(&missing).await;
    let missing = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.contains("namespaces \"mainstay-system\" not found"), "{missing}");
    kubectl(cluster, &["create", "namespace", SYSTEM]).await;
    kubectl(cluster, &["apply", "--dry-run=server", "--validate=strict", "-f", file.to_str().expect("text")])
        .await;
    run(&install).await.expect("installed");
    served(cluster).await;
    two_replicas_reconcile(cluster, "helm").await;
    let before = uids(cluster).await;
    run(&["upgrade", NAME, chart, "--namespace", SYSTEM, "--set", "priorityClass.enabled=true"])
        .await
        .expect("upgraded");
    run(&["rollback", NAME, "1", "--namespace", SYSTEM]).await.expect("rolled back");
    assert_eq!(uids(cluster).await, before);
    run(&["uninstall", NAME, "--namespace", SYSTEM]).await.expect("uninstalled");
    // Helm leaves definitions, and with them all objects.
    assert_eq!(uids(cluster).await, before);
}
