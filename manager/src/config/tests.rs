//! What is read, refused and said of it.

mod changes;
mod described;

use super::*;
use crate::cache::Pack;
use crate::queue::{Delay, Rate};

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

/// Reads a file that begins as all do; line 3 is the first of `body`.
fn parse(body: &str) -> Result<ManagerConfiguration, String> {
    parse_for(body, None)
}

fn parse_for(body: &str, controllers: Option<&[&str]>) -> Result<ManagerConfiguration, String> {
    let text = format!("{HEAD}{body}");
    let read = ManagerConfiguration::parse(&text, "m.yaml", &Overrides::default(), controllers);
    if read.is_ok() {
        assert_eq!(described::judged(&schema(controllers), &text), [] as [&str; 0], "{text}");
    }
    read.map_err(|e| e.to_string())
}

#[track_caller]
fn refused(body: &str, expected: &[&str]) {
    let lines = parse(body).expect_err("accepted");
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_shipped_file_is_the_defaults() {
    let shipped =
        ManagerConfiguration::parse(DEFAULTS_TEXT, "manager.yaml", &Overrides::default(), Some(&[]));
    assert_eq!(shipped.unwrap(), ManagerConfiguration::default());
    assert_eq!(parse("").unwrap(), ManagerConfiguration::default());
}

/// What a running manager is given must cost neither its memory nor its log, however much of it is wrong.
#[test]
fn of_a_hundred_thousand_problems_a_hundred_are_told_and_the_rest_is_counted() {
    let told = |body: &str| {
        let lines = parse(body).unwrap_err();
        let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
        (lines.len(), lines[0].clone(), lines[lines.len() - 1].clone())
    };
    let many = |line: fn(usize) -> String| (0..40_000).map(line).collect::<String>();
    assert_eq!(
        told(&format!("controllers:\n{}", many(|n| format!("  c{n}: {{workers: 0}}\n")))),
        (
            101,
            "m.yaml:4:17: controllers.c0.workers: 0; expected a whole number from 1 to 1000".to_owned(),
            "m.yaml: and 39900 more problems".to_owned()
        )
    );
    let (lines, _, last) = told(&many(|n| format!("k{n}: 1\n")));
    assert_eq!((lines, &*last), (101, "m.yaml: and 39900 more problems"));
    let long = format!("controllers: {{{}: {{workers: 0}}}}", "x".repeat(318));
    let short = "x".repeat(60);
    refused(
        &long,
        &[&format!("m.yaml:3:15: controllers: \"{short}\"... as a key; expected at most 317 bytes")],
    );
}

/// Comparing each name with all others would take minutes.
#[test]
fn a_long_list_is_read_in_its_order() {
    let names: Vec<_> = (0..100_000).map(|n| format!("n{}", n * 7919 % 100_000)).collect();
    // Read by itself: the schema's validator compares each with each.
    let text = format!("{HEAD}cache: {{namespaces: [{}]}}", names.join(", "));
    let read = ManagerConfiguration::parse(&text, "m.yaml", &Overrides::default(), None).unwrap();
    assert!(read.cache.namespaces.iter().eq(&names), "as it is written");
}

/// The keys there are, as they are read, against the keys that are explained.
#[test]
fn every_key_is_in_the_shipped_file_with_its_default_its_range_and_when_it_applies() {
    let comments = guide::comments(DEFAULTS_TEXT);
    let shipped = Loaded::parse(DEFAULTS_TEXT, "manager.yaml", &Overrides::default(), Some(&[])).unwrap();
    for Setting { path, value, origin, applies } in shipped.settings() {
        assert!(matches!(origin, Origin::File(_)), "manager.yaml does not name {path}");
        let comment = comments.get(&path).unwrap_or_else(|| panic!("{path} has no comment"));
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // 1000s is written out as 16m40s.
        let written = [&comment.default, &value].map(|text| units::parse_duration(text).ok_or(text));
        assert_eq!(written[0], written[1], "default of {path}");
        let text = &comment.text;
        assert!(text.contains("Range: ") || text.contains("Values: "), "{path} has no range");
        let end = match applies {
            Applies::Live => "Applied live.",
            Applies::AtNextStart => "Applied at next start.",
        };
        assert!(text.ends_with(end), "{path} does not say: {end}");
        let sections = path.match_indices('.').map(|(dot, _)| &path[..dot]);
        for section in sections.filter(|section| !section.ends_with(']')) {
            assert!(comments.contains_key(section), "{section} has no comment");
        }
    }
}

#[test]
fn every_shipped_file_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    for name in ["manager.yaml", "ha.yaml", "dev.yaml", "low-memory.yaml"] {
        Loaded::load(&folder.join(name), &Overrides::default(), Some(&[])).unwrap();
    }
    let whole_folder = ManagerConfiguration::load(&folder).unwrap();
    assert_eq!(whole_folder, ManagerConfiguration::default());
}

