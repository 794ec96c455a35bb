use super::*;

mod connection;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use axum::Router;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap};
use http::{StatusCode, Uri};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::program::{Exit, Parsed, Program};
use crate::serve::{Bound, Certificates, Limits};

/// The path and the authorization of a request.
type Received = (String, Option<String>);

/// A manager with scripted answers.
struct Scripted {
    address: SocketAddr,
    /// The requests, in order.
    received: Arc<Mutex<Vec<Received>>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Answers each path with this status and text.
    fn start(answers: &[(&str, u16, &str)]) -> Self {
        Self::start_with(None, None, answers)
    }

    /// As [`Scripted::start`], with TLS and with the header of a standby.
    fn start_with(
        certificates: Option<Certificates>,
        standby: Option<&'static str>,
        answers: &[(&str, u16, &str)],
    ) -> Self {
        let answers: BTreeMap<String, (u16, Bytes)> = answers
            .iter()
            .map(|(path, status, text)| {
                ((*path).to_owned(), (*status, Bytes::copy_from_slice(text.as_bytes())))
            })
            .collect();
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        let router = Router::new().fallback(async move |uri: Uri, headers: HeaderMap| {
            let path = uri.to_string();
            let token = headers.get(AUTHORIZATION).map(|token| token.to_str().unwrap().to_owned());
            log.lock().push((path.clone(), token));
            let (status, text) =
                answers.get(&path).cloned().unwrap_or((500, Bytes::from_static(b"not in the script")));
            let headers = HeaderMap::from_iter(standby.map(|standby| {
                (http::HeaderName::from_static(crate::inspect::STANDBY), standby.parse().unwrap())
            }));
            (StatusCode::from_u16(status).unwrap(), headers, text)
        });
        let stop = CancellationToken::new();
        let (sender, address) = mpsc::channel();
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || {
            let bound = Bound::bind("127.0.0.1:0", Limits::default()).unwrap();
            sender.send(bound.local_addr()).unwrap();
            let bound = match certificates {
                Some(certificates) => bound.with_certificates(certificates),
                None => bound,
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(bound.run(router, stopping)).unwrap();
        });
        Self { address: address.recv().unwrap(), received, stop, thread: Some(thread) }
    }

    fn paths(&self) -> Vec<String> {
        self.received.lock().iter().map(|(path, _)| path.clone()).collect()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.stop.cancel();
        self.thread.take().map(JoinHandle::join);
    }
}

/// Runs `inspect` with these arguments, and returns exit, standard output and standard error.
fn run(args: &[&str]) -> (Exit, String, String) {
    run_whole(&[&["inspect"], args].concat())
}

/// As [`run`], for any command.
fn run_whole(args: &[&str]) -> (Exit, String, String) {
    let mut out = Vec::new();
    let (exit, err) = run_into(args, &mut out);
    (exit, String::from_utf8(out).unwrap(), err)
}

/// As [`run_whole`], with this standard output.
fn run_into(args: &[&str], out: &mut dyn std::io::Write) -> (Exit, String) {
    let product = Command::new("price").arg(clap::Arg::new("product").required(true));
    let path = |matches: &ArgMatches| {
        let product = matches.get_one::<String>("product").map(String::as_str).unwrap_or_default();
        let known = ["milk", "tea"].contains(&product);
        known.then(|| format!("/debug/prices/{product}")).ok_or_else(|| format!("no product {product:?}"))
    };
    let show = |body: &str| serde_json::from_str(body).map(|price: u32| format!("it costs {price}\n"));
    let program = Program::new("shop", "1.2.3", "Runs the shop").controllers(["orders"]);
    let program = program.page_command(PageCommand::new(product, path, show));
    let mut err = Vec::new();
    let args = ["shop"].iter().chain(args).map(OsString::from);
    let Parsed::Done(exit) = program.parse(args, out, &mut err) else { panic!("another command") };
    (exit, String::from_utf8(err).unwrap())
}

const QUEUE: &str = r#"{"controller":"orders","leading":true,
"queue":{"ready":{"live":0,"new":0,"background":0,"retry":0},
"delayed":2,"running":0,"dirty":0,"parked":0,"paused":0,"oldestReadySeconds":null,"shuttingDown":false},
"matched":3,"truncated":true,"next":null,"keys":[
{"key":"shop/web","namespace":"shop","name":"web","state":"backoff","lane":null,"attempts":7,
"sinceSeconds":0.3,"nextRunSeconds":0.312,"reason":null,"lastError":"connection refused",
"lastDurationSeconds":0.002,"cause":"updated Deployment.apps"},
{"key":"node","namespace":null,"name":"node","state":"requeued","lane":null,"attempts":0,
"sinceSeconds":70,"nextRunSeconds":3600,"reason":null,
"lastError":null,"lastDurationSeconds":null,"cause":"generic"}]}"#;

