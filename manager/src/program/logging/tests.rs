use std::fmt::Write as _;
use std::time::Duration;

use tracing::{debug, error, info, info_span, warn};

use super::*;
use crate::util::tests::Lines;

/// Sends each line on a channel.
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

fn noon(writer: &mut Writer<'_>) -> fmt::Result {
    writer.write_str("2026-01-02T12:00:00.000042Z")
}

/// Runs `work` under a subscriber and returns the lines it logged.
fn logged(format: LogFormat, level: &str, work: impl FnOnce(&LogHandle)) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let logging = Logging { format, level: level.parse().unwrap() };
    let limit = LineLimit::new(Duration::from_millis(1));
    let (subscriber, handle) = build(&logging, move || writer.clone(), noon, false, limit);
    // With a single subscriber, tracing caches the interest of the thread that first logs a line, which may
    // be a test without a subscriber. With two it queries both each time.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || work(&handle));
    lines.read()
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
        error!(
            target: "mainstay::controller",
            error = &refused as &dyn std::error::Error, attempt = 2, took = 1.5, retried = true,
            "Reconciler \"failed\""
        );
    });
    assert_eq!(
        lines,
        [concat!(
            r#"{"ts":"2026-01-02T12:00:00.000042Z","level":"error","msg":"Reconciler \"failed\"","#,
            r#""logger":"mainstay::controller","controller":"web","namespace":"shop","name":"cart","#,
            r#""reconcileID":"r-1","attempt":2,"result":"error","retried":true,"took":1.5,"#,
            r#""error":"apply refused: an error occurred when formatting an argument"}"#,
        )]
    );
}

#[test]
fn a_field_never_replaces_a_key_of_the_line() {
    let lines =
        logged(LogFormat::Json, "info", |_| info!(target: "t", ts = 1, level = "high", msg = "m\n", "Said"));
    let expected = concat!(
        r#"{"ts":"2026-01-02T12:00:00.000042Z","level":"info","msg":"Said","logger":"t","#,
        r#""level_":"high","msg_":"m\n","ts_":1}"#,
    );
    assert_eq!(lines, [expected]);
    let parsed: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(parsed["msg"], "Said");
}