#[test]
fn star_reaches_into_each_controller_field_by_field() {
    let configuration = parse(
        r#"controllers:
  "*": {workers: 3, queue: {retry: {baseDelay: 1s}, retryRate: {perSecond: 5, burst: 10}, maxDepth: 7}}
  web: {queue: {retry: {factor: 1.5}, retryRate: {burst: 20}}}
  idle: {workers: 1, queue: {retryRate: null}}
"#,
    )
    .unwrap();
    let web = configuration.controller("web");
    assert_eq!((web.workers, web.queue.max_depth), (3, 7));
    let exponential =
        Delay::Exponential { base: Duration::from_secs(1), factor: 1.5, max: Duration::from_secs(1000) };
    assert_eq!(web.queue.retry.delays, [exponential]);
    assert_eq!(web.queue.retry.rates, [Rate { per_second: 5.0, burst: 20 }]);
    let idle = configuration.controller("idle");
    assert_eq!((idle.workers, &idle.queue.retry.rates[..]), (1, &[][..]));
    assert_eq!(configuration.controller("other"), configuration.controllers.every);
    assert_eq!(configuration.controllers.every.workers, 3);
}

#[test]
fn everything_wrong_is_reported_at_once_in_the_order_of_the_file() {
    refused(
        r#"leaderElection: {leaseDuraton: 15s, renewDeadline: 10}
health: {bindAddress: ":8081"}
logging: {format: json, level: inof}
cache: {maxObjectBytes: 8M, namespaces: [shop, Shop, shop], resync: -1s}
controllers:
  "*":
    workers: two
    queue:
      retry: {baseDelay: 5, jitter: 101, factor: 0.5}
      retryShare: 0
surprise: {a: 1}
"#,
        &[
            r#"m.yaml:3:32: leaderElection.leaseDuraton: unknown key, set to "15s"; did you mean leaseDuration?"#,
            "m.yaml:3:52: leaderElection.renewDeadline: 10 has no unit; expected a duration such as 30s, 5ms, 2m or 1h30m, perhaps 10s or 10ms",
            r#"m.yaml:4:23: health.bindAddress: ":8081"; expected an IP address with a port such as 127.0.0.1:8080 or [::1]:8080, or "" for off; for all addresses write 0.0.0.0:8081"#,
            r#"m.yaml:5:19: logging.format: "json"; expected Json or Text; did you mean Json?"#,
            r#"m.yaml:5:32: logging.level: "inof"; expected off, error, warn, info, debug or trace, with MODULE=LEVEL after commas for single modules, such as info,mainstay::queue=debug; did you mean info?"#,
            r#"m.yaml:6:25: cache.maxObjectBytes: "8M"; expected a size such as 512Ki, 8Mi or 1Gi (units Ki, Mi, Gi)"#,
            r#"m.yaml:6:48: cache.namespaces[1]: "Shop"; expected the name of a namespace"#,
            r#"m.yaml:6:54: cache.namespaces[2]: "shop"; already listed"#,
            r#"m.yaml:6:69: cache.resync: "-1s"; expected a duration such as 30s, 5ms, 2m or 1h30m (units h, m, s, ms)"#,
            r#"m.yaml:9:14: controllers["*"].workers: "two"; expected a whole number from 1 to 1000"#,
            r#"m.yaml:11:26: controllers["*"].queue.retry.baseDelay: 5 has no unit; expected a duration such as 30s, 5ms, 2m or 1h30m, perhaps 5s or 5ms"#,
            r#"m.yaml:11:37: controllers["*"].queue.retry.jitter: 101; expected a percentage as a whole number from 0 to 100"#,
            r#"m.yaml:11:50: controllers["*"].queue.retry.factor: 0.5; expected a number from 1 to 100"#,
            r#"m.yaml:12:19: controllers["*"].queue.retryShare: 0; expected a percentage as a whole number from 1 to 100"#,
            "m.yaml:13:11: surprise: unknown key, set to a mapping of 1; expected apiVersion, kind, leaderElection, health, metrics, inspect, cache, shutdown, logging, probePolicy, waitDeployment or controllers",
        ],
    );
}

