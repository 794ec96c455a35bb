use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{debug, error, info, info_span, warn};

use super::*;

/// Keeps what was written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends each line.
struct Sender(std::sync::mpsc::Sender<Vec<u8>>);

impl io::Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).ok();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn noon() -> Timestamp {
    "2026-01-02T12:00:00.000042Z".parse().unwrap()
}

/// Runs `work` under a subscriber and returns the lines it logged.
fn logged(format: LogFormat, level: &str, work: impl FnOnce(&LogHandle)) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let logging = Logging { format, level: level.parse().unwrap() };
    let (subscriber, handle) = subscriber(&logging, move || writer.clone(), noon);
    // While there is but one subscriber, tracing lets the thread that first meets a line decide for all whether anybody
    // wants it, and that may be the thread of a test without one. With two it asks them.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || work(&handle));
    let bytes = lines.0.lock().clone();
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

/// An error with a cause.
#[derive(Debug)]
struct Refused(fmt::Error);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("apply refused")
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn fields_of_spans_and_event_make_one_flat_object_in_a_fixed_order() {
    let lines = logged(LogFormat::Json, "info", |_| {
        let _outer = info_span!("controller", controller = "web", attempt = 1).entered();
        let inner = info_span!(
            "reconcile",
            reconcileID = "r-1",
            name = "cart",
            namespace = "shop",
            result = tracing::field::Empty
        );
        let _entered = inner.enter();
        inner.record("result", "error");
        let refused = Refused(fmt::Error);
        error!(target: "mainstay::controller", error = &refused as &dyn std::error::Error, attempt = 2, took = 1.5, retried = true, "Reconciler \"failed\"");
    });
    assert_eq!(
        lines,
        [concat!(
            r#"{"ts":"2026-01-02T12:00:00.000042Z","level":"error","msg":"Reconciler \"failed\"","logger":"mainstay::controller","#,
            r#""controller":"web","namespace":"shop","name":"cart","reconcileID":"r-1","attempt":2,"result":"error","took":1.5,"#,
            r#""retried":true,"error":"apply refused: an error occurred when formatting an argument"}"#,
        )]
    );
}

#[test]
fn a_field_never_hides_a_key_of_the_line() {
    let lines =
        logged(LogFormat::Json, "info", |_| info!(target: "t", ts = 1, level = "high", msg = "m\n", "Said"));
    let expected = r#"{"ts":"2026-01-02T12:00:00.000042Z","level":"info","msg":"Said","logger":"t","ts_":1,"level_":"high","msg_":"m\n"}"#;
    assert_eq!(lines, [expected]);
    let parsed: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(parsed["msg"], "Said");
}

