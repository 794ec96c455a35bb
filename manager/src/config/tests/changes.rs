//! Origins of values and differences of configurations, for every key.

use serde_json::{Map, json};

use super::*;

fn load(body: &str, overrides: &Overrides) -> Loaded {
    shop_schema().parse(&format!("{HEAD}{body}"), "m.yaml", overrides).unwrap()
}

/// Makes a document of settings.
fn document(settings: &[Setting]) -> String {
    let mut root = json!({"apiVersion": API_VERSION, "kind": KIND});
    for setting in settings {
        // The names of these tests contain no dots, so that quotes are not needed: `controllers.*.queue`.
        let path = setting.path.replace("[\"", ".").replace("\"]", "");
        let (sections, key) = path.rsplit_once('.').unwrap();
        let section = sections.split('.').fold(&mut root, |node, name| {
            node.as_object_mut().unwrap().entry(name).or_insert_with(|| Map::new().into())
        });
        section[key] = setting.value.clone();
    }
    root.to_string()
}

/// A file with another value than the default for every key.
pub(super) const RICH: &str = r#"leaderElection:
  {enabled: false, leaseName: a.b, namespace: shop, leaseDuration: 60s, renewDeadline: 11s, retryPeriod: 3s,
   onLost: Campaign}
health: {bindAddress: "[::1]:81"}
metrics: {bindAddress: "", auth: true, tlsDir: /tls}
inspect: {bindAddress: "10.0.0.1:82", tokenFile: /token, auth: true, tlsDir: /tls, peers: true}
cache: {namespaces: [shop, bank], resync: 0s, maxObjectBytes: 1536Ki, pack: Never}
shutdown: {gracePeriod: 1m1s500ms}
logging: {format: Text, level: "warn,mainstay::queue=trace"}
shop: {currency: USD, maxOrders: 7, patience: 2m, prices: {apple: 3}, counter: {regions: [north], open: true}}
controllers:
  "*":
    {enabled: false, paused: true, workers: 3, reconcileTimeout: 0s, queue: {
      retry: {baseDelay: 1s, factor: 1.5, maxDelay: 24h, jitter: 0, maxAttempts: 9}, retryShare: 20,
      retryRate: {perSecond: 0.5, burst: 10}, maxWait: 1h, maxDepth: 7}}
  web: {queue: {retryRate: {burst: 20}}}
  slow-web: {workers: 1, queue: {retryRate: null}}
"#;

/// The settings list every key, so that a document of them parses to the same configuration.
#[test]
fn a_serialized_configuration_parses_to_the_same_configuration() {
    for body in ["", RICH] {
        let loaded = load(body, &Overrides::default());
        let text = document(&loaded.settings());
        let again = shop_schema().parse(&text, "again", &Overrides::default());
        assert_eq!(again.unwrap().configuration, loaded.configuration, "{text}");
    }
    let rich = load(RICH, &Overrides::default()).settings();
    let unchanged: Vec<_> = rich.iter().filter(|setting| setting.origin == Origin::Default).collect();
    let other_forms = ["fastSlow", "fixed"].map(|form| format!("controllers[\"*\"].queue.retry.{form}"));
    assert_eq!(
        unchanged.iter().map(|setting| &*setting.path).collect::<Vec<_>>(),
        other_forms,
        "the file changes every other key"
    );
}

