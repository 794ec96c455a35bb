use super::*;

mod actions;
mod configuration;
mod leader;

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use http::header::HOST;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{advance, sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::cache::{CacheSettings, KindStatus, Packing, Projection, Scope};
use crate::client::Recorder;
use crate::controller::{Controller, ControllerMetrics, ControllerSettings, Environment, Removal, Term};
use crate::key::{Fence, Key, KindId, NamespacedName};
use crate::metrics::Registry;
use crate::queue::{QueueMetrics, QueueSettings, RetryPolicy};
use crate::reconcile::{Action, Context, Outcome, ReconcileError, Reconciler, RunEnvironment};
use crate::serve::{Bound, Limits};
use crate::watch::{Notifier, channel};

/// A client to a server that never answers.
fn silent() -> kube::Client {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    kube::Client::new(service, "default")
}

fn cache(settings: CacheSettings) -> Cache {
    Cache::new(settings, silent(), &Registry::new())
}

fn unelected() -> Leader {
    let (identity, namespace) = ("me".to_owned(), None);
    Leader { identity, namespace, election: None, term: Term::begun(), fence: Fence::open() }
}

fn inspect(controllers: &Directory) -> Inspect {
    Inspect::new(controllers.clone(), cache(CacheSettings::default()), unelected())
}

fn request(method: &str, host: &str, path: &str) -> Request<Bytes> {
    Request::builder().method(method).uri(path).header(HOST, host).body(Bytes::new()).unwrap()
}

/// Returns the answer of these pages, which never wait.
fn answer(pages: &Router, request: Request<Bytes>) -> Response<Bytes> {
    let answer = pages.clone().oneshot(request.map(Body::from)).now_or_never();
    let (head, body) = answer.expect("an answer at once").unwrap().into_parts();
    let body = body.collect().now_or_never().expect("a body at once").unwrap();
    Response::from_parts(head, body.to_bytes())
}

/// Returns status and text of the answer to a GET from this machine.
fn get(pages: &Router, path: &str) -> (u16, String) {
    let response = answer(pages, request("GET", "127.0.0.1:8082", path));
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    (response.status().as_u16(), String::from_utf8(response.into_body().to_vec()).unwrap())
}

/// Returns the texts of the listed keys, and the number of matching keys.
fn listed(inspect: &Router, query: &str) -> (Vec<String>, Value) {
    let (status, text) = get(inspect, &format!("/debug/controllers/web/queue?{query}"));
    assert_eq!(status, 200, "{text}");
    let page: Value = serde_json::from_str(&text).unwrap();
    let keys = page["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned());
    (keys.collect(), page["matched"].clone())
}

/// Reconciles with the outcome in the name of the object.
struct ByName;

impl Reconciler for ByName {
    async fn reconcile(&self, request: &NamespacedName, _: &Context) -> Outcome {
        match request.name() {
            "fails" => Err("the peer hung up".into()),
            "forbidden" => Err(ReconcileError::terminal("no such class \"a\"")),
            "slow" => {
                sleep(Duration::from_mins(1)).await;
                Ok(Action::Done)
            }
            _ => Ok(Action::RequeueAfter(Duration::from_secs(30))),
        }
    }
}

/// A running controller.
struct Live<Q: Key = NamespacedName> {
    controllers: Directory,
    notifier: Notifier<Q>,
    term: Term,
    stop: CancellationToken,
    life: JoinSet<()>,
}

impl Live {
    fn start(term: Term) -> Self {
        Self::start_keyed(term, ByName)
    }

    /// Enqueues keys one after the other, and lets each reach its state.
    async fn notify(&self, keys: &[(&str, &str)]) {
        for (namespace, name) in keys {
            self.notifier.notify(NamespacedName::namespaced(*namespace, *name));
            sleep(Duration::from_millis(100)).await;
        }
    }
}

impl<Q: Key> Live<Q> {
    /// Starts a controller named `web`, with a backoff of one second.
    fn start_keyed(term: Term, reconciler: impl Reconciler<Q>) -> Self {
        let (notifier, source) = channel();
        let registration = Controller::keyed("web").source(source).reconciler(reconciler);
        let (registry, stop, controllers) = (Registry::new(), CancellationToken::new(), Directory::default());
        let (events, _writer) = Recorder::new("test", "me", silent(), &registry);
        let queue =
            QueueSettings { retry: RetryPolicy::fixed(Duration::from_secs(1)), ..QueueSettings::default() };
        let settings = ControllerSettings { queue, ..ControllerSettings::default() };
        let environment = Environment {
            settings: watch::Sender::new(settings).subscribe(),
            run_environment: RunEnvironment::new(silent(), events, CancellationToken::new()),
            needs_lease: registration.needs_lease,
            term: term.clone(),
            directory: controllers.clone(),
            metrics: ControllerMetrics::register(&registry),
            queue_metrics: QueueMetrics::register(&registry),
            stop: stop.clone(),
            removal: Removal::never(),
        };
        let (run, _post) = registration.wired.unwrap().open("web".into(), environment);
        let mut life = JoinSet::new();
        life.spawn(async move { run.await.unwrap() });
        Self { controllers, notifier, term, stop, life }
    }

    async fn end(self) -> Directory {
        self.term.lose();
        self.stop.cancel();
        self.life.join_all().await;
        self.controllers
    }
}

/// The roles must name each page, because the API server also has pages below /debug. One granted page is the
/// program's.
#[test]
fn the_shipped_roles_match_the_served_pages() {
    let roles = include_str!("../../../deploy/components/inspect-peers/rbac.yaml");
    let roles: Vec<Value> = serde_saphyr::from_multiple(roles).unwrap();
    let granted: BTreeSet<_> = roles
        .iter()
        .flat_map(|role| role["rules"].as_array().into_iter().flatten())
        .flat_map(|rule| {
            let urls = rule["nonResourceURLs"].as_array().into_iter().flatten();
            urls.map(move |url| (rule["verbs"].to_string(), url.as_str().unwrap().to_owned()))
        })
        .collect();
    let Refusal(_, text) = Refusal::no_path(&OwnPages::default());
    let (read, act) = text.split_once(" and by POST ").unwrap();
    let served = [(read, "get"), (act, "post")].into_iter().flat_map(|(text, verb)| {
        let paths = text.split([' ', ',']).filter(|word| word.starts_with("/debug/"));
        paths.map(move |path| {
            let all = path.split_once("NAME").map(|(before, _)| format!("{before}*"));
            (json!([verb]).to_string(), all.unwrap_or_else(|| path.to_owned()))
        })
    });
    let served: BTreeSet<_> = served.collect();
    let missing: Vec<_> = served.difference(&granted).collect();
    let others: Vec<_> = granted.difference(&served).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(matches!(&others[..], [(verbs, _)] if verbs == r#"["get"]"#), "{others:?}");
}

#[tokio::test(start_paused = true)]
async fn a_queue_page_lists_every_key_with_all_fields() {
    let live = Live::start(Term::begun());
    live.notify(&[("shop", "slow"), ("shop", "forbidden"), ("", "node"), ("shop", "fails")]).await;
    live.notifier.notify(NamespacedName::namespaced("shop", "slow"));
    sleep(Duration::from_millis(100)).await;
    let inspect = inspect(&live.controllers).pages();
    let expected = concat!(
        r#"{"controller":"web","leading":true,"queue":{"ready":{"live":0,"new":0,"background":0,"#,
        r#""retry":0},"delayed":2,"running":1,"dirty":1,"parked":1,"paused":0,"oldestReadySeconds":null,"#,
        r#""shuttingDown":false},"matched":4,"truncated":false,"next":null,"keys":[{"key":"shop/fails","#,
        r#""namespace":"shop","name":"fails","state":"backoff","lane":null,"attempts":1,"#,
        r#""sinceSeconds":0.2,"nextRunSeconds":0.8,"reason":null,"lastError":"the peer hung up","#,
        r#""lastDurationSeconds":0.0,"cause":"generic"},{"key":"shop/forbidden","namespace":"shop","#,
        r#""name":"forbidden","state":"parked","lane":null,"attempts":1,"sinceSeconds":0.4,"#,
        r#""nextRunSeconds":null,"reason":null,"lastError":"no such class \"a\"","#,
        r#""lastDurationSeconds":0.0,"cause":"generic"},{"key":"shop/slow","namespace":"shop","#,
        r#""name":"slow","state":"dirty","lane":"live","attempts":0,"sinceSeconds":0.5,"#,
        r#""nextRunSeconds":null,"reason":null,"lastError":null,"lastDurationSeconds":null,"#,
        r#""cause":"generic"},{"key":"node","namespace":null,"name":"node","state":"requeued","lane":null,"#,
        r#""attempts":0,"sinceSeconds":0.3,"nextRunSeconds":29.7,"reason":null,"lastError":null,"#,
        r#""lastDurationSeconds":0.0,"cause":"generic"}"#,
        "]}\n",
    );
    assert_eq!(get(&inspect, "/debug/controllers/web/queue"), (200, expected.to_owned()));
    live.end().await;
}

#[tokio::test(start_paused = true)]
async fn filters_order_and_limit_select_keys() {
    let live = Live::start(Term::begun());
    live.notify(&[("shop", "slow"), ("shop", "fails"), ("site", "fails"), ("", "node")]).await;
    let inspect = inspect(&live.controllers).pages();
    for (query, expected, matched) in [
        ("", &["shop/fails", "site/fails", "shop/slow", "node"][..], 4),
        ("state=backoff", &["shop/fails", "site/fails"], 2),
        ("state=delayed", &["shop/fails", "site/fails", "node"], 3),
        ("state=requeued&state=running", &["shop/slow", "node"], 2),
        ("sort=name&limit=2", &["node", "shop/fails"], 4),
        ("sort=name&limit=2&after=shop/fails", &["shop/slow", "site/fails"], 2),
        ("namespace=shop", &["shop/fails", "shop/slow"], 2),
        ("namespace=", &["node"], 1),
        ("name=fails&namespace=site", &["site/fails"], 1),
        ("name=nobody", &[], 0),
        ("limit=1", &["shop/fails"], 4),
    ] {
        let (keys, all) = listed(&inspect, query);
        assert_eq!(
            (keys, all),
            (expected.iter().map(ToString::to_string).collect(), matched.into()),
            "{query}"
        );
    }
    let next = |query: &str| {
        let page: Value =
            serde_json::from_str(&get(&inspect, &format!("/debug/controllers/web/queue?{query}")).1).unwrap();
        page["next"].clone()
    };
    assert_eq!(next("sort=name&limit=2"), "shop/fails");
    assert_eq!((next("sort=name&limit=4"), next("limit=2")), (Value::Null, Value::Null));
    let (status, text) = get(&inspect, "/debug/controllers/web/queue?state=broken");
    assert_eq!(status, 400);
    assert!(text.starts_with(r#"{"error":"unknown state \"broken\"; expected one of "#), "{text}");
    live.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_listed_until_it_ends_also_on_a_standby() {
    let live = Live::start(Term::new());
    live.notify(&[("shop", "a")]).await;
    let inspect = inspect(&live.controllers).pages();
    let standby = concat!(
        r#"{"controllers":[{"name":"web","workers":2,"needsLease":true,"leading":false,"synced":true,"#,
        r#""enabled":true,"paused":false,"queue":{"ready":{"live":1,"new":0,"background":0,"retry":0},"#,
        r#""delayed":0,"running":0,"dirty":0,"parked":0,"paused":0,"oldestReadySeconds":0.1,"#,
        r#""shuttingDown":false}}]}"#,
        "\n",
    );
    assert_eq!(get(&inspect, "/debug/controllers"), (200, standby.to_owned()));
    live.term.begin();
    assert!(get(&inspect, "/debug/controllers").1.contains(r#""leading":true"#));
    live.end().await;
    assert_eq!(get(&inspect, "/debug/controllers"), (200, "{\"controllers\":[]}\n".to_owned()));
    let gone = r#"{"error":"controller \"web\" does not run here; running: none"}"#;
    assert_eq!(get(&inspect, "/debug/controllers/web/queue"), (404, format!("{gone}\n")));
}

#[tokio::test(start_paused = true)]
async fn stores_are_listed_by_kind_and_scope_with_their_errors() {
    let cache = cache(CacheSettings { namespaces: vec!["shop".to_owned()], ..CacheSettings::default() });
    let deployment = || KindId::new("apps", "v1", "Deployment", "deployments", true);
    let _site = cache.kind(deployment(), Scope::namespace("site"), Projection::Metadata);
    let _nodes = cache.kind(KindId::new("", "v1", "Node", "nodes", false), Scope::all(), Projection::Full);
    advance(Duration::from_millis(2_500)).await;
    let inspect = Inspect::new(Directory::default(), cache, unelected()).pages();
    let expected = concat!(
        r#"{"caches":[{"cluster":null,"kind":"Node","version":"v1","scope":"all","projection":"full","#,
        r#""synced":false,"downSeconds":2.5,"lastError":null,"absent":false,"objects":0,"bytes":0,"#,
        r#""tooLarge":0,"packed":null,"restarts":0,"relists":0,"events":0,"lastEventSeconds":null,"#,
        r#""decodeErrors":0,"leftOut":{},"handlers":{},"unindexed":{}},{"cluster":null,"#,
        r#""kind":"Deployment.apps","version":"v1","scope":"namespace site","projection":"metadata","#,
        r#""synced":false,"downSeconds":2.5,"#,
        r#""lastError":"the scope's namespace is not among cache.namespaces; add it there or narrow the "#,
        r#"scope","absent":true,"objects":0,"bytes":0,"tooLarge":0,"packed":null,"restarts":0,"relists":0,"#,
        r#""events":0,"lastEventSeconds":null,"decodeErrors":0,"leftOut":{},"handlers":{},"unindexed":{}}]}"#,
        "\n",
    );
    assert_eq!(get(&inspect, "/debug/caches"), (200, expected.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn every_watch_of_a_store_is_listed() {
    let cache =
        cache(CacheSettings { namespaces: vec!["shop".into(), "site".into()], ..CacheSettings::default() });
    let _maps =
        cache.kind(KindId::new("", "v1", "ConfigMap", "configmaps", true), Scope::all(), Projection::Full);
    advance(Duration::from_millis(1_500)).await;
    let inspect = Inspect::new(Directory::default(), cache, unelected()).pages();
    let row = |namespace: &str| {
        format!(
            concat!(
                r#"{{"cluster":null,"kind":"ConfigMap","scope":"all, namespaces shop site","#,
                r#""projection":"full","namespace":"{}","working":false,"sinceSeconds":1.5,"lists":0,"#,
                r#""watches":0,"lastError":null,"absent":false}}"#,
            ),
            namespace,
        )
    };
    let expected = format!("{{\"watches\":[{},{}]}}\n", row("shop"), row("site"));
    assert_eq!(get(&inspect, "/debug/watches"), (200, expected));
}

#[tokio::test]
async fn stores_of_other_clusters_are_listed_last_with_their_cluster() {
    let own = cache(CacheSettings::default());
    let edge = own.for_cluster("edge", silent());
    let kind = |name: &str| KindId::new("", "v1", name, "any", true);
    let _theirs = edge.kind(kind("Apple"), Scope::all(), Projection::Full);
    let _ours = own.kind(kind("Pear"), Scope::all(), Projection::Full);
    let inspect = Inspect::new(Directory::default(), own, unelected()).pages();
    let (status, page) = get(&inspect, "/debug/caches");
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let rows: Vec<_> =
        page["caches"].as_array().unwrap().iter().map(|row| (&row["cluster"], &row["kind"])).collect();
    let expected = [(serde_json::Value::Null, "Pear".into()), ("edge".into(), "Apple".into())];
    assert_eq!((status, rows), (200, expected.iter().map(|(cluster, kind)| (cluster, kind)).collect()));
}

#[test]
fn a_store_page_has_all_figures_and_failing_handlers() {
    let trouble = crate::cache::HandlerTrouble { panics: 1, slow: 2 };
    let packing =
        Packing { objects: 2, bytes: 300, plain_bytes: 3_100, dictionaries: 1, dictionary_bytes: 9_000 };
    let status = KindStatus {
        cluster: None,
        kind: KindId::new("apps", "v1", "Deployment", "deployments", true),
        scope: "all".to_owned(),
        projection: Projection::Full,
        required: crate::cache::Required::default(),
        synced: true,
        settled: true,
        down_since: None,
        last_error: None,
        absent: false,
        objects: 3,
        bytes: 4096,
        too_large: 1,
        packing,
        restarts: 5,
        relists: 6,
        events: 7,
        last_event_age: Some(Duration::from_micros(1_500_001)),
        decode_errors: 8,
        pack_stalls: 0,
        left_out: [("shop/big".to_owned(), "too long".to_owned())].into(),
        handlers: [("owner".to_owned(), trouble)].into(),
        unindexed: [("by-node".to_owned(), 9)].into(),
        parts: Vec::new(),
    };
    let expected = concat!(
        r#"{"caches":[{"cluster":null,"kind":"Deployment.apps","version":"v1","scope":"all","#,
        r#""projection":"full","synced":true,"downSeconds":null,"lastError":null,"absent":false,"#,
        r#""objects":3,"bytes":4096,"tooLarge":1,"packed":{"objects":2,"bytes":300,"plainBytes":3100,"#,
        r#""ratio":10.3,"dictionaries":1,"dictionaryBytes":9000},"restarts":5,"relists":6,"events":7,"#,
        r#""lastEventSeconds":1.500001,"decodeErrors":8,"leftOut":{"shop/big":"too long"},"#,
        r#""handlers":{"owner":{"panics":1,"slow":2}},"unindexed":{"by-node":9}}]}"#,
    );
    assert_eq!(serde_json::to_string(&caches::page(vec![status])).unwrap(), expected);
}

#[tokio::test]
async fn refusals_have_their_status_and_a_reason() {
    let inspect = inspect(&Directory::default()).pages();
    let refused = |method: &str, host: &str, path: &str| {
        let response = answer(&inspect, request(method, host, path));
        let allow = response.headers().get(ALLOW).map(|allow| allow.to_str().unwrap().to_owned());
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        let text: Value = serde_json::from_str(&text).unwrap();
        (response.status().as_u16(), allow, text["error"].as_str().unwrap().to_owned())
    };
    let paths = "no such path; there are /debug/controllers, /debug/controllers/NAME/queue, /debug/caches, \
                 /debug/watches, /debug/config and /debug/leader, and by POST \
                 /debug/controllers/NAME/reconcile and /debug/log";
    for path in [
        "/",
        "/debug",
        "/debug/controllers/web/stop",
        "/debug/controllers/web",
        "/debug/controllers/web/queue/a",
    ] {
        assert_eq!(refused("GET", "localhost", path), (404, None, paths.to_owned()), "{path}");
    }
    let head = answer(&inspect, request("HEAD", "localhost", "/debug/leader"));
    assert_eq!(
        (head.status().as_u16(), head.headers()[ALLOW].as_bytes(), head.body().len()),
        (405, &b"GET"[..], 0)
    );
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let text = format!("{method} is not answered here; use GET");
        assert_eq!(refused(method, "localhost", "/debug/leader"), (405, Some("GET".to_owned()), text));
    }
    for path in ["/debug/controllers/web/reconcile", "/debug/log"] {
        let text = "GET is not answered here; use POST".to_owned();
        assert_eq!(refused("GET", "localhost", path), (405, Some("POST".to_owned()), text));
    }
    let host = "the Host header does not name this machine; connect to localhost or a loopback address";
    for (method, path) in [("GET", "/debug/leader"), ("POST", "/debug/leader"), ("GET", "/nothing")] {
        assert_eq!(refused(method, "evil.example:8082", path), (403, None, host.to_owned()), "{path}");
    }
    let parameter = r#"unknown parameter "limit"; this path has no parameters"#;
    assert_eq!(refused("GET", "localhost", "/debug/caches?limit=1"), (400, None, parameter.to_owned()));
}

/// Sends a request line with this host over a new connection and returns the whole answer.
async fn exchange(address: std::net::SocketAddr, line: &str, host: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_server_on_loopback_answers_only_requests_for_loopback_hosts() {
    let bound = Bound::bind("127.0.0.1:0", Limits::default()).unwrap();
    let (address, stop) = (bound.local_addr(), CancellationToken::new());
    let running = JoinSet::from_iter([bound.run(inspect(&Directory::default()).router(), stop.clone())]);

    let answer = exchange(address, "GET /debug/leader", &address.to_string()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-type: application/json\r\n"), "{answer}");
    assert!(answer.contains("\r\ncache-control: no-store\r\n"), "{answer}");
    assert!(answer.ends_with("\"history\":[]}\n"), "{answer}");
    for (line, host, status) in [
        ("GET /debug/leader", "rebound.example", "403 Forbidden"),
        ("GET http://rebound.example/debug/leader", "localhost", "403 Forbidden"),
        ("POST /debug/leader", "localhost", "405 Method Not Allowed"),
        ("GET /debug/pprof", "localhost", "404 Not Found"),
    ] {
        let answer = exchange(address, line, host).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{line}: {answer}");
    }
    stop.cancel();
    running.join_all().await.into_iter().for_each(|ended| ended.unwrap());
}

/// A key whose text blocks or panics.
#[derive(Clone)]
struct BlockingKey {
    name: &'static str,
    /// Blocks the text until the test waits too.
    barrier: Arc<std::sync::Barrier>,
}

impl PartialEq for BlockingKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for BlockingKey {}

impl std::hash::Hash for BlockingKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Key for BlockingKey {
    fn namespace(&self) -> Option<&str> {
        None
    }

    fn name(&self) -> &str {
        self.name
    }
}

impl fmt::Display for BlockingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(self.name != "panics", "on purpose");
        self.barrier.wait();
        f.write_str(self.name)
    }
}

/// Requests a page from this machine.
async fn get_async(router: Router, path: &str) -> response::Response {
    router.oneshot(request("GET", "localhost", path).map(Body::from)).await.unwrap()
}

struct Never;

impl Reconciler<BlockingKey> for Never {
    async fn reconcile(&self, _: &BlockingKey, _: &Context) -> Outcome {
        Err("a standby must not reconcile".into())
    }
}

#[tokio::test]
async fn a_key_whose_text_blocks_or_panics_affects_only_its_own_request() {
    let live = Live::start_keyed(Term::new(), Never);
    let barrier = Arc::new(std::sync::Barrier::new(2));
    for name in ["panics", "blocks"] {
        live.notifier.notify(BlockingKey { name, barrier: Arc::clone(&barrier) });
    }
    let get = {
        let router = inspect(&live.controllers).router();
        move |path| get_async(router.clone(), path)
    };
    while listed_count(&live.controllers) < 2 {
        tokio::task::yield_now().await;
    }
    let mut blocked = JoinSet::from_iter([get("/debug/controllers/web/queue?name=blocks")]);
    // This test has one thread: if the answer blocked it, the test would hang here.
    tokio::task::yield_now().await;
    assert!(blocked.try_join_next().is_none());
    barrier.wait();
    assert_eq!(blocked.join_next().await.unwrap().unwrap().status(), StatusCode::OK);

    let failed = get("/debug/controllers/web/queue?name=panics").await;
    assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(failed.into_body().collect().await.unwrap().to_bytes(), "the handler panicked\n");
    assert_eq!(get("/debug/leader").await.status(), StatusCode::OK, "other pages are still answered");
    live.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_a_queue_page_delays_only_other_queue_pages() {
    let live = Live::start(Term::new());
    while listed_count(&live.controllers) < 1 {
        live.notifier.notify(NamespacedName::namespaced("shop", "any"));
        tokio::task::yield_now().await;
    }
    let router = inspect(&live.controllers).router();
    let get = |path| get_async(router.clone(), path);
    let unread = get("/debug/controllers/web/queue").await;
    let status = async |path| get(path).await.status();
    assert_eq!(status("/debug/leader").await, StatusCode::OK);
    // The request times out while it waits for the unread answer.
    assert_eq!(status("/debug/controllers/web/queue").await, StatusCode::SERVICE_UNAVAILABLE);
    drop(unread);
    assert_eq!(status("/debug/controllers/web/queue").await, StatusCode::OK);
    live.end().await;
}

/// Returns how many ready keys the controller `web` has; 0 before it runs.
fn listed_count(controllers: &Directory) -> usize {
    controllers.find("web").map_or(0, |web| web.status().counts.ready())
}

#[tokio::test]
async fn a_program_adds_its_own_pages() {
    let own = OwnPages::default();
    let price = |rest: &[&str]| match rest {
        ["milk"] => Ok(serde_json::json!({"price": 3})),
        [] => Err(PageError::BadRequest("expected a product".to_owned())),
        _ => Err(PageError::NotFound(format!("no product {}", rest.join("/")))),
    };
    assert!(own.add("prices", price));
    let inspect = Inspect { own, ..inspect(&Directory::default()) }.pages();
    let error = |text: &str| format!("{{\"error\":\"{text}\"}}\n");
    assert_eq!(get(&inspect, "/debug/prices/milk"), (200, "{\"price\":3}\n".to_owned()));
    assert_eq!(get(&inspect, "/debug/prices"), (400, error("expected a product")));
    assert_eq!(get(&inspect, "/debug/prices/tea/green"), (404, error("no product tea/green")));
    let (status, text) = get(&inspect, "/debug/price");
    assert!(status == 404 && text.contains("/debug/prices"), "the existing pages are listed: {text}");
    assert_eq!(get(&inspect, "/debug/prices/milk?a=b").0, 400, "parameters are refused");
    let foreign = answer(&inspect, request("GET", "example.com", "/debug/prices/milk"));
    assert_eq!(foreign.status(), 403);
    for name in own::RESERVED {
        let (_, text) = get(&inspect, &format!("/debug/{name}"));
        assert!(!text.contains("no such path"), "{name} is a page of the manager: {text}");
    }
}