#[test]
fn levels_hold_by_module_and_can_be_changed_while_running() {
    let lines = logged(LogFormat::Json, "warn,mainstay::queue=debug", |handle| {
        info!(target: "mainstay::cache", "no 1");
        debug!(target: "mainstay::queue::lanes", "yes 1");
        warn!(target: "hyper", "yes 2");
        handle.set(&"off".parse().unwrap()).unwrap();
        warn!(target: "mainstay::queue", "no 2");
        handle.set(&"info".parse().unwrap()).unwrap();
        info!(target: "mainstay::cache", "yes 3");
    });
    let messages: Vec<_> = lines
        .iter()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["msg"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(messages, ["yes 1", "yes 2", "yes 3"]);
}

#[test]
fn what_peers_send_is_logged_only_where_their_library_is_asked_for() {
    let said = |level: &str| {
        let lines = logged(LogFormat::Text, level, |_| {
            debug!(target: "h2::codec", "frame");
            debug!(target: "hickory_net::udp", "answer");
            info!(target: "h2::client", "told");
            debug!(target: "mainstay::queue", "own");
        });
        let has = |word: &&str| lines.iter().any(|line| line.contains(*word));
        ["frame", "answer", "told", "own"].into_iter().filter(has).collect::<Vec<_>>()
    };
    assert_eq!(said("trace"), ["told", "own"]);
    assert_eq!(said("debug,h2=trace"), ["frame", "told", "own"]);
    assert_eq!(said("warn,hickory_net=debug"), ["answer"]);
}

#[test]
fn text_is_one_line_per_event_with_its_fields() {
    let lines = logged(LogFormat::Text, "info", |_| {
        let _span = info_span!("reconcile", namespace = "shop", name = "cart").entered();
        info!(target: "mainstay::controller", attempt = 2, error = "a \"b\"\u{9b}", "Reconciled\n\x1b[31m");
    });
    let expected = r#"2026-01-02T12:00:00.000042Z  INFO mainstay::controller: Reconciled\n\u{1b}[31m namespace="shop" name="cart" attempt=2 error="a \"b\"\u009b""#;
    assert_eq!(lines, [expected]);
}

/// Returns the lines whose text is `said`.
fn saying(lines: &[String], said: &str) -> Vec<serde_json::Value> {
    let lines = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter(|line| line["msg"] == said).collect()
}

#[test]
fn a_complaint_that_repeats_itself_is_left_out_and_counted_and_nothing_else_is() {
    let began = tokio::time::Instant::now();
    let lines = logged(LogFormat::Json, "debug", |log| {
        for controller in ["noisy", "quiet"] {
            for attempt in 0..if controller == "noisy" { 1_000 } else { 1 } {
                let _span = info_span!("reconcile", controller, attempt).entered();
                error!(target: "t", "reconcile failed");
                info!(target: "t", "wrote the Deployment");
                debug!(target: "t", "asked for");
            }
        }
        // Who says it outside the span says it of a controller, or of a kind, all the same.
        for attempt in 0..1_000 {
            warn!(target: "t", attempt, kind = if attempt < 999 { "Pod" } else { "Node" }, "watch failed");
        }
        log.flush();
    });
    // On a slow machine some more have become due meanwhile.
    let due = usize::try_from(100 + began.elapsed().as_millis() / 100 + 1).unwrap();
    let of = |said: &str, field: &str, value: &str| {
        saying(&lines, said).iter().filter(|line| line[field] == value).count()
    };
    let noisy = of("reconcile failed", "controller", "noisy");
    assert!((100..=due).contains(&noisy), "{noisy} lines, {due} were due");
    assert_eq!(of("reconcile failed", "controller", "quiet"), 1, "another controller");
    assert!(of("watch failed", "kind", "Pod") <= due);
    assert_eq!(of("watch failed", "kind", "Node"), 1, "another kind");
    for all in ["wrote the Deployment", "asked for"] {
        assert_eq!(of(all, "controller", "noisy"), 1_000, "{all}: only complaints are left out");
    }
    // Each line left out is told of, by a later one or at the end.
    let told = |field: &str, value: &str| {
        let lines = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let complaints = lines.filter(|line| line[field] == value);
        complaints.filter_map(|line| line["left_out"].as_u64()).sum::<u64>()
    };
    assert_eq!(told("controller", "noisy"), 1_000 - u64::try_from(noisy).unwrap());
    assert_eq!(told("kind", "Pod"), 999 - u64::try_from(of("watch failed", "kind", "Pod")).unwrap());
    // In no order: one for each kind of complaint.
    let rest = saying(&lines, "lines were left out");
    let rest = rest.iter().find(|rest| rest["line"] == "reconcile failed").expect("the rest of the failures");
    assert_eq!((&rest["level"], &rest["logger"]), (&"error".into(), &"t".into()));
    assert_eq!((&rest["controller"], &rest["attempt"]), (&"noisy".into(), &serde_json::Value::Null));
}

#[test]
fn the_end_of_a_flood_is_told_though_no_line_follows() {
    let (sender, told) = std::sync::mpsc::channel::<Vec<u8>>();
    let writer = move || Sender(sender.clone());
    let limit = Limit::new(std::time::Duration::from_millis(1));
    let logging = Logging { format: LogFormat::Json, level: "info".parse().unwrap() };
    let (subscriber, _handle) = build(&logging, Output { writer, now: noon, form: json::form, limit });
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let all = 10_000;
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..all {
            error!(target: "t", "reconcile failed");
        }
    });
    let mut accounted = 0;
    while accounted < all {
        let line =
            told.recv_timeout(std::time::Duration::from_mins(2)).expect("a line that tells of the rest");
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        accounted += line["left_out"].as_u64().unwrap_or(0) + u64::from(line["msg"] == "reconcile failed");
    }
    assert_eq!(accounted, all);
}
