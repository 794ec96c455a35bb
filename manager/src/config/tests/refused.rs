//! Refused files, and the messages of their problems.

use super::*;

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
            "m.yaml: leaderElection.leaseName: \"A_b\"; expected the name of a Lease (lower-case letters, \
             digits, - and .) or \"\" for the program's",
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
