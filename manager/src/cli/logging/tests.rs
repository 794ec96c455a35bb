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
fn text_is_one_line_per_event_with_its_fields() {
    let lines = logged(LogFormat::Text, "info", |_| {
        let _span = info_span!("reconcile", namespace = "shop", name = "cart").entered();
        info!(target: "mainstay::controller", attempt = 2, "Reconciled");
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["INFO", "shop", "cart", "Reconciled", "attempt"] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
}