const ROWS: &str = "\
KEY        STATE      ATTEMPTS   NEXT    SINCE   TOOK   CAUSE                     LAST ERROR
shop/web   backoff    7          312ms   300ms   2ms    updated Deployment.apps   connection refused
node       requeued   0          1h00m   1m10s   -      generic                   -
";

#[test]
fn a_queue_is_printed_as_a_table() {
    let manager =
        Scripted::start(&[("/debug/controllers/orders/queue?state=delayed&namespace=&limit=2", 200, QUEUE)]);
    let address = manager.address.to_string();
    let args =
        ["queue", "orders", "--state", "delayed", "--namespace", "", "--limit=2", "--address", &address];
    let note = "3 match, 2 shown; raise --limit, or go through pages with --sort name\n";
    assert_eq!(run(&args), (Exit::Success, ROWS.to_owned(), note.to_owned()));
}

#[test]
fn json_output_is_the_unchanged_answer() {
    let manager = Scripted::start(&[("/debug/caches", 200, "{\"any\":1}\n")]);
    let address = manager.address.to_string();
    let printed = run(&["-o", "json", "caches", "--address", &address]);
    assert_eq!(printed, (Exit::Success, "{\"any\":1}\n".to_owned(), String::new()));
}

#[test]
fn the_answer_of_a_standby_comes_with_a_command_for_the_leader() {
    let queue = QUEUE.replace(r#""leading":true"#, r#""leading":false"#).replace(":3,", ":2,");
    let standby = r#"{"identity":"web-1_a","leader":"web-0_b","pod":"web-0","namespace":"shop"}"#;
    let manager = Scripted::start_with(
        None,
        Some(standby),
        &[
            ("/debug/controllers/orders/queue?", 200, &queue),
            ("/debug/controllers/orders/reconcile", 200, "{\"matched\":1}\n"),
            ("/debug/prices/milk", 200, "3\n"),
        ],
    );
    let address = manager.address.to_string();
    let note = |command: &str| {
        format!(
            "this replica (web-1_a) is a standby and reconciles nothing; the leader is web-0_b. Ask it:\n  \
             kubectl exec -n shop web-0 -- shop {command}\n"
        )
    };
    for (command, out) in [
        ("inspect queue orders", ROWS),
        ("inspect queue orders -o json", &*queue),
        ("inspect reconcile orders shop/web", "1 key on the queue\n"),
        ("price milk", "it costs 3\n"),
        ("price milk -o json", "3\n"),
    ] {
        let args: Vec<_> = command.split(' ').chain(["--address", &address]).collect();
        assert_eq!(run_whole(&args), (Exit::Success, out.to_owned(), note(command)), "{command}");
    }
}

/// A standard output that is closed after two pages.
#[derive(Default)]
struct TwoPages(Vec<u8>, u8);

impl std::io::Write for TwoPages {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1 == 2 { Err(std::io::ErrorKind::BrokenPipe.into()) } else { self.0.write(bytes) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.1 += 1;
        Ok(())
    }
}

#[test]
fn watching_json_prints_the_standby_note_once() {
    let standby = r#"{"identity":"web-1_a","leader":null,"pod":null,"namespace":null}"#;
    let manager = Scripted::start_with(None, Some(standby), &[("/debug/caches", 200, "{}\n")]);
    let address = manager.address.to_string();
    let mut out = TwoPages::default();
    let args = ["inspect", "caches", "-w", "-o", "json", "--address", &address];
    let note = "this replica (web-1_a) is a standby and reconciles nothing; the leader is unknown\n";
    assert_eq!(run_into(&args, &mut out), (Exit::Success, note.to_owned()));
    assert_eq!(String::from_utf8(out.0).unwrap(), "{}\n{}\n");
}

#[test]
fn controllers_caches_config_and_leader_are_printed_as_tables() {
    let counts = r#"{"ready":{"live":1,"background":2,"retry":3},"delayed":4,"running":5,"dirty":1,"parked":6,
        "paused":0,"oldestReadySeconds":1.25,"shuttingDown":false}"#;
    let controllers = format!(
        r#"{{"controllers":[{{"name":"orders","workers":2,"needsLease":true,"leading":true,"synced":true,
        "enabled":true,"paused":false,"queue":{counts}}}]}}"#
    );
    let caches = r#"{"caches":[{"cluster":null,"kind":"Deployment.apps","version":"v1","scope":"all",
        "projection":"full","synced":true,"downSeconds":65,"lastError":"connection refused","absent":false,
        "objects":3,"bytes":4096,"tooLarge":0,"packed":null,"restarts":0,"relists":1,"events":9,
        "lastEventSeconds":66,"decodeErrors":0,
        "leftOut":{"shop/big":"too long"},"handlers":{},"unindexed":{}}]}"#;
    let leader = r#"{"identity":"web-0_b","lease":{"namespace":"shop","name":"orders"},"leading":true,
        "holder":"web-0_b","transitions":3,"lost":null,"fenceOpen":true,"fenceSeconds":12.5,
        "holderSeconds":65,"history":[
        {"secondsAgo":65,"event":"becameLeader","identity":"web-0_b","reason":null},
        {"secondsAgo":70,"event":"newHolder","identity":null,"reason":null},
        {"secondsAgo":700,"event":"stoppedLeading","identity":"web-0_b","reason":"expired"}]}"#;
    let config = r#"{"file":"m.yaml","hash":"","loadedSeconds":1,"refused":{"secondsAgo":1,"problems":[]},
        "restartNeeded":[],"settings":[{"path":"cache.namespaces","value":[],"from":"default","live":false},
        {"path":"logging.level","value":"warn","from":"file","live":true}]}"#;
    let manager = Scripted::start(&[
        ("/debug/config", 200, config),
        ("/debug/controllers", 200, &controllers),
        ("/debug/caches", 200, caches),
        ("/debug/leader", 200, leader),
    ]);
    let address = manager.address.to_string();
    for (page, expected) in [
        (
            "controllers",
            "NAME     STATE     WORKERS   READY   RUNNING   DELAYED   PARKED   OLDEST READY\n\
             orders   working   2         6       5         4         6        1.2s\n",
        ),
        (
            "caches",
            "CLUSTER   KIND              SCOPE   PROJECTION   STATE   OBJECTS   BYTES   LAST EVENT   \
             RELISTS   LEFT OUT   LAST ERROR\n\
             -         Deployment.apps   all     full         down    3         4096    1m06s        \
             1         1          connection refused\n",
        ),
        (
            "config",
            "SETTING            VALUE   FROM      A CHANGE APPLIES\n\
             cache.namespaces   []      default   at next start\n\
             logging.level      warn    file      live\n",
        ),
        (
            "leader",
            "WHAT              VALUE         FOR\n\
             identity          web-0_b       -\n\
             lease             shop/orders   -\n\
             leading           yes           -\n\
             holder            web-0_b       1m05s\n\
             transitions       3             -\n\
             last term ended   -             -\n\
             writes allowed    yes           12s\n\
             \n\
             1m05s ago: web-0_b became leader\n\
             1m10s ago: no replica holds the Lease\n\
             11m40s ago: web-0_b stopped leading (expired)\n",
        ),
    ] {
        assert_eq!(run(&[page, "--address", &address]), (Exit::Success, expected.to_owned(), String::new()));
    }
}