#[test]
fn a_duplicate_is_named_once_for_each_time_too_many() {
    refused(
        "shutdown: {gracePeriod: 5s, gracePeriod: 6s, gracePeriod: 7s}\ncontrollers: {web: {workers: 1}, web: {}}\n",
        &[
            "m.yaml:3:29: shutdown.gracePeriod: written twice; expected one value",
            "m.yaml:3:46: shutdown.gracePeriod: written twice; expected one value",
            "m.yaml:4:34: controllers.web: written twice; expected one value",
        ],
    );
}

#[test]
fn what_does_not_fit_together_is_refused_with_both_values() {
    refused(
        r#"leaderElection: {leaseDuration: 10500ms, renewDeadline: 20s, retryPeriod: 17s}
metrics: {bindAddress: "127.0.0.1:8081"}
inspect: {bindAddress: "10.0.0.1:8082"}
probePolicy: {allow: [10.0.0.0/8]}
controllers:
  web: {queue: {retry: {baseDelay: 9s, maxDelay: 3s}, retryRate: {burst: 5}}}
"#,
        &[
            "m.yaml:3:33: leaderElection.leaseDuration: 10.5s; expected whole seconds from 1s to 3600s: the Lease stores no fractions",
            "m.yaml:3:57: leaderElection.renewDeadline: 20s; expected more than 1.2 x retryPeriod = 20.4s, or there is no second try",
            "m.yaml:3:57: leaderElection.renewDeadline: 20s; expected less than leaseDuration 10.5s",
            "m.yaml:4:24: metrics.bindAddress: 127.0.0.1:8081 collides with health.bindAddress 0.0.0.0:8081; expected another port or host",
            "m.yaml:5:24: inspect.bindAddress: 10.0.0.1:8082 can be reached from outside; expected a loopback address such as 127.0.0.1:8082 (use kubectl port-forward), or a token that readers have to show, in inspect.tokenFile",
            "m.yaml:6:22: probePolicy.allow: a list of 1 with probePolicy.mode ServicesOnly, which does not read it; expected [] or mode AllowList",
            "m.yaml:8:36: controllers.web.queue.retry.baseDelay: 9s is longer than retry.maxDelay 3s; raise maxDelay or lower baseDelay",
            "m.yaml:8:66: controllers.web.queue.retryRate: has no perSecond; expected {perSecond: 50, burst: 200} or null",
        ],
    );
    refused(
        r#"probePolicy:
  mode: AllowList
  allow: [{to: 10.0.0.0/8}, {to: 10.0.0.0/33, namespaces: []}, {to: x.y, namespaces: [A], for: 1}, [], 7]
  crossNamespace: ["**"]
  denied: [10.8.0.1/16, example.com, 10.0.0.0/33]
  dnsSuffixes: [.example.com]
  resources: [jobs]
  minPeriod: 10ms
"#,
        &[
            "m.yaml:5:11: probePolicy.allow[0]: a mapping of 1; expected {to: 10.8.0.0/16, namespaces: [shop]}, or the text 10.8.0.0/16 for all namespaces",
            r#"m.yaml:5:34: probePolicy.allow[1].to: "10.0.0.0/33"; expected a prefix of at most 32 bits"#,
            "m.yaml:5:59: probePolicy.allow[1].namespaces: []; expected at least one namespace",
            r#"m.yaml:5:87: probePolicy.allow[2].namespaces[0]: "A"; expected the name of a namespace"#,
            "m.yaml:5:96: probePolicy.allow[2].for: unknown key, set to 1; expected to or namespaces",
            "m.yaml:5:100: probePolicy.allow[3]: []; expected a network such as 10.8.0.0/16, an IP address, a host such as db.example.com, or a domain such as .example.com",
            "m.yaml:5:104: probePolicy.allow[4]: 7; expected a network such as 10.8.0.0/16, an IP address, a host such as db.example.com, or a domain such as .example.com",
            r#"m.yaml:6:20: probePolicy.crossNamespace[0]: "**"; expected the name of a namespace, or "*" for every one"#,
            r#"m.yaml:7:12: probePolicy.denied[0]: "10.8.0.1/16"; expected the network's own address, 10.8.0.0/16"#,
            r#"m.yaml:7:25: probePolicy.denied[1]: "example.com"; expected a network such as 10.8.0.0/16 or 2001:db8::/32, or an IP address"#,
            r#"m.yaml:7:38: probePolicy.denied[2]: "10.0.0.0/33"; expected a prefix of at most 32 bits"#,
            r#"m.yaml:8:17: probePolicy.dnsSuffixes[0]: ".example.com"; expected a domain such as example.com"#,
            r#"m.yaml:9:15: probePolicy.resources[0]: "jobs"; expected a kind such as Pod or Job.batch"#,
            r#"m.yaml:10:14: probePolicy.minPeriod: "10ms"; expected a duration from 1s to 1h"#,
        ],
    );
    refused(
        "probePolicy: {mode: AllowList}\n",
        &[
            "m.yaml:3:14: probePolicy.allow: [] with probePolicy.mode AllowList; expected at least one entry, or mode ServicesOnly",
        ],
    );
}