#[test]
fn each_value_has_its_origin() {
    let overrides = Overrides { log_level: Some("debug".parse().unwrap()), ..Overrides::default() };
    let loaded = load(
        "logging: {level: info, format: Text}\ncontrollers:\n  \"*\": {workers: 3}\n  web: {queue: \
         {retryShare: 9}}\n",
        &overrides,
    );
    let settings = loaded.settings();
    let from = |path: &str| {
        let setting = settings.iter().find(|setting| setting.path == path).unwrap();
        format!("{} from {}", setting.value, setting.origin)
    };
    assert_eq!(from("logging.level"), r#""debug" from flag --log-level"#);
    assert_eq!(from("logging.format"), r#""Text" from file"#);
    assert_eq!(from(r#"controllers["*"].workers"#), "3 from file");
    assert_eq!(from(r#"controllers["*"].queue.retryShare"#), "10 from default");
    assert_eq!(from("controllers.web.queue.retryShare"), "9 from file");
    let by_code = Loaded::from(ManagerConfiguration::default());
    assert!(by_code.settings().iter().all(|setting| setting.origin == Origin::Code));
    // The hash of an empty text by `sha256sum`.
    let empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(crate::util::sha256(b""), empty_hash);
    assert_ne!(loaded.hash, empty_hash);
}

#[test]
fn settings_that_only_code_can_make_are_listed() {
    let loaded =
        load("controllers: {web: {queue: {retryRate: {burst: 9, perSecond: 1}}}}\n", &Overrides::default());
    let settings = |name: &str| {
        loaded.controller(name, |code| {
            code.queue.retry.delay =
                Delay::FastSlow { fast: Time::from_micros(1500), slow: Time::from_secs(1), max_fast: 3 };
            code.queue.retry.rate = Some(Rate { per_second: 0.5, burst: 4 });
        })
    };
    let of = |settings: Vec<Setting>, path: &str| {
        let setting = settings.into_iter().find(|setting| setting.path == path).unwrap();
        format!("{} from {}", setting.value, setting.origin)
    };
    assert_eq!(of(settings("api"), "controllers.api.queue.retry.fastSlow.fast"), r#""1ms500µs" from code"#);
    assert_eq!(of(settings("api"), "controllers.api.queue.retry.fastSlow.maxFast"), "3 from code");
    assert_eq!(of(settings("api"), "controllers.api.queue.retryRate.perSecond"), "0.5 from code");
    assert_eq!(of(settings("web"), "controllers.web.queue.retryRate.perSecond"), "1.0 from file");
    assert_eq!(of(settings("web"), "controllers.web.enabled"), "true from default");
}

#[test]
fn a_change_lists_live_keys_and_keys_for_the_next_start() {
    let read = |body: &str| load(body, &Overrides::default()).configuration;
    let old = read("controllers: {api: {workers: 4}, web: {workers: 1}}\n");
    let new = read(
        "cache: {namespaces: [shop]}\nlogging: {format: Text, level: debug}\nleaderElection: {namespace: \
         shop}\n\
         controllers: {\"*\": {queue: {retryRate: {perSecond: 5, burst: 9}}}, web: {workers: 2}}\n",
    );
    let lines = |differences: &[Difference]| differences.iter().map(ToString::to_string).collect::<Vec<_>>();
    let change = Change::between(&old, &new);
    assert_eq!(
        lines(&change.live),
        [
            r#"controllers["*"].queue.retryRate null -> {"burst":9,"perSecond":5.0}"#,
            "controllers.api.workers 4 -> unset",
            "controllers.web.workers 1 -> 2",
            "logging.level info -> debug",
        ]
    );
    assert_eq!(
        lines(&change.restart),
        [
            r#"cache.namespaces [] -> ["shop"]"#,
            r#"leaderElection.namespace "" -> shop"#,
            "logging.format Json -> Text",
        ]
    );
    assert!(Change::between(&old, &old).is_empty());
}

/// Returns the keys of a schema, each with its path, its place in a document, and whether it applies live.
fn keys(schema: &Json, path: &str, place: &[&str], found: &mut Vec<(String, Vec<String>, bool)>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let (path, place) = (messages::child(path, name), [place, &[name]].concat());
        match schema["x-mainstay-applies"].as_str() {
            Some(when) => {
                assert!(matches!(when, "live" | "restart"), "{path}: {when}");
                found.push((path, place.into_iter().map(str::to_owned).collect(), when == "live"));
            }
            None => keys(schema, &path, &place, found),
        }
    }
}

#[test]
fn each_key_applies_at_the_time_in_the_schema() {
    let (old, schema) = (load("", &Overrides::default()).configuration, shop_schema().json());
    let rich = load(RICH, &Overrides::default()).configuration.tree();
    let mut all = Vec::new();
    keys(&schema, "", &[], &mut all);
    keys(&schema["$defs"]["controller"], r#"controllers["*"]"#, &["controllers", "*"], &mut all);
    assert!(all.len() > 40, "{all:?}");
    for (path, place, live) in all {
        let pointer = format!("/{}", place.join("/"));
        let other = match &*path {
            r#"controllers["*"].queue.retry.fixed"# => &json!("5s"),
            r#"controllers["*"].queue.retry.fastSlow"# => &json!({"fast": "1s", "slow": "2s", "maxFast": 3}),
            _ => rich.pointer(&pointer).unwrap_or_else(|| panic!("the rich file has no {path}")),
        };
        let mut document = match &*path {
            // These keys are refused without other keys of the section.
            "inspect.bindAddress" | "inspect.peers" => json!({"inspect": rich["inspect"]}),
            _ => place.iter().rev().fold(other.clone(), |value, name| json!({name.as_str(): value})),
        };
        (document["apiVersion"], document["kind"]) = (API_VERSION.into(), KIND.into());
        let new = shop_schema().parse(&document.to_string(), "m.yaml", &Overrides::default());
        let new = new.unwrap_or_else(|error| panic!("{path}: {error}")).configuration;
        let change = Change::between(&old, &new);
        let (applied, waits) =
            if live { (&change.live, &change.restart) } else { (&change.restart, &change.live) };
        assert!(waits.is_empty() && !applied.is_empty(), "{path}: {change:?}");
        assert!(applied.iter().any(|difference| difference.path.starts_with(&path)), "{path}: {change:?}");
        assert_eq!(old.reloaded(&new), if live { new } else { old.clone() }, "{path}");
    }
}

#[test]
fn a_reload_applies_only_the_live_keys_of_a_file_that_changes_all() {
    let (old, new) =
        (load("", &Overrides::default()).configuration, load(RICH, &Overrides::default()).configuration);
    let all = Change::between(&old, &new);
    let in_force = old.reloaded(&new);
    assert_eq!(Change::between(&old, &in_force), Change { live: all.live.clone(), restart: Vec::new() });
    assert_eq!(Change::between(&in_force, &new), Change { live: Vec::new(), restart: all.restart });
    let shop = in_force.section::<Shop>("shop").unwrap();
    assert_eq!((&*shop.currency, shop.max_orders), ("EUR", 7));
    assert_eq!((shop.counter.regions.len(), shop.counter.open), (0, true));
    assert!(in_force.controllers.every.enabled && in_force.controllers.every.paused);
}

#[test]
fn a_disabled_controller_stays_disabled_until_the_next_start() {
    let read = |body: &str| load(body, &Overrides::default()).configuration;
    let (off, on) =
        (read("controllers: {web: {enabled: false, workers: 1}}"), read("controllers: {api: {workers: 1}}"));
    let in_force = off.reloaded(&on);
    assert!(!in_force.controller("web").enabled && in_force.controller("api").enabled);
    assert_eq!(in_force.controller("web").workers, 2);
    let lines: Vec<_> = Change::between(&in_force, &on).restart.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["controllers.web.enabled false -> unset"]);
    assert!(on.reloaded(&off).controller("web").enabled);
}
