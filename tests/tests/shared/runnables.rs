//! Runnables of a manager with a Lease: their start and stop around its terms, and the effect of its loss on
//! them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay::cache::{Scope, Store};
use mainstay::client::is_fenced;
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::manager::RunnableGroup::{LeaderElection, Others, Servers};
use mainstay::manager::{Manager, ManagerError, RunContext, Runnable, RunnableGroup};
use mainstay::reconcile::{Action, BoxError, Context, Outcome, Reconciler};
use mainstay::watch::channel;
use mainstay_tests::process::get;
use mainstay_tests::wait::{self, PATIENCE, until_so};
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::holder;

/// Additional rights of the manager.
fn rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "patch"]}])
}

/// Returns settings with a Lease of few seconds, renewed every second.
pub(super) fn short_lease(on_lost: &str) -> Value {
    let election =
        json!({"leaseDuration": "5s", "renewDeadline": "3s", "retryPeriod": "1s", "onLost": on_lost});
    json!({"leaderElection": election})
}

/// Events in the order of their occurrence. All clones share one list.
#[derive(Clone, Default)]
struct Diary(watch::Sender<Vec<String>>);

impl Diary {
    fn note(&self, line: impl Into<String>) {
        self.0.send_modify(|lines| lines.push(line.into()));
    }

    fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    async fn until(&self, line: &str) {
        let mut lines = self.0.subscribe();
        let noted = lines.wait_for(|lines| lines.iter().any(|noted| noted == line));
        assert!(timeout(PATIENCE, noted).await.is_ok(), "waited for {line:?}: {:#?}", self.lines());
    }
}

/// Notes its text when it is dropped.
struct Dropped(&'static str, Diary);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.note(self.0);
    }
}

/// Access of a runnable to the cluster and the cache, to record their state.
struct ClusterView {
    maps: Store<ConfigMap>,
    api: Api<ConfigMap>,
    namespace: String,
    leases: Api<Lease>,
}

impl ClusterView {
    /// Returns whether the Lease is held and, without a request, whether the caches have been listed.
    async fn state(&self) -> String {
        let lease = self.leases.get_opt("mainstay").await.expect("an answer");
        let held = lease.is_some_and(|lease| !holder(&lease).is_empty());
        let listed = self.maps.get(&NamespacedName::namespaced(&*self.namespace, "any")).is_ok();
        let (held, listed) = (if held { "held" } else { "free" }, if listed { "listed" } else { "unlisted" });
        format!("lease {held}, caches {listed}")
    }

    /// Creates an object and returns once the cache has it.
    async fn reads(&self) {
        let map =
            serde_json::from_value(json!({"metadata": {"generateName": "made-"}})).expect("a ConfigMap");
        let map = self.api.create(&PostParams::default(), &map).await.expect("created");
        timeout(PATIENCE, self.maps.caught_up(&map)).await.expect("in time").expect("a read object");
    }
}

/// Notes the state of Lease and cache when it starts, before it is ready, and when it has to stop, before
/// it ends.
struct Observer {
    name: &'static str,
    group: RunnableGroup,
    diary: Diary,
    view: Arc<ClusterView>,
}

impl Runnable for Observer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn group(&self) -> RunnableGroup {
        self.group
    }

    fn declares_readiness(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            let Self { name, group, diary, view } = *self;
            diary.note(format!("{name} starts: {}", view.state().await));
            cx.ready();
            cx.stop.cancelled().await;
            // Runnables of the group of servers end after the caches.
            let read = if group == Servers {
                String::new()
            } else {
                view.reads().await;
                ", and synced".to_owned()
            };
            diary.note(format!("{name} ends: {}{read}", view.state().await));
            Ok(())
        })
    }
}

fn add_all(manager: &Manager, diary: &Diary, view: &Arc<ClusterView>) {
    // Added in another order than the order of starting.
    for (name, group) in [("sweep", LeaderElection), ("feed", Others), ("webhooks", Servers)] {
        let (diary, view) = (diary.clone(), Arc::clone(view));
        manager.add(Observer { name, group, diary, view }).expect("added");
    }
}

/// Takes the Lease by hand, for longer than any test watches the effect.
pub(super) async fn take(leases: &Api<Lease>) {
    let now = MicroTime(Timestamp::now());
    let spec = json!({
    "holderIdentity": "intruder", "leaseDurationSeconds": 600, "acquireTime": now, "renewTime": now,
    });
    write(leases, &spec).await;
}

/// Releases the Lease again, as an elector does.
pub(super) async fn give_up(leases: &Api<Lease>) {
    let now = MicroTime(Timestamp::now());
    let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now});
    write(leases, &spec).await;
}

async fn write(leases: &Api<Lease>, spec: &Value) {
    let lease = json!({"spec": spec});
    leases.patch("mainstay", &PatchParams::default(), &Patch::Merge(&lease)).await.expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_start_and_stop_in_order_around_the_lease_and_on_a_standby_without_it() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    let start = async |diary: &Diary| {
        LocalManager::start_with(&cluster, &identity, &json!({}), |manager| {
            let (maps, namespace) = (manager.store(Scope::all()), cluster.namespace().to_owned());
            let view = ClusterView { maps, api: cluster.api(), namespace, leases: cluster.api() };
            add_all(manager, diary, &Arc::new(view));
        })
        .await
    };
    let diary = Diary::default();
    let leader = start(&diary).await;
    diary.until("sweep starts: lease held, caches listed").await;

    // The standby is ready, and does not lead while the leader does.
    let on_standby = Diary::default();
    let standby = start(&on_standby).await;
    let mut leading = standby.manager.leading();
    let ready = async || get(standby.probes(), "/readyz").await.0 == 200;
    until_so("the standby to be ready", ready).await;
    let (status, why) = get(standby.probes(), "/readyz/sweep").await;
    assert!(status == 500 && why.contains("sweep has not started: it runs on the leader only"), "{why}");
    standby.stop().await.expect("stopped in order");
    let expected = [
        "webhooks starts: lease held, caches unlisted",
        "feed starts: lease held, caches listed",
        "feed ends: lease held, caches listed, and synced",
        "webhooks ends: lease held, caches listed",
    ];
    assert_eq!(on_standby.lines(), expected);
    assert!(!*leading.borrow_and_update(), "the standby has never led");

    leader.stop().await.expect("stopped in order");
    let expected = [
        "webhooks starts: lease free, caches unlisted",
        "feed starts: lease free, caches listed",
        "sweep starts: lease held, caches listed",
        "sweep ends: lease held, caches listed, and synced",
        "feed ends: lease free, caches listed, and synced",
        "webhooks ends: lease free, caches listed",
    ];
    assert_eq!(diary.lines(), expected);
}