#[test]
fn a_value_of_star_that_does_not_fit_is_blamed_where_it_bites() {
    // Only web is wrong: its own baseDelay meets the maxDelay of "*".
    refused(
        "controllers:\n  \"*\": {queue: {retry: {maxDelay: 3s}}}\n  web: {queue: {retry: {baseDelay: 9s}}}\n  api: {}\n",
        &[
            "m.yaml:5:36: controllers.web.queue.retry.baseDelay: 9s is longer than retry.maxDelay 3s; raise maxDelay or lower baseDelay",
        ],
    );
    // "*" itself is wrong: said once, not by every controller that takes it over.
    refused(
        "controllers:\n  \"*\": {queue: {retry: {maxDelay: 1ms}}}\n  web: {workers: 1}\n",
        &[
            r#"m.yaml:4:24: controllers["*"].queue.retry.baseDelay: 5ms is longer than retry.maxDelay 1ms; raise maxDelay or lower baseDelay"#,
        ],
    );
}

#[test]
fn a_misspelt_timing_is_not_judged_by_the_default_in_its_place() {
    refused(
        "leaderElection: {leaseDuration: 60, renewDeadline: 40s}\n",
        &[
            "m.yaml:3:33: leaderElection.leaseDuration: 60 has no unit; expected a duration such as 30s, 5ms, 2m or 1h30m, perhaps 60s or 60ms",
        ],
    );
}

