use super::*;

mod actions;
mod blocking;
mod configuration;
mod leader;
mod stores;

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

use crate::cache::CacheSettings;
use crate::client::Recorder;
use crate::controller::{Controller, ControllerMetrics, ControllerSettings, Environment, Removal, Term};
use crate::key::{Fence, Key, NamespacedName};
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
            runs: RunEnvironment::new(silent(), events, CancellationToken::new()),
            term: term.clone(),
            directory: controllers.clone(),
            metrics: ControllerMetrics::register(&registry),
            queue_metrics: QueueMetrics::register(&registry),
            stop: stop.clone(),
            removal: Removal::never(),
            observer: None,
        };
        let (run, _post) = registration.open(environment);
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
