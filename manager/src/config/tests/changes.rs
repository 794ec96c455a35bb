//! Where values came from, what two configurations differ in, and that both know every key.

use serde_json::{Map, json};

use super::*;

fn load(body: &str, overrides: &Overrides) -> Loaded {
    Loaded::parse(&format!("{HEAD}{body}"), "m.yaml", overrides, None).unwrap()
}

/// Makes the document that these settings come from.
fn document(settings: &[Setting]) -> String {
    let mut root = json!({"apiVersion": API_VERSION, "kind": KIND});
    for setting in settings {
        // `controllers["*"].queue` is `controllers.*.queue` once nobody has to tell a name from a key.
        let path = setting.path.replace("[\"", ".").replace("\"]", "");
        let (sections, key) = path.rsplit_once('.').unwrap();
        let section = sections.split('.').fold(&mut root, |node, name| {
            node.as_object_mut().unwrap().entry(name).or_insert_with(|| Map::new().into())
        });
        section[key] = setting.value.clone();
    }
    root.to_string()
}

pub(super) const RICH: &str = r#"leaderElection: {enabled: false, leaseName: a.b, namespace: shop, leaseDuration: 60s, renewDeadline: 40s, retryPeriod: 3s, onLost: Campaign}
health: {bindAddress: "[::1]:81"}
metrics: {bindAddress: "", auth: true, tlsDir: /tls}
inspect: {bindAddress: "10.0.0.1:82", tokenFile: /token}
cache: {namespaces: [shop, bank], resync: 0s, maxObjectBytes: 1536Ki, pack: Never, kinds: {Pod: {pack: Always}}}
shutdown: {gracePeriod: 1m1s500ms}
logging: {format: Text, level: "warn,mainstay::queue=trace"}
probePolicy: {mode: AllowList, allow: [10.8.0.0/16, "2001:db8::/32", 192.0.2.1, db.example.com, {to: .example.org, namespaces: [shop]}], crossNamespace: [pay], dnsSuffixes: [example.com], resources: [Pod], allowLoopback: true, denied: [10.8.1.0/24], deniedPorts: [22, 25], minPeriod: 1s, maxPerSecond: 7, maxPerSecondPerNamespace: 3, maxPerSecondPerAddress: 2, maxTargetsPerNamespace: 9}
waitDeployment: {notPassedOn: [team, example.com/*]}
controllers:
  "*": {workers: 3, reconcileTimeout: 0s, queue: {retry: {baseDelay: 1s, factor: 1.5, maxDelay: 24h, jitter: 0, maxAttempts: 9}, retryShare: 20, retryRate: {perSecond: 0.5, burst: 10}, maxWait: 1h, maxDepth: 7}}
  web: {queue: {retryRate: {burst: 20}}}
  wait-deployment: {workers: 1, queue: {retryRate: null}}
"#;

/// One list of keys: what is read is written, and reading what was written is the same configuration.
#[test]
fn a_configuration_written_out_reads_as_itself() {
    for body in ["", RICH] {
        let loaded = load(body, &Overrides::default());
        let text = document(&loaded.settings());
        let again = ManagerConfiguration::parse(&text, "again", &Overrides::default(), None);
        assert_eq!(again.unwrap(), loaded.configuration, "{text}");
    }
    let rich = load(RICH, &Overrides::default()).settings();
    let unchanged: Vec<_> = rich.iter().filter(|setting| setting.origin == Origin::Default).collect();
    assert_eq!(unchanged, [] as [&Setting; 0], "the rich file says something else for every key");
}

#[test]
fn each_value_says_where_it_came_from() {
    let overrides = Overrides { log_level: Some("debug".parse().unwrap()), ..Overrides::default() };
    let loaded = load(
        "logging: {level: info, format: Text}\ncontrollers:\n  \"*\": {workers: 3}\n  web: {queue: {retryShare: 9}}\n",
        &overrides,
    );
    let settings = loaded.settings();
    let from = |path: &str| {
        let setting = settings.iter().find(|setting| setting.path == path).unwrap();
        format!("{} from {}", setting.value, setting.origin)
    };
    assert_eq!(from("logging.level"), r#""debug" from flag --log-level"#);
    assert_eq!(from("logging.format"), r#""Text" from file 3:32"#);
    assert_eq!(from(r#"controllers["*"].workers"#), "3 from file 5:18");
    assert_eq!(from(r#"controllers["*"].queue.retryShare"#), "50 from default");
    assert_eq!(from("controllers.web.queue.retryShare"), "9 from file 6:29");
    let by_code = Loaded::from(ManagerConfiguration::default());
    assert!(by_code.settings().iter().all(|setting| setting.origin == Origin::Code));
    // Of an empty text: what `sha256sum` says of it.
    let empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(loaded::sha256(""), empty_hash);
    assert_ne!(loaded.hash, empty_hash);
}

#[test]
fn what_only_code_can_ask_for_is_shown_too() {
    let loaded =
        load("controllers: {web: {queue: {retryRate: {burst: 9, perSecond: 1}}}}\n", &Overrides::default());
    let settings = |name: &str| {
        loaded.controller(name, |code| {
            let slow = Delay::FastSlow {
                fast: Duration::from_micros(1500),
                slow: Duration::from_secs(1),
                max_fast: 3,
            };
            code.queue.retry.delays = vec![slow, Delay::Fixed(Duration::from_millis(5))];
            code.queue.retry.rates =
                vec![Rate { per_second: 2.0, burst: 3 }, Rate { per_second: 0.5, burst: 4 }];
        })
    };
    let last = |settings: Vec<Setting>, path: &str| {
        let setting = settings.into_iter().find(|setting| setting.path == path).unwrap();
        (setting.value, setting.origin)
    };
    let delays = json!([{"fast": "1.5ms", "slow": "1s", "maxFast": 3}, "5ms"]);
    assert_eq!(last(settings("api"), "controllers.api.queue.retry.delays"), (delays, Origin::Code));
    let rates = json!([{"perSecond": 2, "burst": 3}, {"perSecond": 0.5, "burst": 4}]);
    assert_eq!(last(settings("api"), "controllers.api.queue.retryRate"), (rates, Origin::Code));
    let (rate, origin) = last(settings("web"), "controllers.web.queue.retryRate");
    assert_eq!(rate, json!({"perSecond": 1, "burst": 9}));
    assert!(matches!(origin, Origin::File(_)), "{origin}");
}

#[test]
fn a_change_names_what_applies_live_and_what_waits_for_a_start() {
    let read = |body: &str| load(body, &Overrides::default()).configuration;
    let old = read("controllers: {api: {workers: 4}, web: {workers: 1}}\n");
    let new = read(
        "cache: {namespaces: [shop]}\nlogging: {format: Text, level: debug}\nleaderElection: {namespace: shop}\n\
         controllers: {\"*\": {queue: {retryRate: {perSecond: 5, burst: 9}}}, web: {workers: 2}}\n",
    );
    let lines = |differences: &[Difference]| differences.iter().map(ToString::to_string).collect::<Vec<_>>();
    let change = Change::between(&old, &new);
    assert_eq!(
        lines(&change.live),
        [
            "logging.level info -> debug",
            r#"controllers["*"].queue.retryRate null -> {"burst":9,"perSecond":5}"#,
            "controllers.web.workers 1 -> 2",
            "controllers.api.workers 4 -> unset",
        ]
    );
    assert_eq!(
        lines(&change.restart),
        [
            r#"leaderElection.namespace "" -> shop"#,
            r#"cache.namespaces [] -> ["shop"]"#,
            "logging.format Json -> Text",
        ]
    );
    assert!(Change::between(&old, &old).is_empty());
}

/// The two places that tell live keys from others: each key's own word, and what a reload takes over.
#[test]
fn what_a_reload_takes_over_is_what_is_said_to_apply_live() {
    let (old, new) = (ManagerConfiguration::default(), load(RICH, &Overrides::default()).configuration);
    let all = Change::between(&old, &new);
    let in_force = old.reloaded(&new);
    assert_eq!(Change::between(&old, &in_force), Change { live: all.live.clone(), restart: Vec::new() });
    assert_eq!(Change::between(&in_force, &new), Change { live: Vec::new(), restart: all.restart.clone() });
    let keys = load("", &Overrides::default()).settings();
    let changed = |path: &str| all.live.iter().chain(&all.restart).any(|difference| difference.path == path);
    for key in keys {
        assert!(changed(&key.path), "the rich file has the default for {}", key.path);
    }
}
