//! Accepted and refused files, and the messages of their problems.

mod changes;
mod described;
pub(crate) mod edits;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration as Time;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;
use crate::queue::{Delay, Rate, RetryPolicy};

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

/// The shop.
///
/// A section of a program, with every kind of key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Shop {
    /// Money.
    pub(crate) currency: String,
    /// The most open orders.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) max_orders: u32,
    /// How long an order may stay open.
    #[schemars(extend("x-mainstay-range" = ["1s", "24h"]))]
    pub(crate) patience: Duration,
    /// Prices by fruit.
    pub(crate) prices: BTreeMap<String, u32>,
    /// The counter.
    pub(crate) counter: Counter,
}

/// The counter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Counter {
    /// Regions it delivers to.
    #[schemars(extend("uniqueItems" = true))]
    pub(crate) regions: Vec<String>,
    /// Whether it is open.
    pub(crate) open: bool,
}

impl Default for Shop {
    fn default() -> Self {
        Self {
            currency: "EUR".to_owned(),
            max_orders: 10,
            patience: Duration::from_secs(60),
            prices: BTreeMap::new(),
            counter: Counter::default(),
        }
    }
}

impl Section for Shop {
    const RESTART: &'static [&'static str] = &["currency", "counter.regions"];

    fn validate(&self) -> Vec<Problem> {
        let free = self.prices.iter().filter(|(_, price)| **price == 0);
        let mut problems: Vec<_> = free
            .map(|(fruit, price)| Problem::new(format!("prices.{fruit}"), price, "a price above 0"))
            .collect();
        if self.currency == "JPY" && self.max_orders > 100 {
            problems.push(Problem::new("maxOrders", &self.max_orders, "at most 100 with currency JPY"));
        }
        problems
    }
}

pub(crate) fn shop_schema() -> ConfigSchema {
    ConfigSchema::new().section::<Shop>("shop")
}

/// Parses a file with the two required keys; `body` starts at line 3.
fn parse(body: &str) -> Result<ManagerConfiguration, String> {
    parse_for(body, &shop_schema())
}

fn parse_for(body: &str, schema: &ConfigSchema) -> Result<ManagerConfiguration, String> {
    let text = format!("{HEAD}{body}");
    let read = schema.parse(&text, "m.yaml", &Overrides::default()).map(|loaded| loaded.configuration);
    if read.is_ok() {
        assert_eq!(described::violations_of(&schema.json(), &text), [] as [&str; 0], "{text}");
    }
    read.map_err(|e| e.to_string())
}