/// In the group with leader election: ignores the stop. In the other group: fails as soon as it has to
/// stop.
struct Failing(&'static str, RunnableGroup, Diary);

impl Runnable for Failing {
    fn name(&self) -> &'static str {
        self.0
    }

    fn group(&self) -> RunnableGroup {
        self.1
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            self.2.note(format!("{} starts", self.0));
            if self.1 == LeaderElection {
                let _dropped = Dropped("sweep is dropped", self.2.clone());
                std::future::pending::<()>().await;
            }
            cx.stop.cancelled().await;
            self.2.note(format!("{} is stopped", self.0));
            Err("no time to tidy up".into())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_drops_its_work_at_once_and_is_reported_with_other_failures() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let diary = Diary::default();
    let mut manager = LocalManager::start_with(&cluster, &identity, &short_lease("Exit"), |manager| {
        manager.add(Failing("sweep", LeaderElection, diary.clone())).expect("added");
        manager.add(Failing("feed", Others, diary.clone())).expect("added");
    })
    .await;
    diary.until("sweep starts").await;
    take(&cluster.api()).await;

    let error = manager.stopped().await.expect_err("a lost Lease");
    let ManagerError::LeaseLost { others } = &error else { panic!("{error:?}") };
    assert_eq!(others.len(), 1, "{others:?}");
    let text = "the Lease was lost, so this replica has to end \
                (while stopping: feed failed: no time to tidy up)";
    assert_eq!(error.to_string(), text);
    assert_eq!(diary.lines(), ["feed starts", "sweep starts", "sweep is dropped", "feed is stopped"]);
    let lease = cluster.api::<Lease>().get("mainstay").await.expect("the Lease");
    assert_eq!(holder(&lease), "intruder", "a lost Lease is not released");
}

/// Notes the term of its run, which lasts as long as the term, and publishes its context.
struct Endless(Diary, watch::Sender<Option<Context>>);

impl Reconciler for Endless {
    async fn reconcile(&self, _: &NamespacedName, cx: &Context) -> Outcome {
        self.0.note(format!("runs in term {}", cx.term()));
        self.1.send_replace(Some(cx.clone()));
        let _dropped = Dropped("its run is dropped", self.0.clone());
        cx.stopping().cancelled().await;
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_term_drops_its_work_and_the_next_term_starts_it_again() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    let (diary, handed) = (Diary::default(), watch::Sender::new(None));
    let manager = LocalManager::start_with(&cluster, &identity, &short_lease("Campaign"), |manager| {
        let reconciler = Endless(diary.clone(), handed.clone());
        let controller = Controller::new("endless").source(channel().1).reconciler(reconciler);
        let endless = manager.register(controller).expect("registered");
        endless.trigger(NamespacedName::namespaced("any", "any")).expect("taken");
        manager.add(Failing("feed", Others, diary.clone())).expect("added");
    })
    .await;
    let mut leading = manager.manager.leading();
    diary.until("runs in term 1").await;
    assert!(*leading.borrow_and_update());

    let leases = cluster.api::<Lease>();
    take(&leases).await;
    diary.until("its run is dropped").await;
    let ended = timeout(PATIENCE, leading.wait_for(|leading| !*leading)).await;
    ended.expect("in time").expect("a running manager");
    // A context of the lost term can no longer write.
    let lost = handed.borrow().clone().expect("the run had a context");
    let maps: Api<ConfigMap> = Api::namespaced(lost.client().clone(), cluster.namespace());
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    let write = async || maps.patch("late", &PatchParams::apply("late"), &Patch::Apply(&apply)).await;
    let refused = write().await.expect_err("a closed fence");
    assert!(is_fenced(&refused), "{refused:?}");

    // Released rather than expired: even on a slow machine, the next term begins only after these checks.
    give_up(&leases).await;
    diary.until("runs in term 2").await;
    assert!(*leading.borrow_and_update());
    let lease =
        wait::until(&leases, "mainstay", "the Lease to be held again", |lease| holder(lease) != "intruder")
            .await;
    let transitions = lease.spec.and_then(|spec| spec.lease_transitions);
    assert!(transitions.is_some_and(|transitions| transitions >= 1), "{transitions:?}");
    assert_eq!(manager.stop().await.expect_err("a failure at the stop").to_string(), "feed failed");
    let mut lines = diary.lines();
    lines.retain(|line| !line.starts_with("feed"));
    let expected = ["runs in term 1", "its run is dropped", "runs in term 2", "its run is dropped"];
    assert_eq!(lines, expected);
    assert_eq!(
        diary.lines().iter().filter(|line| *line == "feed starts").count(),
        1,
        "feed ran across both terms"
    );
}
