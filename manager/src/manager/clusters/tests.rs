//! A second cluster: its connections and names, and the starts that it delays. Its API server is a script,
//! or absent.

use std::error::Error as _;
use std::net::TcpListener;

use futures_util::future::BoxFuture;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use kube::core::ObjectMeta;
use kube::{Config, Resource as _};
use tokio::sync::oneshot;
use tokio::time::sleep_until;
use tracing::Level;

use super::*;
use crate::cache::{Scope, Store};
use crate::client::tests::server::{Answer, TestServer, logged_by_all};
use crate::client::{EventType, Writer, is_fenced};
use crate::controller::Controller;
use crate::health::Group;
use crate::key::{Fence, Key as _, NamespacedName};
use crate::manager::lifecycle::tests::{manager, run};
use crate::manager::{Manager, RunContext, Runnable};
use crate::metrics::Format;
use crate::reconcile::{Action, BoxError, Context, Outcome, Reconciler};

/// The URL of an API server that does not exist.
const NOWHERE: &str = "http://127.0.0.1:1";

fn at(server: &str) -> Config {
    Config::new(server.parse().unwrap())
}

/// A runnable that sends the time of its start, and ends.
struct Starts(oneshot::Sender<Instant>);

impl Runnable for Starts {
    fn name(&self) -> &'static str {
        "starts"
    }

    fn run(self: Box<Self>, _: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        self.0.send(Instant::now()).unwrap();
        Box::pin(async { Ok(()) })
    }
}

fn add_runnable(manager: &Manager) -> oneshot::Receiver<Instant> {
    let (started, when) = oneshot::channel();
    manager.add(Starts(started)).unwrap();
    when
}

/// Returns a server that accepts connections and never answers, and the configuration to connect to it.
fn silent() -> (TcpListener, Config) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, at(&address))
}

fn ready(manager: &Manager) -> (Vec<(String, String)>, String) {
    let own = manager.checks().answer("/readyz/cache-edge-ConfigMap", None);
    (manager.checks().failures(Group::Ready), own.body)
}

#[tokio::test]
async fn a_name_is_a_dns_label_taken_once_and_one_that_was_refused_is_free() {
    let manager = manager("");
    let refused = |name: &str, config| manager.cluster(name, config).unwrap_err();
    for name in ["", "Edge", "edge.eu", "-edge", "edge-", &"e".repeat(64)] {
        let error = refused(name, at(NOWHERE));
        let expected = format!(
            "{name:?} is no name of a cluster; expected 1 to 63 lower-case letters, digits and hyphens, \
             no hyphen at either end, such as web-frontend: it appears in metrics, paths and the \
             configuration"
        );
        assert_eq!(error.to_string(), expected);
    }
    let mut no_proxy = at(NOWHERE);
    no_proxy.proxy_url = Some("ftp://proxy:21".parse().unwrap());
    let error = refused("edge", no_proxy);
    assert!(matches!(&error, RegisterError::Connect { name, .. } if **name == *"edge"), "{error}");
    let edge = manager.cluster("edge", at(NOWHERE)).expect("nothing is left of what was refused");
    assert_eq!(edge.name(), "edge");
    let error = refused("edge", at(NOWHERE));
    let taken = "cluster \"edge\" exists already; choose another name, \
                 because metrics and paths tell them apart by it";
    assert_eq!(error.to_string(), taken);
    manager.cluster(&*"e".repeat(63), at(NOWHERE)).expect("as long as may be");

    manager.stop();
    run(&manager).join_next().await.unwrap().unwrap().unwrap();
    let error = refused("late", at(NOWHERE));
    assert_eq!(error.to_string(), "\"late\" was not added: the manager has begun to stop");
}

