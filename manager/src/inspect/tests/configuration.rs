//! The values in force, and their origins.

use super::*;

use serde_json::json;

use crate::config::{ConfigSchema, Loaded, Overrides, RefusedFile, ReloadStatus};

fn loaded(text: &str) -> Arc<Loaded> {
    let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
    let overrides = Overrides { leader_elect: Some(false), ..Overrides::default() };
    Arc::new(ConfigSchema::new().parse(&format!("{head}{text}"), "m.yaml", &overrides).unwrap())
}

/// Returns value, origin and `live` of a configuration key in the page.
fn row(page: &Value, path: &str) -> Value {
    let settings = page["settings"].as_array().unwrap();
    let row = settings.iter().find(|row| row["path"] == path).unwrap_or_else(|| panic!("no {path}"));
    json!([row["value"], row["from"], row["live"]])
}

#[tokio::test(start_paused = true)]
async fn the_page_has_values_in_force_origins_and_pending_changes() {
    let mut status = ReloadStatus::new(Some("/etc/m.yaml".into()), loaded("cache: {resync: 2h}\n"));
    status.accepted = loaded(
        "cache: {resync: 1h}\nlogging: {level: warn}\n\
         controllers: {\"*\": {workers: 16}, web: {reconcileTimeout: 9s}, other: {workers: 3}}\n",
    );
    let (sender, status) = watch::channel(status);
    let web = |loaded: &Loaded| loaded.controller("web", |code| code.queue.max_depth = 7);
    let configuration = Configuration { status, controllers: Box::new(web) };
    let inspect = Inspect { configuration: Some(configuration), ..inspect(&Directory::default()) }.pages();
    let page = || -> Value {
        let (status, text) = get(&inspect, "/debug/config");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    advance(Duration::from_secs(3)).await;
    let first = page();
    assert_eq!((&first["file"], &first["loadedSeconds"]), (&json!("/etc/m.yaml"), &json!(3.0)));
    assert_eq!(
        (&first["refused"], &first["restartNeeded"]),
        (&Value::Null, &json!(["cache.resync 2h -> 1h"]))
    );
    assert_eq!(first["hash"].as_str().map(str::len), Some(64));
    assert_eq!(row(&first, "cache.resync"), json!(["2h", "file at the start", false]));
    assert_eq!(row(&first, "controllers[\"*\"].workers"), json!([16, "file", true]));
    assert_eq!(row(&first, "controllers.web.workers"), json!([16, "\"*\"", true]));
    assert_eq!(
        row(&first, "controllers.web.queue.maxDepth"),
        json!([7, "code", true]),
        "the file does not have this key"
    );
    assert_eq!(row(&first, "controllers.web.reconcileTimeout"), json!(["9s", "file", true]));
    assert_eq!(row(&first, "controllers.other.workers"), json!([3, "file", true]), "not running");
    let paths: Vec<_> =
        first["settings"].as_array().unwrap().iter().map(|row| row["path"].as_str()).collect();
    assert!(paths.is_sorted_by(|one, next| one < next), "each once: {paths:?}");
    assert_eq!(row(&first, "leaderElection.enabled"), json!([false, "flag --leader-elect", false]));
    assert_eq!(row(&first, "shutdown.gracePeriod"), json!(["30s", "default", true]));
    assert_eq!(row(&first, "logging.level"), json!(["warn", "file", true]));

    sender.send_modify(|status| {
        status.refused = Some(RefusedFile {
            at: tokio::time::Instant::now(),
            problems: vec!["m.yaml:1:1: no".to_owned()],
        });
        status.log_level = Some("debug".parse().unwrap());
    });
    let then = page();
    assert_eq!(then["refused"], json!({"secondsAgo": 0.0, "problems": ["m.yaml:1:1: no"]}));
    assert_eq!(row(&then, "logging.level"), json!(["debug", "action", true]));
}

#[tokio::test]
async fn without_a_configuration_the_page_is_not_found() {
    let (status, text) = get(&inspect(&Directory::default()).pages(), "/debug/config");
    assert_eq!((status, &*text), (404, "{\"error\":\"the configuration is not available\"}\n"));
}