#[track_caller]
fn refused(body: &str, expected: &[&str]) {
    let lines = parse(body).expect_err("accepted");
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_default_file_has_every_key_at_its_default() {
    let text = shop_schema().default_file("shop");
    let loaded = shop_schema().parse(&text, "m.yaml", &Overrides::default()).unwrap();
    let default = parse("").unwrap();
    assert_eq!(loaded.configuration, default);
    for Setting { path, origin, .. } in loaded.settings() {
        assert_eq!(origin, Origin::File, "the default file does not name {path}");
    }
    assert!(text.starts_with("# The configuration of a manager"), "{text}");
    assert!(text.contains("#   shop run --config manager.yaml "), "{text}");
    let section = r#"
# The shop.
# A section of a program, with every kind of key.
shop:
  # Money.
  # Default: EUR. Applied at next start.
  currency: EUR
  # The most open orders.
  # Default: 10. Range: 1 to 1000. Applied live.
  maxOrders: 10
  # How long an order may stay open.
  # Default: 1m. Range: 1s to 24h. Applied live.
  patience: 1m
  # Prices by fruit.
  # Default: {}. Applied live.
  prices: {}
  # The counter.
  counter:
    # Regions it delivers to.
    # Default: []. Applied at next start.
    regions: []
    # Whether it is open.
    # Default: false. Values: true, false. Applied live.
    open: false
"#;
    assert!(text.ends_with(section), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn a_section_of_a_program_is_read_like_a_section_of_the_runtime() {
    let body = "shop: {prices: {apple: 3}, patience: 1h30m, counter: {open: true}}\n";
    let shop = parse(body).unwrap().section::<Shop>("shop").unwrap();
    assert_eq!((shop.prices["apple"], shop.patience.as_secs(), shop.counter.open), (3, 5400, true));
    assert_eq!(shop.currency, "EUR");
    assert_eq!(*parse("shop:\n").unwrap().section::<Shop>("shop").unwrap(), Shop::default());

    let wrong_name = parse("").unwrap().section::<Shop>("shp").unwrap_err();
    assert_eq!(wrong_name.to_string(), "no section \"shp\" is declared; the program has shop");
    let wrong_type = parse("").unwrap().section::<Cache>("shop").unwrap_err();
    assert!(matches!(&wrong_type, SectionError::Type { name, .. } if name == "shop"), "{wrong_type}");
    let unknown = parse_for(body, &ConfigSchema::new());
    assert!(unknown.unwrap_err().starts_with("m.yaml:3:7: shop: unknown key"));

    let taken = ConfigSchema::new().section::<Shop>("cache");
    let message = "m.yaml: cache: this name of a section is one of the runtime; expected another name";
    assert_eq!(parse_for("", &taken).unwrap_err(), message);
}

#[test]
fn value_problems_of_all_sections_are_reported_together() {
    refused(
        r#"leaderElection: {leaseName: A_b, leaseDuration: 2h}
metrics: {tlsDir: ./tls}
inspect: {bindAddress: "10.0.0.1:8082"}
cache: {maxObjectBytes: 1Mi, namespaces: [shop, Shop, shop], resync: 8761h}
shutdown: {gracePeriod: 10ms}
controllers:
  "*": {workers: 0, queue: {retry: {jitter: 101, factor: 0.5}}}
  web: {queue: {retryShare: 0, retryRate: {perSecond: 0.0001, burst: 0}}}
shop: {maxOrders: 1001, patience: 10ms, prices: {apple: 0, pear: 1, plum: 0}, counter: {regions: [a, a]}}
"#,
        &[
            r#"m.yaml: leaderElection.leaseDuration: "2h"; expected a duration from 1s to 1h"#,
            "m.yaml: leaderElection.leaseName: \"A_b\"; expected the name of a Lease: lower-case letters, \
             digits, - and .",
            "m.yaml: leaderElection.leaseDuration: 7200s; expected whole seconds from 1s to 3600s: the Lease \
             stores no fractions",
            "m.yaml: metrics.tlsDir: \"./tls\"; expected an absolute path such as /etc/mainstay/tls, or \"\" \
             for none",
            "m.yaml: inspect.bindAddress: 10.0.0.1:8082 is reachable from other hosts; expected a loopback \
             address such as 127.0.0.1:8082 (use kubectl port-forward), or a required token by \
             inspect.tokenFile or inspect.auth",
            r#"m.yaml: cache.namespaces[2]: "shop"; already listed"#,
            r#"m.yaml: cache.resync: "8761h"; expected a duration from 0s to 8760h"#,
            r#"m.yaml: cache.namespaces[1]: "Shop"; expected the name of a namespace"#,
            r#"m.yaml: shutdown.gracePeriod: "10ms"; expected a duration from 1s to 1h"#,
            r#"m.yaml: controllers["*"].queue.retry.factor: 0.5; expected a number from 1 to 100"#,
            r#"m.yaml: controllers["*"].queue.retry.jitter: 101; expected a whole number from 0 to 100"#,
            r#"m.yaml: controllers["*"].workers: 0; expected a whole number from 1 to 1000"#,
            "m.yaml: controllers.web.queue.retryRate.burst: 0; expected a whole number from 1 to 100000",
            "m.yaml: controllers.web.queue.retryRate.perSecond: 0.0001; expected a number from 0.001 to \
             100000",
            "m.yaml: controllers.web.queue.retryShare: 0; expected a whole number from 1 to 100",
            r#"m.yaml: shop.counter.regions[1]: "a"; already listed"#,
            "m.yaml: shop.maxOrders: 1001; expected a whole number from 1 to 1000",
            r#"m.yaml: shop.patience: "10ms"; expected a duration from 1s to 24h"#,
            "m.yaml: shop.prices.apple: 0; expected a price above 0",
            "m.yaml: shop.prices.plum: 0; expected a price above 0",
        ],
    );
}

/// A value of a wrong type ends the parsing of its section, but not of other sections.
#[test]
fn the_first_value_of_a_wrong_type_in_a_section_is_reported_with_its_position() {
    for (body, expected) in [
        (
            "leaderElection: {leaseDuraton: 15s}",
            "m.yaml:3:18: leaderElection.leaseDuraton: unknown key, set to \"15s\"; did you mean \
             leaseDuration?",
        ),
        (
            "leaderElection: {renewDeadline: 10}",
            "m.yaml:3:33: leaderElection.renewDeadline: 10; expected a duration such as 30s, 5ms, 2m or \
             1h30m, with a unit: 10s or 10ms",
        ),
        (
            "health: {bindAddress: ':8081'}",
            "m.yaml:3:23: health.bindAddress: \":8081\"; expected an IP address with a port such as \
             127.0.0.1:8080 or [::1]:8080, or \"\" for off; for all addresses write 0.0.0.0:8081",
        ),
        (
            "logging:\n  format: json",
            r#"m.yaml:4:11: logging.format: "json"; expected Json or Text; did you mean Json?"#,
        ),
        (
            "logging: {level: inof}",
            "m.yaml:3:18: logging.level: \"inof\"; expected off, error, warn, info, debug or trace, with \
             MODULE=LEVEL after commas for single modules, such as info,mainstay::queue=debug; did you \
             mean info?",
        ),
        (
            "cache: {maxObjectBytes: 8M}",
            "m.yaml:3:25: cache.maxObjectBytes: \"8M\"; expected a size such as 512Ki, 8Mi or 1Gi (units Ki, \
             Mi, Gi)",
        ),
        ("cache: {namespaces: shop}", r#"m.yaml:3:21: cache.namespaces: "shop"; expected a list"#),
        (
            "cache: {resync: -1s}",
            "m.yaml:3:17: cache.resync: \"-1s\"; expected a duration such as 30s, 5ms, 2m or 1h30m (units h, \
             m, s, ms)",
        ),
        (
            "controllers:\n  \"*\":\n    workers: two",
            r#"m.yaml:5:14: controllers["*"].workers: "two"; expected a whole number from 1 to 1000"#,
        ),
        (
            "controllers: {web: {queue: {retry: {fastSlow: {fast: 1s, slow: 3s}}}}}",
            "m.yaml:3:58: controllers.web.queue.retry.fastSlow: has no maxFast",
        ),
        ("metrics: {auth: 1}", "m.yaml:3:17: metrics.auth: 1; expected true or false"),
        ("shop: {counter: [open]}", "m.yaml:3:17: shop.counter: a list of 1; expected a mapping"),
        (
            "shop: {counter: {opne: true}}",
            "m.yaml:3:18: shop.counter.opne: unknown key, set to true; did you mean open?",
        ),
        (
            "shop: {prices: {apple: many}}",
            r#"m.yaml:3:24: shop.prices.apple: "many"; expected a whole number"#,
        ),
        ("shop: 5", "m.yaml:3:7: shop: 5; expected a mapping"),
        (
            "surprise: {a: 1}",
            "m.yaml:3:11: surprise: unknown key, set to a mapping of 1; expected apiVersion, kind, \
             leaderElection, health, metrics, inspect, cache, shutdown, logging, controllers or shop",
        ),
    ] {
        refused(body, &[expected]);
    }
    // One such value in each of two sections, and wrong values in other sections.
    refused(
        "shop: {counter: 1, maxOrders: 0}\nlogging: {format: json}\nshutdown: {gracePeriod: 9h}\n",
        &[
            "m.yaml:3:17: shop.counter: 1; expected a mapping",
            r#"m.yaml:4:19: logging.format: "json"; expected Json or Text; did you mean Json?"#,
            r#"m.yaml: shutdown.gracePeriod: "9h"; expected a duration from 1s to 1h"#,
            "m.yaml: shop.maxOrders: 0; expected a whole number from 1 to 1000",
        ],
    );
}

/// A reloaded file must not fill the memory or the log of a running manager.
#[test]
fn at_most_a_hundred_problems_are_listed_and_the_rest_is_counted() {
    let many: Vec<_> = (0..40_000).map(|n| format!("  c{n}: {{workers: 0}}\n")).collect();
    let lines = parse(&format!("controllers:\n{}", many.concat())).unwrap_err();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 101);
    assert_eq!(lines[0], "m.yaml: controllers.c0.workers: 0; expected a whole number from 1 to 1000");
    assert_eq!(lines[100], "m.yaml: and 39900 more problems");
    let long = format!("controllers: {{{}: {{workers: 0}}}}", "x".repeat(318));
    let short = "x".repeat(60);
    let lines = parse(&long).unwrap_err();
    let expected = format!("m.yaml: controllers: \"{short}\"... as a key; expected at most 317 bytes");
    assert_eq!(lines.lines().next(), Some(&*expected));
}

/// A comparison of each name with all others would take minutes.
#[test]
fn a_long_list_is_read_in_its_order() {
    let names: Vec<_> = (0..100_000).map(|n| format!("n{}", n * 7919 % 100_000)).collect();
    // Without the tests' schema validator, which compares each item with all others.
    let text = format!("{HEAD}cache: {{namespaces: [{}]}}", names.join(", "));
    let read = ConfigSchema::new().parse(&text, "m.yaml", &Overrides::default()).unwrap().configuration;
    assert!(read.cache.namespaces.iter().eq(&names), "the order of the file is kept");
}

#[test]
fn star_is_merged_into_each_controller_key_by_key() {
    let configuration = parse(
        r#"controllers:
  "*":
    workers: 3
    paused: true
    queue: {retry: {baseDelay: 1s}, retryRate: {perSecond: 5, burst: 10}, maxDepth: 7}
  web: {paused: false, queue: {retry: {factor: 1.5}, retryRate: {burst: 20}}}
  idle: {enabled: false, workers: 1, queue: {retryRate: null}}
"#,
    )
    .unwrap();
    let web = configuration.controller("web");
    assert_eq!((web.workers, web.queue.max_depth, web.enabled, web.paused), (3, 7, true, false));
    let exponential =
        Delay::Exponential { base: Time::from_secs(1), factor: 1.5, max: Time::from_secs(1000) };
    assert_eq!(web.queue.retry.delay, exponential);
    assert_eq!(web.queue.retry.rate, Some(Rate { per_second: 5.0, burst: 20 }));
    let idle = configuration.controller("idle");
    assert_eq!((idle.workers, idle.queue.retry.rate, idle.enabled, idle.paused), (1, None, false, true));
    assert_eq!(configuration.controller("other"), configuration.controllers.every);
    assert_eq!(configuration.controllers.every.workers, 3);
}

#[test]
fn file_and_code_can_set_the_same_backoffs() {
    let configuration = parse(
        r#"controllers:
  "*": {queue: {retry: {baseDelay: 1s}}}
  fixed: {queue: {retry: {fixed: 5s, jitter: 0}}}
  steps: {queue: {retry: {fastSlow: {fast: 1s, slow: 30s, maxFast: 5}}}}
  grows: {queue: {retry: {factor: 3}}}
  plain: {queue: {retry: {fixed: null}}}
"#,
    )
    .unwrap();
    let (second, max) = (Time::from_secs(1), Time::from_secs(1000));
    let delay = |name: &str, code: Delay| {
        configuration
            .controllers
            .settings(name, |settings| settings.queue.retry.delay = code)
            .queue
            .retry
            .delay
    };
    let slow = Delay::FastSlow { fast: second, slow: 30 * second, max_fast: 5 };
    assert_eq!(configuration.controller("fixed").queue.retry, RetryPolicy::fixed(5 * second));
    assert_eq!(delay("steps", Delay::default()), slow);
    assert_eq!(
        delay("grows", slow),
        Delay::Exponential { base: second, factor: 3.0, max },
        "base and maximum come from \"*\""
    );
    assert_eq!(delay("plain", Delay::Fixed(second)), Delay::Exponential { base: second, factor: 2.0, max });
    assert_eq!(delay("plain", slow), slow, "null removes only its own form");
    refused(
        "controllers: {web: {queue: {retry: {fixed: 5s, factor: 3}}}}",
        &["m.yaml: controllers.web.queue.retry: has baseDelay, factor and maxDelay, and fixed; expected \
             one form of a backoff"],
    );
}

#[test]
fn conflicting_values_are_refused_and_both_are_named() {
    refused(
        r#"leaderElection: {leaseDuration: 10500ms, renewDeadline: 20s, retryPeriod: 17s}
metrics: {bindAddress: "127.0.0.1:8081"}
controllers:
  web: {queue: {retry: {baseDelay: 9s, maxDelay: 3s}, retryRate: {burst: 5, perSecond: 1}}}
shop: {currency: JPY, maxOrders: 101}
"#,
        &[
            "m.yaml: leaderElection.leaseDuration: 10.5s; expected whole seconds from 1s to 3600s: the Lease \
             stores no fractions",
            "m.yaml: leaderElection.renewDeadline: 20s; expected more than 1.2 x retryPeriod = 20.4s, or \
             there is no second try",
            "m.yaml: leaderElection.renewDeadline: 20s; expected less than leaseDuration 10.5s",
            "m.yaml: metrics.bindAddress: 127.0.0.1:8081 collides with health.bindAddress 0.0.0.0:8081; \
             expected another port or host",
            "m.yaml: controllers.web.queue.retry.baseDelay: 9s is longer than retry.maxDelay 3s; raise \
             maxDelay or lower baseDelay",
            "m.yaml: shop.maxOrders: 101; expected at most 100 with currency JPY",
        ],
    );
    refused(
        "controllers: {web: {queue: {retryRate: {burst: 5}}}}",
        &["m.yaml: controllers.web.queue.retryRate: has no perSecond; expected {perSecond: 50, burst: 200} \
             or null"],
    );
}

#[test]
fn a_conflict_with_star_is_reported_once_for_the_entry_that_causes_it() {
    // Only web has a conflict: its own baseDelay exceeds the maxDelay of "*".
    refused(
        r#"controllers:
  "*": {queue: {retry: {maxDelay: 3s}}}
  web: {queue: {retry: {baseDelay: 9s}}}
  api: {}
"#,
        &["m.yaml: controllers.web.queue.retry.baseDelay: 9s is longer than retry.maxDelay 3s; raise \
             maxDelay or lower baseDelay"],
    );
    // "*" has the conflict itself: it is reported once, not for every controller that inherits it.
    refused(
        "controllers:\n  \"*\": {queue: {retry: {maxDelay: 1ms}}}\n  web: {workers: 1}\n",
        &["m.yaml: controllers[\"*\"].queue.retry.baseDelay: 5ms is longer than retry.maxDelay 1ms; raise \
             maxDelay or lower baseDelay"],
    );
}

#[test]
fn a_misspelt_value_causes_no_further_problems_by_its_default() {
    refused(
        "leaderElection: {leaseDuration: 60, renewDeadline: 40s}\n",
        &["m.yaml:3:33: leaderElection.leaseDuration: 60; expected a duration such as 30s, 5ms, 2m or \
             1h30m, with a unit: 60s or 60ms"],
    );
}

#[test]
fn with_a_token_the_debug_pages_may_listen_on_any_address() {
    let open = "inspect: {bindAddress: \"10.0.0.1:8082\", tokenFile: /run/token}\n";
    let inspect = parse(open).unwrap().inspect;
    assert_eq!(inspect.token_file, Some(PathBuf::from("/run/token")));
    assert_eq!(inspect.bind_address.to_string(), "10.0.0.1:8082");
    // Only the path of the token is reported.
    refused(
        "inspect: {bindAddress: \"10.0.0.1:8082\", tokenFile: run/token}\n",
        &["m.yaml: inspect.tokenFile: \"run/token\"; expected an absolute path such as \
             /etc/mainstay/inspect/token, or \"\" for none"],
    );
}

#[test]
fn inspect_peers_needs_auth_tls_and_a_reachable_address() {
    let whole = r#"inspect: {bindAddress: "0.0.0.0:8082", auth: true, tlsDir: /tls, peers: true}"#;
    assert!(parse(whole).unwrap().inspect.peers);
    let auth = "m.yaml: inspect.auth: false; expected true with inspect.peers: standby and leader both check \
                the caller's token";
    let tls = "m.yaml: inspect.tlsDir: \"\"; expected with inspect.peers a directory of tls.crt and tls.key: \
               tokens are sent to the leader";
    let address = |value: &str| {
        format!(
            "m.yaml: inspect.bindAddress: {value:?}; expected with inspect.peers an address that other Pods \
             can reach, such as 0.0.0.0:8082"
        )
    };
    refused("inspect: {peers: true}\n", &[&address("127.0.0.1:8082"), auth, tls]);
    let changed = |from: &str, to: &str| format!("{}\n", whole.replace(from, to));
    for nowhere in ["127.0.0.1:8082", "[::1]:8082", ""] {
        refused(&changed("0.0.0.0:8082", nowhere), &[&address(nowhere)]);
    }
    // A token file does not identify the caller.
    refused(&changed("auth: true", "tokenFile: /token"), &[auth]);
    refused(&changed("tlsDir: /tls, ", ""), &[tls]);
}

#[test]
fn paths_of_files_are_absolute_or_empty() {
    let metrics = parse("metrics: {auth: true, tlsDir: /tls}\n").unwrap().metrics;
    assert_eq!((metrics.auth, metrics.tls_dir), (true, Some(PathBuf::from("/tls"))));
    assert_eq!(parse("metrics: {tlsDir: ''}\n").unwrap().metrics.tls_dir, None);
    refused(
        "metrics: {tlsDir: ./tls}\n",
        &["m.yaml: metrics.tlsDir: \"./tls\"; expected an absolute path such as /etc/mainstay/tls, or \"\" \
             for none"],
    );
}

#[test]
fn an_unknown_controller_is_refused() {
    let known = ConfigSchema::new().controllers(["slow-web", "status"]);
    let body = "controllers: {\"*\": {workers: 1}, slow-wep: {workers: 4}, status: {workers: 1}}\n";
    assert_eq!(
        parse_for(body, &known).unwrap_err(),
        "m.yaml: controllers[\"slow-wep\"]: unknown controller; expected slow-web, status or \"*\"; did you \
         mean slow-web?"
    );
    assert!(parse(body).is_ok());
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let read = |text: &str| {
        ConfigSchema::new().parse(text, "m.yaml", &Overrides::default()).map_err(|error| error.lines())
    };
    let missing = [
        "m.yaml: apiVersion: is missing; expected apiVersion: config.mainstay.dev/v1alpha1",
        "m.yaml: kind: is missing; expected kind: ManagerConfiguration",
    ];
    assert_eq!(read("").unwrap_err(), missing);
    assert_eq!(read("# only a comment\n").unwrap_err(), missing);
    assert_eq!(
        read("apiVersion: v1\nkind: ConfigMap\n").unwrap_err(),
        [
            "m.yaml:1:13: apiVersion: \"v1\"; expected config.mainstay.dev/v1alpha1",
            "m.yaml:2:7: kind: \"ConfigMap\"; expected ManagerConfiguration",
        ]
    );
    assert_eq!(read("- a\n- b\n").unwrap_err()[0], "m.yaml:1:1: a list of 2; expected a mapping");
}

#[test]
fn a_text_that_is_not_yaml_is_refused_with_its_position_on_one_line() {
    let lines = parse("health: {bindAddress: \"0.0.0.0:8081\"\nmetrics: [\n").unwrap_err();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.contains(": not YAML: ") && lines.starts_with("m.yaml:"), "{lines}");
    assert_eq!(
        parse("---\nkind: Other\n").unwrap_err(),
        "m.yaml:4:1: another document begins here; expected one"
    );
}

#[test]
fn a_duplicate_key_is_reported_at_its_second_position() {
    refused(
        "shutdown: {gracePeriod: 5s, gracePeriod: 6s}\ncontrollers: {web: {workers: 1}, web: {}}\n",
        &["m.yaml:3:29: shutdown.gracePeriod: written twice; expected one value"],
    );
    refused("shop: {}\nshop: {}\n", &["m.yaml:4:1: shop: written twice; expected one value"]);
}

#[test]
fn empty_sections_are_defaults_and_null_values_are_refused() {
    assert_eq!(
        parse("cache:\ncontrollers:\nhealth: {}\n").unwrap(),
        parse("controllers: {web: , '*': {queue: {retry: }}}")
            .map(|mut read| {
                read.controllers = Controllers::default();
                read
            })
            .unwrap()
    );
    refused(
        "shutdown:\n  gracePeriod:\n",
        &["m.yaml:4:14: shutdown.gracePeriod: null; expected a duration such as 30s, 5ms, 2m or 1h30m \
             (units h, m, s, ms)"],
    );
    for (body, problem) in [
        ("controllers: {web: {workers: null}}", "workers: null; expected a whole number from 1 to 1000"),
        ("controllers: {web: {paused: null}}", "paused: null; expected true or false"),
        ("leaderElection: {leaseName: null}", "leaseName: null; expected text"),
        ("cache: {namespaces: }", "namespaces: null; expected a list"),
        ("logging: {format: null}", "format: null; expected Json or Text"),
    ] {
        let lines = parse(body).unwrap_err();
        assert!(lines.ends_with(problem) && lines.lines().count() == 1, "{lines}");
    }
}

#[test]
fn values_of_the_wrong_type_are_never_converted() {
    for (body, problem) in [
        (
            "leaderElection: {enabled: yes}",
            r#"m.yaml:3:27: leaderElection.enabled: "yes"; expected true or false"#,
        ),
        ("leaderElection: {leaseName: 5}", "m.yaml:3:29: leaderElection.leaseName: 5; expected text"),
        ("leaderElection: {leaseName: true}", "m.yaml:3:29: leaderElection.leaseName: true; expected text"),
        (
            "leaderElection: {onLost: [Exit]}",
            "m.yaml:3:26: leaderElection.onLost: a list of 1; expected Exit or Campaign",
        ),
        ("health: {bindAddress: 0}", "m.yaml:3:23: health.bindAddress: 0; expected text, in quotes"),
        ("metrics: {tlsDir: 5}", "m.yaml:3:19: metrics.tlsDir: 5; expected text"),
        (
            "controllers: {web: {workers: 1.5}}",
            "m.yaml:3:30: controllers.web.workers: 1.5; expected a whole number from 1 to 1000",
        ),
        (
            "controllers: {web: {workers: '5'}}",
            r#"m.yaml: controllers.web.workers: "5"; expected a whole number from 1 to 1000"#,
        ),
        (
            "controllers: {web: {queue: {retry: {factor: .nan}}}}",
            "m.yaml: controllers.web.queue.retry.factor: null; expected a number from 1 to 100",
        ),
        ("shop: {currency: 5}", "m.yaml:3:18: shop.currency: 5; expected text"),
        ("5: {}", "m.yaml:3:1: a key that is not text; expected a name"),
    ] {
        refused(body, &[problem]);
    }
    let merged = parse("<<: {kind: x}").unwrap_err();
    assert!(
        merged.starts_with(r#"m.yaml:3:5: ["<<"]: unknown key, set to a mapping of 1; expected "#),
        "{merged}"
    );
}

#[test]
fn servers_can_be_off_or_share_a_port_on_two_hosts_or_take_any_port() {
    let address = |text: &str| text.parse::<BindAddress>().unwrap();
    let off = parse("health: {bindAddress: \"\"}\nmetrics: {bindAddress: \"0\"}\n").unwrap();
    assert_eq!((off.health.bind_address.socket(), off.metrics.bind_address), (None, BindAddress::Off));
    assert!(
        parse("health: {bindAddress: \"127.0.0.1:0\"}\nmetrics: {bindAddress: \"127.0.0.1:0\"}\n").is_ok()
    );
    assert!(!address("127.0.0.1:80").collides(address("127.0.0.2:80")));
    assert!(address("0.0.0.0:80").collides(address("127.0.0.2:80")));
    assert!(address("[::]:80").collides(address("127.0.0.2:80")));
}

#[test]
fn flags_override_the_file_and_are_checked_with_it() {
    let body =
        format!("{HEAD}leaderElection: {{enabled: true}}\nmetrics: {{bindAddress: \"0.0.0.0:9000\"}}\n");
    let overrides = Overrides {
        leader_elect: Some(false),
        log_format: Some(LogFormat::Text),
        log_level: Some("warn,mainstay::queue=trace".parse().unwrap()),
        ..Overrides::default()
    };
    let configuration = ConfigSchema::new().parse(&body, "m.yaml", &overrides).unwrap().configuration;
    assert!(!configuration.leader_election.enabled);
    assert_eq!(configuration.logging.format, LogFormat::Text);
    assert_eq!(configuration.logging.level.to_string(), "warn,mainstay::queue=trace");
    assert_eq!(configuration.metrics.bind_address.to_string(), "0.0.0.0:9000");

    let clash =
        Overrides { health_bind_address: Some("0.0.0.0:9000".parse().unwrap()), ..Overrides::default() };
    let error = ConfigSchema::new().parse(&body, "m.yaml", &clash).unwrap_err();
    assert_eq!(
        error.to_string(),
        "m.yaml: metrics.bindAddress: 0.0.0.0:9000 collides with health.bindAddress 0.0.0.0:9000; expected \
         another port or host"
    );
}

#[test]
fn an_unreadable_file_is_named_in_the_error() {
    let error =
        ConfigSchema::new().load(Path::new("/nonexistent/m.yaml"), &Overrides::default()).unwrap_err();
    assert_eq!(
        error.lines(),
        ["/nonexistent/m.yaml: cannot be read: No such file or directory (os error 2)"]
    );
}

/// An edited file is either accepted or refused with at least one problem.
#[test]
fn random_edits_never_panic_and_every_refusal_has_a_problem() {
    let seed = std::env::var("MAINSTAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_250_801);
    let mut random = fastrand::Rng::with_seed(seed);
    let body = edits::every_key();
    let (mut accepted, mut rejected) = (0, 0);
    for round in 0..2000 {
        let mut text = body.clone();
        for _ in 0..random.usize(1..=3) {
            text = edits::edit(&text, &mut random);
        }
        match shop_schema().parse(&text, "m.yaml", &Overrides::default()) {
            Ok(_) => accepted += 1,
            Err(ConfigError::Invalid { problems, .. }) => {
                rejected += 1;
                let about = format!("MAINSTAY_SEED={seed}, round {round}:\n{text}");
                assert!(!problems.is_empty(), "{about}");
                for problem in problems {
                    assert!(
                        !problem.message.is_empty() && problem.to_string().lines().count() == 1,
                        "{problem}: {about}"
                    );
                }
            }
            Err(error) => panic!("MAINSTAY_SEED={seed}, round {round}: {error}"),
        }
    }
    assert!(accepted > 50 && rejected > 500, "{accepted} accepted, {rejected} refused");
}

#[test]
fn hostile_documents_are_refused_within_limits() {
    for text in [
        "[".repeat(100_000),
        format!("a: {}", "{b: ".repeat(5000)),
        format!(
            "a: &a [{}]\nb: &b [{}]\nc: &c [{}]\nd: [{}]\n",
            "x,".repeat(100),
            "*a,".repeat(100),
            "*b,".repeat(100),
            "*c,".repeat(100)
        ),
        "- ".repeat(50_000),
    ] {
        let error = ConfigSchema::new().parse(&text, "m.yaml", &Overrides::default()).unwrap_err();
        assert_eq!(error.lines().len(), 1, "{error}");
    }
}