#[test]
fn a_wrong_argument_is_refused_with_the_expected_values() {
    let (exit, out, err) = run(&["queue", "orders", "--state", "broken"]);
    assert_eq!((exit, out), (Exit::WrongInput, String::new()));
    let known = "[possible values: delayed, backoff, requeued, parked, running, dirty, ready]";
    assert!(err.contains(known), "{err}");
    let refusal = r#"{"error":"controller \"order\" does not run here; running: orders"}"#;
    let manager = Scripted::start(&[("/debug/controllers/order/queue?", 404, refusal)]);
    let address = manager.address.to_string();
    let expected = "error: controller \"order\" does not run here; running: orders\n".to_owned();
    assert_eq!(run(&["queue", "order", "--address", &address]), (Exit::WrongInput, String::new(), expected));
}

#[test]
fn an_action_is_posted_and_its_answer_printed() {
    let manager = Scripted::start(&[
        ("/debug/controllers/a%2Fb/reconcile", 200, "{\"matched\":1}\n"),
        ("/debug/log", 200, "{\"level\":\"debug\"}\n"),
    ]);
    let address = manager.address.to_string();
    let printed = |text: &str| (Exit::Success, text.to_owned(), String::new());
    let reconcile = ["reconcile", "a/b", "shop/web", "--address", &address];
    assert_eq!(run(&reconcile), printed("1 key on the queue\n"));
    assert_eq!(run(&[&reconcile[..], &["-o", "json"]].concat()), printed("{\"matched\":1}\n"));
    assert_eq!(run(&["log", "debug", "--address", &address]), printed("{\"level\":\"debug\"}\n"));
    let (exit, _, err) = run(&[&reconcile[..], &["-w"]].concat());
    assert_eq!((exit, &*err), (Exit::WrongInput, "error: -w works only with pages; remove it\n"));
}

