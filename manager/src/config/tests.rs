//! Accepted files, and the configuration they make.

mod changes;
mod described;
mod documents;
pub(crate) mod edits;
mod refused;

use std::collections::BTreeMap;
use std::path::PathBuf;
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
fn an_unnamed_lease_has_the_name_of_the_program_in_its_namespace() {
    let lease = |body: &str| {
        let election = parse(body).unwrap().leader_election.settings("shop", "garden", "shop-1");
        (election.lease_name, election.namespace)
    };
    let [shop, garden, other] = ["shop", "garden", "other"].map(str::to_owned);
    assert_eq!(lease(""), (shop, garden.clone()));
    assert_eq!(lease("leaderElection: {leaseName: other}"), (other.clone(), garden));
    assert_eq!(lease("leaderElection: {leaseName: other, namespace: other}"), (other.clone(), other));
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
    let section = r"
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
";
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