#[test]
fn a_token_opens_the_debug_pages_to_other_hosts() {
    let open = "inspect: {bindAddress: \"10.0.0.1:8082\", tokenFile: /run/token}\n";
    let inspect = parse(open).unwrap().inspect;
    assert_eq!(inspect.token_file, Some(PathBuf::from("/run/token")));
    assert_eq!(inspect.bind_address.to_string(), "10.0.0.1:8082");
    // A token that was meant and misspelt is what is wrong, not the address.
    refused(
        "inspect: {bindAddress: \"10.0.0.1:8082\", tokenFile: run/token}\n",
        &[
            r#"m.yaml:3:52: inspect.tokenFile: "run/token"; expected an absolute path such as /etc/mainstay/inspect/token, or "" for none"#,
        ],
    );
}

#[test]
fn paths_of_files_are_absolute_or_nothing() {
    let metrics = parse("metrics: {auth: true, tlsDir: /tls}\n").unwrap().metrics;
    assert_eq!((metrics.auth, metrics.tls_dir), (true, Some(PathBuf::from("/tls"))));
    assert_eq!(parse("metrics: {tlsDir: ''}\n").unwrap().metrics.tls_dir, None);
    refused(
        "metrics: {auth: 1, tlsDir: ./tls}\n",
        &[
            "m.yaml:3:17: metrics.auth: 1; expected true or false",
            r#"m.yaml:3:28: metrics.tlsDir: "./tls"; expected an absolute path such as /etc/mainstay/tls, or "" for none"#,
        ],
    );
}

#[test]
fn packing_is_chosen_for_all_kinds_and_for_single_ones() {
    let settings =
        parse("cache: {pack: Never, kinds: {Pod: {pack: Always}, Deployment.apps: {}}}\n").unwrap();
    assert_eq!(settings.cache.pack, Pack::Never);
    assert_eq!(settings.cache.pack_kinds, [("Pod".to_owned(), Pack::Always)].into());
    refused(
        "cache: {pack: always, kinds: {Pod: {packs: Auto}, pods: {pack: Auto}}}\n",
        &[
            r#"m.yaml:3:15: cache.pack: "always"; expected Auto, Never or Always; did you mean Always?"#,
            r#"m.yaml:3:44: cache.kinds.Pod.packs: unknown key, set to "Auto"; did you mean pack?"#,
            "m.yaml:3:57: cache.kinds.pods: unknown kind; expected a kind such as Pod or Deployment.apps",
        ],
    );
}

