//! Actions: the reconcile of one object, and the log level.

use super::*;
use crate::util::tests::Lines;

/// State, attempts, reason and cause of a key.
type Found = (String, u64, Value, String);

/// Returns status and text of the answer to a POST from this machine.
fn post(inspect: &Router, path: &str, body: &str) -> (u16, String) {
    let mut request =
        request("POST", "localhost:8082", path).map(|_| Bytes::copy_from_slice(body.as_bytes()));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let response = answer(inspect, request);
    (response.status().as_u16(), String::from_utf8(response.into_body().to_vec()).unwrap())
}

/// Sends an action to the controller `web`, and returns the number of matched keys.
#[track_caller]
fn act(inspect: &Router, action: &str, body: &str) -> u64 {
    let (status, text) = post(inspect, &format!("/debug/controllers/web/{action}"), body);
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["matched"].as_u64().unwrap()
}

/// Returns the key of this name in the queue of the controller `web`; `None` if it is not listed.
fn found(inspect: &Router, name: &str) -> Option<Found> {
    let (_, text) = get(inspect, &format!("/debug/controllers/web/queue?sort=name&name={name}"));
    let page: Value = serde_json::from_str(&text).unwrap();
    let key = page["keys"].as_array().unwrap().first()?.clone();
    let text = |field: &str| key[field].as_str().unwrap().to_owned();
    Some((text("state"), key["attempts"].as_u64().unwrap(), key["reason"].clone(), text("cause")))
}

fn key(state: &str, attempts: u64, reason: Value, cause: &str) -> Found {
    (state.to_owned(), attempts, reason, cause.to_owned())
}

const FAILS: &str = r#"{"namespace":"shop","name":"fails"}"#;

/// Waits, in paused time, until all work that is due has run.
async fn settled() {
    sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_is_reconciled_at_once_in_any_state() {
    let live = Live::start(Term::begun());
    live.notify(&[("shop", "fails"), ("shop", "forbidden")]).await;
    let inspect = inspect(&live.controllers).pages();
    assert_eq!(found(&inspect, "fails"), Some(key("backoff", 1, Value::Null, "generic")));
    assert_eq!(act(&inspect, "reconcile", FAILS), 1);
    settled().await;
    assert_eq!(
        found(&inspect, "fails"),
        Some(key("backoff", 2, Value::Null, "manual")),
        "the backoff counts the failure"
    );
    assert_eq!(act(&inspect, "reconcile", r#"{"namespace":"shop","name":"forbidden"}"#), 1);
    assert_eq!(act(&inspect, "reconcile", r#"{"name":"node"}"#), 1);
    settled().await;
    assert_eq!(found(&inspect, "forbidden"), Some(key("parked", 2, Value::Null, "manual")));
    assert_eq!(
        found(&inspect, "node"),
        Some(key("requeued", 0, Value::Null, "manual")),
        "the key is enqueued"
    );
    live.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_action_is_refused_with_a_reason() {
    let live = Live::start(Term::begun());
    settled().await;
    let inspect = inspect(&live.controllers).pages();
    for (path, body, status, expected) in [
        ("/debug/controllers/wob/reconcile", "{}", 404, "controller \"wob\" does not run here; running: web"),
        ("/debug/controllers/web/reconcile", "{}", 400, "the name is missing; a reconcile is of one object"),
        (
            "/debug/controllers/web/reconcile",
            r#"{"name":""}"#,
            400,
            "the name is missing; a reconcile is of one object",
        ),
        (
            "/debug/controllers/web/reconcile",
            r#"{"nmae":"a"}"#,
            400,
            "the body: unknown field `nmae`, expected `namespace` or `name` at line 1 column 7",
        ),
        (
            "/debug/controllers/web/reconcile",
            "",
            400,
            "the body: EOF while parsing a value at line 1 column 0",
        ),
        (
            "/debug/log",
            r#"{"level":"debug"}"#,
            409,
            "this program does not let the manager change its log level",
        ),
    ] {
        let (code, text) = post(&inspect, path, body);
        let text: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, text["error"].as_str().unwrap()), (status, expected), "{path} {body}");
    }
    live.end().await;
}

#[tokio::test]
async fn cross_site_requests_are_refused() {
    let inspect = inspect(&Directory::default()).pages();
    let status = |headers: &[(&'static str, &'static str)]| {
        let mut request = request("POST", "localhost", "/debug/log");
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        answer(&inspect, request).status().as_u16()
    };
    let json = ("content-type", "application/json");
    assert_eq!(status(&[json]), 400, "only the body is refused");
    assert_eq!(status(&[json, ("origin", "http://localhost:8082")]), 400);
    assert_eq!(status(&[]), 415);
    assert_eq!(status(&[("content-type", "text/plain")]), 415);
    assert_eq!(status(&[("content-type", "application/json, text/plain")]), 415);
    assert_eq!(status(&[json, json]), 415);
    assert_eq!(status(&[json, ("origin", "http://evil.example")]), 403);
    assert_eq!(status(&[json, ("origin", "null")]), 403);
}

#[tokio::test]
async fn the_log_level_is_spelled_as_in_the_file() {
    let set = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&set);
    let set_log_level: Box<SetLogLevel> = Box::new(move |filter| {
        seen.lock().push(filter.to_string());
        Ok(())
    });
    let inspect = Inspect { set_log_level: Some(set_log_level), ..inspect(&Directory::default()) }.pages();
    let answer = post(&inspect, "/debug/log", r#"{"level":"info,mainstay::queue=debug"}"#);
    assert_eq!(answer, (200, "{\"level\":\"info,mainstay::queue=debug\"}\n".to_owned()));
    let (status, text) = post(&inspect, "/debug/log", r#"{"level":"inof"}"#);
    assert!(status == 400 && text.contains(r#"invalid level \"inof\"; expected "#), "{status} {text}");
    assert_eq!(*set.lock(), ["info,mainstay::queue=debug"]);
}

#[tokio::test]
async fn setting_the_log_level_is_logged_also_if_one_of_both_levels_hides_warnings() {
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt as _;
    for (before, after) in [("info", "off"), ("info", "error"), ("off", "info"), ("error", "debug")] {
        let lines = Lines::default();
        let writer = lines.clone();
        let (filter, log) = tracing_subscriber::reload::Layer::new(before.parse::<Targets>().unwrap());
        let written = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(filter).with(written);
        // With a second subscriber tracing does not cache the interest of the thread that first logs a line.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        let _scope = tracing::subscriber::set_default(subscriber);
        let set_log_level: Box<SetLogLevel> = Box::new(move |filter| {
            let filter: Targets = filter.to_string().parse().unwrap();
            log.reload(filter).map_err(|error| error.to_string())
        });
        let inspect =
            Inspect { set_log_level: Some(set_log_level), ..inspect(&Directory::default()) }.pages();
        assert_eq!(post(&inspect, "/debug/log", &format!(r#"{{"level":"{after}"}}"#)).0, 200);
        let lines = lines.read();
        assert_eq!(lines.len(), 1, "{before} to {after}: {lines:?}");
        assert!(lines[0].contains("by hand"), "{lines:?}");
    }
}