#[tokio::test(start_paused = true)]
async fn a_silent_cluster_is_waited_for_half_a_minute_and_makes_nobody_unready_after_it() {
    let (_server, config) = silent();
    let manager = manager("");
    let edge = manager.cluster("edge", config).unwrap();
    let _maps = edge.store::<ConfigMap>(Scope::all());
    let mut started = add_runnable(&manager);
    let began = Instant::now();
    let _running = run(&manager);
    sleep_until(began + PATIENCE - Duration::from_millis(1)).await;
    assert!(started.try_recv().is_err(), "it is waited for");
    let (failures, own) = ready(&manager);
    let reason = "ConfigMap has not been listed: no answer yet";
    assert_eq!(failures, [("cache-edge-ConfigMap".to_owned(), reason.to_owned())]);
    assert_eq!(own, format!("internal server error: {reason}\n"));

    assert_eq!(started.await.unwrap().duration_since(began), PATIENCE);
    let (failures, own) = ready(&manager);
    assert_eq!(failures, [], "no replica is taken out of service by it");
    assert!(own.contains("has not been listed"), "{own}");
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_holds_nobody_up() {
    let manager = manager("");
    let edge = manager.cluster("edge", at(NOWHERE)).unwrap();
    let _maps = edge.store::<ConfigMap>(Scope::all());
    let started = add_runnable(&manager);
    let _running = run(&manager);
    // Far below the patience that a silent one is given.
    tokio::time::timeout(PATIENCE / 2, started).await.expect("not held up").unwrap();
    let (failures, own) = ready(&manager);
    assert_eq!(failures, []);
    assert!(own.contains("has not been listed: ") && own.contains("127.0.0.1:1"), "{own}");
}

#[tokio::test(start_paused = true)]
async fn who_comes_after_a_new_cluster_waits_for_it_and_who_came_before_has_started() {
    let manager = manager("");
    let _running = run(&manager);
    let before = add_runnable(&manager);
    before.await.expect("there is nothing to wait for");
    let (_server, config) = silent();
    let edge = manager.cluster("edge", config).unwrap();
    let _maps = edge.store::<ConfigMap>(Scope::all());
    let began = Instant::now();
    let after = add_runnable(&manager);
    assert_eq!(after.await.unwrap().duration_since(began), PATIENCE);
    let term = manager.shared.term.enter("test").map(|work| work.term());
    assert_eq!(term, Some(1), "it goes on to lead and does not begin to");
}

#[tokio::test(start_paused = true)]
async fn what_comes_to_a_cluster_that_has_long_been_there_is_waited_for_like_at_its_start() {
    let (_server, config) = silent();
    let manager = manager("");
    let edge = manager.cluster("edge", config).unwrap();
    let running = run(&manager);
    add_runnable(&manager).await.expect("there is nothing to wait for");
    let waits = || async {
        let began = Instant::now();
        add_runnable(&manager).await.unwrap().duration_since(began)
    };
    let lines = logged_by_all(Level::WARN, async {
        sleep_until(Instant::now() + PATIENCE * 2).await;
        let _maps = edge.store::<ConfigMap>(Scope::all());
        assert_eq!(waits().await, PATIENCE);
        assert_eq!(waits().await, Duration::ZERO, "nobody waits for it twice");
        sleep_until(Instant::now() + PATIENCE * 10).await;
        let _secrets = edge.store::<Secret>(Scope::namespace("bank"));
        let _others = edge.store::<Secret>(Scope::namespace("shop"));
        assert_eq!(waits().await, PATIENCE);
    })
    .await;
    drop(running);
    let told: Vec<_> = lines.iter().filter(|line| line.contains("no answer for")).collect();
    let expected = ["ConfigMap", "Secret"].map(|kind| {
        format!(
            "WARN no answer for 30s; starting without these kinds, and their controllers wait \
             cluster=\"edge\" kinds=\"{kind}\""
        )
    });
    assert_eq!(told, expected.iter().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_comes_to_a_replica_at_work_never_makes_it_unready() {
    let manager = manager("");
    let _running = run(&manager);
    add_runnable(&manager).await.expect("there is nothing to wait for");
    assert_eq!(manager.checks().failures(Group::Ready), []);
    let (_server, config) = silent();
    let edge = manager.cluster("edge", config).unwrap();
    let _maps = edge.store::<ConfigMap>(Scope::all());
    let reason = "internal server error: ConfigMap has not been listed: no answer yet\n";
    assert_eq!(ready(&manager), (Vec::new(), reason.to_owned()), "nobody waits for it");
    let mut after = add_runnable(&manager);
    sleep_until(Instant::now() + PATIENCE / 2).await;
    assert!(after.try_recv().is_err(), "somebody waits for it");
    assert_eq!(ready(&manager), (Vec::new(), reason.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_has_stopped_leaves_nothing_of_its_clusters() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let manager = manager("");
    let running = run(&manager);
    let (_server, config) = silent();
    let edge = manager.cluster("edge", config).unwrap();
    let maps = edge.store::<ConfigMap>(Scope::all());
    let controller = Controller::new("web").reconciles(&maps).reconciler(edge.reconciler(Writes));
    let handle = manager.register(controller).unwrap();
    let cx = edge.context(&run_of(&manager, true));
    sleep_until(Instant::now() + PATIENCE).await;
    assert!(tasks() > before + 2, "it is at work");
    let refused = maps.get(&NamespacedName::namespaced("shop", "web")).unwrap_err().to_string();
    let expected =
        "the cache of ConfigMap (all of cluster edge) has not synced yet; wait for it before reading";
    assert_eq!(refused, expected);

    manager.stop();
    let ended = running.join_all().await.pop().unwrap();
    ended.unwrap();
    drop((manager, edge, maps, handle, cx));
    // Clients end a few steps after their last clone.
    sleep_until(Instant::now() + PATIENCE).await;
    assert_eq!(tasks(), before);
}

fn put(name: &str) -> http::Request<Body> {
    let path = format!("/api/v1/namespaces/shop/configmaps/{name}");
    http::Request::put(path).body(Body::from(b"{}".to_vec())).unwrap()
}

/// Returns the context of a run of the controller `web`.
fn run_of(manager: &Manager, needs_lease: bool) -> Context {
    manager
        .shared
        .run_environment("web", needs_lease)
        .signed(Writer::controller("web"), Arc::default())
        .context()
}

#[tokio::test]
async fn what_is_written_in_another_cluster_goes_there_and_stops_with_the_lease() {
    let mut server = TestServer::start([Answer::ok("{}"), Answer::ok("{}")]).await;
    let manager = manager("");
    let edge = manager.cluster("edge", server.connections().config().clone()).unwrap();
    let (led, free) = (run_of(&manager, true), run_of(&manager, false));
    let there = edge.context(&led);
    assert_eq!((there.reconcile_id(), there.term()), (led.reconcile_id(), led.term()), "it is the same run");
    there.client().send(put("led")).await.unwrap();
    assert!(server.arrival().await.uri.path().ends_with("/led"));

    let fence: &Fence = &manager.shared.fence;
    fence.close();
    for cx in [&there, &edge.context(&led)] {
        let error = cx.client().send(put("late")).await.unwrap_err();
        assert!(is_fenced(&error), "{error:?}");
    }
    edge.context(&free).client().send(put("free")).await.unwrap();
    assert!(server.arrival().await.uri.path().ends_with("/free"), "and nothing came in between");
}

#[tokio::test]
async fn a_run_has_a_client_of_its_own_where_it_asks_for_one_and_while_it_lasts() {
    let manager = manager("");
    let edge = manager.cluster("edge", at(NOWHERE)).unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let cx = run_of(&manager, true).with_key(&NamespacedName::namespaced("shop", "web"));
    let there = edge.context(&cx);
    assert_eq!(tasks(), before);
    for _ in 0..100 {
        let _clients = (cx.client(), there.client());
    }
    // The client belongs to the runtime of the run, also if another thread asks for it first.
    let elsewhere = edge.context(&cx);
    std::thread::scope(|threads| threads.spawn(|| drop(elsewhere.client().clone())).join()).unwrap();
    assert_eq!(tasks() - before, 3);
    drop((cx, there, elsewhere));
    let ended = async {
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("clients end with the run");
}

/// A reconciler that writes one object.
struct Writes;

impl Reconciler for Writes {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        cx.client().send(put(request.name())).await?;
        Ok(Action::Done)
    }
}

#[tokio::test]
async fn a_reconciler_of_one_cluster_works_in_another_unchanged() {
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let manager = manager("");
    let edge = manager.cluster("edge", server.connections().config().clone()).unwrap();
    let moved = edge.reconciler(Writes);
    let outcome = moved.reconcile(&NamespacedName::namespaced("shop", "web"), &run_of(&manager, true)).await;
    assert_eq!(outcome.unwrap(), Action::Done);
    assert!(server.arrival().await.uri.path().ends_with("/web"));
}

#[tokio::test]
async fn an_object_is_owned_within_its_cluster_only() {
    let manager = manager("");
    let [edge, other] = ["edge", "other"].map(|name| manager.cluster(name, at(NOWHERE)).unwrap());
    let stores = [manager.store(Scope::all()), edge.store(Scope::all()), other.store(Scope::all())];
    for (owners, owner) in stores.iter().enumerate() {
        for (children, child) in stores.iter().enumerate() {
            let (owner, child): (&Store<ConfigMap>, &Store<ConfigMap>) = (owner, child);
            let controller = Controller::new("web").reconciles(owner).owns(child).reconciler(Writes);
            match manager.register(controller) {
                Ok(handle) => {
                    assert_eq!(owners, children);
                    drop(handle.remove());
                }
                Err(error) => {
                    assert_ne!(owners, children);
                    let why = error.source().map(ToString::to_string);
                    let expected = "owns(ConfigMap) in another cluster than reconciles(ConfigMap): \
                                    owner references do not cross clusters; use watches(...)";
                    assert_eq!(why.as_deref(), Some(expected));
                }
            }
        }
    }
}

#[tokio::test]
async fn an_event_is_recorded_in_the_cluster_of_its_object() {
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let manager = manager("");
    let edge = manager.cluster("edge", server.connections().config().clone()).unwrap();
    let _running = run(&manager);
    let metadata = ObjectMeta {
        name: Some("card".to_owned()),
        namespace: Some("shop".to_owned()),
        ..ObjectMeta::default()
    };
    let card = ConfigMap { metadata, ..ConfigMap::default() }.object_ref(&());
    edge.context(&run_of(&manager, true)).events().event(&card, EventType::Normal, "Copied", "Copy", "there");
    let written = tokio::time::timeout(PATIENCE, server.arrival()).await.expect("it is written there");
    assert_eq!(
        (written.method, written.uri.path()),
        (Method::POST, "/apis/events.k8s.io/v1/namespaces/shop/events")
    );
    let event: serde_json::Value = serde_json::from_slice(&written.body).unwrap();
    assert_eq!(event["reportingController"], "test/web");
    assert_eq!(event["reportingInstance"], "me");
}

#[tokio::test]
async fn each_metric_stands_once_and_its_rows_tell_the_clusters_apart() {
    let manager = manager("");
    let edge = manager.cluster("edge", at("http://127.0.0.1:2")).unwrap();
    let (_own, _theirs) = (manager.store::<ConfigMap>(Scope::all()), edge.store::<ConfigMap>(Scope::all()));
    edge.context(&run_of(&manager, true)).client().send(put("web")).await.expect_err("nobody listens there");
    let text = manager.registry().encode(Format::Text).unwrap();
    let mut families: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let all = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), all, "{text}");
    for line in [
        r#"mainstay_cache_unsynced{kind="ConfigMap",group=""} 1"#,
        r#"mainstay_cache_unsynced{kind="ConfigMap",group="",of_cluster="edge"} 1"#,
        "mainstay_cache_uncovered_writes_total 0",
        r#"mainstay_cache_uncovered_writes_total{of_cluster="edge"} 0"#,
        r#"rest_client_requests_total{code="<error>",method="PUT",host="127.0.0.1:2"} 1"#,
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
    }
}