#[test]
fn a_controller_this_binary_does_not_have_is_refused() {
    let known: &[&str] = &["wait-deployment", "status-mirror"];
    let body =
        "controllers: {\"*\": {workers: 1}, wait-deploiment: {workers: 4}, status-mirror: {workers: 1}}\n";
    assert_eq!(
        parse_for(body, Some(known)).unwrap_err(),
        "m.yaml:3:51: controllers[\"wait-deploiment\"]: unknown controller; expected wait-deployment, status-mirror or \"*\"; did you mean wait-deployment?"
    );
    assert!(parse_for(body, None).is_ok());
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let read = |text: &str| {
        ManagerConfiguration::parse(text, "m.yaml", &Overrides::default(), None)
            .map_err(|error| error.lines())
    };
    let missing = [
        "m.yaml:1:1: apiVersion is missing; expected apiVersion: config.mainstay.dev/v1alpha1",
        "m.yaml:1:1: kind is missing; expected kind: ManagerConfiguration",
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
fn what_is_not_yaml_is_refused_with_its_place_on_one_line() {
    let lines = parse("health: {bindAddress: \"0.0.0.0:8081\"\nmetrics: [\n").unwrap_err();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.starts_with("m.yaml:4:1: not YAML: "), "{lines}");
    let two = parse("---\nkind: Other\n").unwrap_err();
    assert_eq!(two, "m.yaml:4:1: not YAML: holds 2 documents; expected one");
}

#[test]
fn empty_sections_set_nothing_and_empty_values_are_refused() {
    assert_eq!(parse("cache:\ncontrollers:\nhealth: {}\n").unwrap(), ManagerConfiguration::default());
    refused(
        "shutdown:\n  gracePeriod:\n",
        &[
            "m.yaml:4:14: shutdown.gracePeriod: null; expected a duration such as 30s, 5ms, 2m or 1h30m (units h, m, s, ms)",
        ],
    );
}

#[test]
fn values_of_the_wrong_type_are_never_converted() {
    refused(
        "leaderElection: {enabled: yes, leaseName: 5, onLost: [Exit]}\nhealth: {bindAddress: 0}\n<<: {kind: x}\n5: {}\n",
        &[
            r#"m.yaml:3:27: leaderElection.enabled: "yes"; expected true or false"#,
            "m.yaml:3:43: leaderElection.leaseName: 5; expected the name of a Lease: lower-case letters, digits, - and .",
            "m.yaml:3:54: leaderElection.onLost: a list of 1; expected Exit or Campaign",
            r#"m.yaml:4:23: health.bindAddress: 0; expected an IP address with a port such as 127.0.0.1:8080 or [::1]:8080, or "" for off"#,
            r#"m.yaml:5:5: ["<<"]: unknown key, set to a mapping of 1; expected apiVersion, kind, leaderElection, health, metrics, inspect, cache, shutdown, logging, probePolicy, waitDeployment or controllers"#,
            "m.yaml:6:1: 5 as a key; expected a name",
        ],
    );
}

#[test]
fn servers_can_be_off_share_a_port_number_on_two_hosts_or_take_any_port() {
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
fn flags_stand_over_the_file_and_are_checked_with_it() {
    let body =
        format!("{HEAD}leaderElection: {{enabled: true}}\nmetrics: {{bindAddress: \"0.0.0.0:9000\"}}\n");
    let overrides = Overrides {
        leader_elect: Some(false),
        log_format: Some(LogFormat::Text),
        log_level: Some("warn,mainstay::queue=trace".parse().unwrap()),
        ..Overrides::default()
    };
    let configuration = ManagerConfiguration::parse(&body, "m.yaml", &overrides, None).unwrap();
    assert!(!configuration.leader_election.enabled);
    assert_eq!(configuration.logging.format, LogFormat::Text);
    assert_eq!(configuration.logging.level.to_string(), "warn,mainstay::queue=trace");
    assert_eq!(configuration.metrics.bind_address.to_string(), "0.0.0.0:9000");

    let clash =
        Overrides { health_bind_address: Some("0.0.0.0:9000".parse().unwrap()), ..Overrides::default() };
    let error = ManagerConfiguration::parse(&body, "m.yaml", &clash, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "m.yaml:4:24: metrics.bindAddress: 0.0.0.0:9000 collides with health.bindAddress 0.0.0.0:9000; expected another port or host"
    );
}

#[test]
fn a_file_that_cannot_be_read_says_which() {
    let error = ManagerConfiguration::load(Path::new("/nonexistent/m.yaml")).unwrap_err();
    assert_eq!(
        error.lines(),
        ["/nonexistent/m.yaml: cannot be read: No such file or directory (os error 2)"]
    );
}

/// Whatever is done to a valid file, it is either accepted or refused with places and words.
#[test]
fn random_edits_never_panic_and_never_refuse_without_a_reason() {
    let seed = std::env::var("MAINSTAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_250_801);
    let mut random = fastrand::Rng::with_seed(seed);
    let body = edits::every_key();
    let (mut accepted, mut rejected) = (0, 0);
    for round in 0..2000 {
        let mut text = body.clone();
        for _ in 0..random.usize(1..=3) {
            text = edits::edit(&text, &mut random);
        }
        match ManagerConfiguration::parse(&text, "m.yaml", &Overrides::default(), Some(&[])) {
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
    assert!(accepted > 50 && rejected > 500, "edits are one-sided: {accepted} accepted, {rejected} refused");
}

#[test]
fn hostile_documents_fail_to_parse_instead_of_using_up_the_process() {
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
        let error = ManagerConfiguration::parse(&text, "m.yaml", &Overrides::default(), None).unwrap_err();
        assert_eq!(error.lines().len(), 1, "{error}");
    }
}