#[test]
fn levels_apply_by_module_and_can_be_changed_while_running() {
    let lines = logged(LogFormat::Json, "warn,mainstay::queue=debug", |handle| {
        info!(target: "mainstay::cache", "no 1");
        debug!(target: "mainstay::queue::lanes", "yes 1");
        warn!(target: "hyper", "yes 2");
        handle.set_log_level(&"off".parse().unwrap()).unwrap();
        warn!(target: "mainstay::queue", "no 2");
        handle.set_log_level(&"info".parse().unwrap()).unwrap();
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
fn libraries_that_quote_peers_log_details_only_if_named() {
    let logged_words = |level: &str| {
        let lines = logged(LogFormat::Text, level, |_| {
            debug!(target: "h2::codec", "frame");
            debug!(target: "hickory_net::udp", "answer");
            info!(target: "h2::client", "connected");
            debug!(target: "mainstay::queue", "own");
        });
        let has = |word: &&str| lines.iter().any(|line| line.contains(*word));
        ["frame", "answer", "connected", "own"].into_iter().filter(has).collect::<Vec<_>>()
    };
    assert_eq!(logged_words("trace"), ["connected", "own"]);
    assert_eq!(logged_words("debug,h2=trace"), ["frame", "connected", "own"]);
    assert_eq!(logged_words("warn,hickory_net=debug"), ["answer"]);
}

#[test]
fn text_is_one_line_per_event_with_its_fields() {
    let lines = logged(LogFormat::Text, "info", |_| {
        let _span = info_span!("reconcile", namespace = "shop", name = "cart").entered();
        info!(target: "mainstay::controller", attempt = 2, error = "a \"b\"\u{9b}", "Reconciled\n\x1b[31m");
    });
    let expected = concat!(
        r#"2026-01-02T12:00:00.000042Z  INFO reconcile{namespace="shop" name="cart"}: "#,
        r#"mainstay::controller: Reconciled\n\u{1b}[31m attempt=2 error="a \"b\"\u{9b}""#,
    );
    assert_eq!(lines, [expected]);
}

/// A value with every control character, and with a `Display` that fails at the end.
struct Controls;

impl fmt::Display for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        controls().chars().try_for_each(|letter| f.write_char(letter))?;
        Err(fmt::Error)
    }
}

fn controls() -> String {
    (0_u32..0x250).filter_map(char::from_u32).chain("\u{2028}😀".chars()).collect()
}

#[test]
fn control_characters_of_values_are_escaped() {
    for format in [LogFormat::Json, LogFormat::Text] {
        let lines = logged(format, "info", |_| {
            let _span = info_span!("reconcile", name = controls(), namespace = %Controls).entered();
            info!(target: "t", error = %Controls, kind = controls(), "{}", controls());
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(!lines[0].contains(char::is_control), "{lines:?}");
        if format == LogFormat::Json {
            let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
            for key in ["msg", "name", "namespace", "error", "kind"] {
                assert_eq!(line[key], controls(), "{key}");
            }
        }
    }
}

#[test]
fn a_repeatedly_recorded_field_is_replaced() {
    let lines = logged(LogFormat::Json, "info", |_| {
        let span = info_span!("task", name = "cart", progress = 0);
        let _entered = span.enter();
        for progress in 1..1_000 {
            span.record("progress", progress);
        }
        info!(target: "t", "done");
    });
    assert_eq!(lines.len(), 1);
    assert!(lines[0].ends_with(r#""msg":"done","logger":"t","name":"cart","progress":999}"#), "{lines:?}");
}

/// Returns the lines with this message.
fn with_message(lines: &[String], message: &str) -> Vec<serde_json::Value> {
    let lines = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter(|line| line["msg"] == message).collect()
}

#[test]
fn repeated_warnings_and_errors_are_limited_and_counted() {
    let began = tokio::time::Instant::now();
    let lines = logged(LogFormat::Json, "debug", |log| {
        for controller in ["noisy", "quiet"] {
            for attempt in 0..if controller == "noisy" { 1_000 } else { 1 } {
                let _span = info_span!("reconcile", controller, attempt).entered();
                error!(target: "t", "reconcile failed");
                info!(target: "t", "wrote the Deployment");
                debug!(target: "t", "requested");
            }
        }
        // The kind, here a field of the event, is part of the key too.
        for attempt in 0..1_000 {
            warn!(target: "t", attempt, kind = if attempt < 999 { "Pod" } else { "Node" }, "watch failed");
        }
        log.flush();
    });
    // On a slow machine the limit allows some more lines meanwhile.
    let due = usize::try_from(100 + began.elapsed().as_millis() / 100 + 1).unwrap();
    let of = |message: &str, field: &str, value: &str| {
        with_message(&lines, message).iter().filter(|line| line[field] == value).count()
    };
    let noisy = of("reconcile failed", "controller", "noisy");
    assert!((100..=due).contains(&noisy), "{noisy} lines, {due} were due");
    assert_eq!(of("reconcile failed", "controller", "quiet"), 1, "another controller");
    assert!(of("watch failed", "kind", "Pod") <= due);
    assert_eq!(of("watch failed", "kind", "Node"), 1, "another kind");
    for all in ["wrote the Deployment", "requested"] {
        assert_eq!(of(all, "controller", "noisy"), 1_000, "{all}: lines below a warning are not limited");
    }
    // Each line left out is counted in a report.
    let reports = with_message(&lines, "lines were left out");
    let counted = |field: &str, value: &str| {
        let of = reports.iter().filter(|line| line[field] == value);
        of.filter_map(|line| line["left_out"].as_u64()).sum::<u64>()
    };
    assert_eq!(counted("controller", "noisy"), 1_000 - u64::try_from(noisy).unwrap());
    assert_eq!(counted("kind", "Pod"), 999 - u64::try_from(of("watch failed", "kind", "Pod")).unwrap());
    let failures = reports.iter().find(|report| report["line"] == "reconcile failed").expect("a report");
    assert_eq!((&failures["level"], &failures["controller"]), (&"error".into(), &"noisy".into()));
    let watches = reports.iter().find(|report| report["line"] == "watch failed").expect("a report");
    assert_eq!((&watches["level"], &watches["kind"]), (&"warn".into(), &"Pod".into()));
}

#[test]
fn lines_left_out_of_one_module_are_reported_while_others_log_only_errors() {
    let lines = logged(LogFormat::Json, "error,shop=warn", |handle| {
        (0..1_000).for_each(|_| warn!(target: "shop::orders", "order failed"));
        handle.flush();
    });
    assert!(lines.iter().any(|line| line.contains("lines were left out")), "{} lines", lines.len());
}

#[test]
fn lines_that_were_left_out_are_reported_while_the_process_runs() {
    let (reports, reported) = std::sync::mpsc::channel();
    let all = 10_000;
    let writer = move || Sender(reports.clone());
    let logging = Logging { format: LogFormat::Json, level: "info".parse().unwrap() };
    let limit = LineLimit::new(Duration::from_millis(1));
    let (subscriber, _handle) = build(&logging, writer, noon, false, limit);
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..all {
            error!(target: "t", "reconcile failed");
        }
        let mut accounted = 0;
        while accounted < all {
            let line: Vec<u8> = reported.recv_timeout(Duration::from_mins(2)).expect("a report of the rest");
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            accounted +=
                line["left_out"].as_u64().unwrap_or(0) + u64::from(line["msg"] == "reconcile failed");
        }
        assert_eq!(accounted, all);
    });
}