#[test]
fn an_object_is_named_as_in_the_table() {
    for (key, namespace, name) in [("shop/web", "shop", "web"), ("node", "", "node")] {
        let action = Action::Reconcile { controller: "orders".to_owned(), key: key.to_owned() };
        let body = json!({"namespace": namespace, "name": name});
        assert_eq!(action.request(), ("/debug/controllers/orders/reconcile".to_owned(), body));
    }
    assert_eq!(Action::text(r#"{"matched":0}"#.to_owned()), "0 keys on the queue\n");
}

#[test]
fn watching_prints_changed_and_vanished_rows_but_not_ageing_values() {
    let table = |keys: &[(&str, u32, f64)], matched: usize| {
        let keys: Vec<_> = keys
            .iter()
            .map(|(key, attempts, next)| {
                json!({"key": key, "namespace": null, "name": key, "state": "backoff", "lane": null,
                    "attempts": attempts, "sinceSeconds": 1.0, "nextRunSeconds": next, "reason": null,
                    "lastError": "no", "lastDurationSeconds": null, "cause": "generic"})
            })
            .collect();
        let mut page: Value = serde_json::from_str(QUEUE).unwrap();
        (page["matched"], page["keys"]) = (matched.into(), keys.into());
        tables::queue(&serde_json::from_value(page).unwrap())
    };
    let (mut follower, mut err) = (follow::Follower::default(), Vec::new());
    let mut output = Output { command: Vec::new(), out: &mut Vec::new(), err: &mut err };
    let mut changed_rows = |table: &Table| follower.changed_rows(table, &mut output);
    let first = changed_rows(&table(&[("a", 1, 9.0), ("b", 1, 9.0)], 2));
    assert_eq!(first.lines().count(), 3, "{first}");
    assert_eq!(changed_rows(&table(&[("a", 1, 8.0), ("b", 1, 8.0)], 2)), "");
    assert_eq!(
        changed_rows(&table(&[("a", 2, 20.0), ("c", 1, 9.0)], 2)),
        "a     backoff   2          20s    1.0s    -      generic   no\n\
         c     backoff   1          9.0s   1.0s    -      generic   no\n\
         b     gone      -          -      -       -      -         -\n"
    );
    assert_eq!(changed_rows(&table(&[("a", 2, 19.0)], 2)), "", "c may be beyond the limit");
    assert_eq!(
        String::from_utf8(err).unwrap(),
        "2 match, 1 shown; raise --limit, or go through pages with --sort name\n"
    );
}

#[test]
fn a_page_command_prints_a_page_of_the_program() {
    let manager = Scripted::start(&[("/debug/prices/milk", 200, "3\n"), ("/debug/prices/tea", 200, "{}\n")]);
    let address = manager.address.to_string();
    let ask = |args: &[&str]| run_whole(&[&["price", "--address", &address], args].concat());
    let printed = |text: &str| (Exit::Success, text.to_owned(), String::new());
    assert_eq!(ask(&["milk"]), printed("it costs 3\n"));
    assert_eq!(ask(&["milk", "-o", "json"]), printed("3\n"));
    let (exit, out, err) = ask(&["tea"]);
    assert_eq!((exit, out.as_str()), (Exit::Failure, ""));
    assert!(err.contains("this version cannot read the answer to /debug/prices/tea"), "{err}");
    let refused = (Exit::WrongInput, String::new(), "error: no product \"coal\"\n".to_owned());
    assert_eq!(ask(&["coal"]), refused);
    assert_eq!(manager.paths(), ["/debug/prices/milk", "/debug/prices/milk", "/debug/prices/tea"]);
}
