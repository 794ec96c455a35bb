//! Every value of `waitProbe` has its effect, or is refused with a message that helps its author; a refused
//! target is never dialled, and no value stops the manager.

#![expect(clippy::cast_precision_loss, reason = "counts of a test are far below 2^52")]

mod stage;

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use mainstay_tests::process::sample;
use mainstay_tests::sockets::{BlackHole, Prerequisite, black_hole};
use mainstay_tests::wait;
use serde_json::{Value, json};
use stage::{BothFamilies, Expected, Stage, denied, invalid, ready};
use tokio::time::Instant;

/// Most delay of a timer: far above the usual delay and below every mistake that the tests look for.
const LATE: Duration = Duration::from_millis(1500);
/// Rounds of probes in which no forbidden target is dialled.
const ROUNDS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_write_a_timeout_is_understood_or_refused() {
    let Some(stage) = Stage::set_up(&json!({})).await else { return };
    let open = Prerequisite::open();
    let address = open.address().to_string();
    let with = |timeout: Value| json!({"address": address, "timeout": timeout});
    let (number, text) = ("integers are nanoseconds, and 1 ms to 300 s is accepted", "expected 1ms to 300s");
    let refused_number = |value: i64| (with(json!(value)), invalid("timeout", &value.to_string(), number));
    let refused_text = |value: &str| (with(json!(value)), invalid("timeout", &format!("{value:?}"), text));
    let accepted = [
        json!(3_000_000_000_i64),
        json!("3s"),
        json!(0),
        json!("0s"),
        json!(null),
        json!("1m30s"),
        json!(3e9),
    ];
    let mut cases: Vec<_> = accepted.into_iter().map(|timeout| (with(timeout), Expected::Opens)).collect();
    cases.push((json!({"address": address}), Expected::Opens));
    cases.extend([-1, 3, 5000, 300_000_000_001, i64::MAX, i64::MIN].map(refused_number));
    cases
        .extend(["10h", "banana", "", "-3s", "1.5s", "3", " 3s", "3 s", "0.5ms", "99999h"].map(refused_text));
    let long = "9".repeat(65);
    let inadmissible = [json!(2.5), json!([3]), json!({"seconds": 3}), json!(true), json!(long)];
    cases.extend(inadmissible.map(|timeout| (with(timeout), Expected::Inadmissible("waitProbe.timeout"))));
    // The server accepts no integers beyond the exact range of a float.
    for huge in ["9223372036854775808", "18446744073709551616", "-1e30", "1e300"] {
        let huge: Value = serde_json::from_str(huge).expect("JSON");
        cases.push((with(huge), Expected::Inadmissible("waitProbe.timeout")));
    }
    for period in [json!(0), json!(-1), json!(3601), json!("1s"), json!(1.5), json!(1e12)] {
        let wait_probe = json!({"address": address, "periodSeconds": period});
        cases.push((wait_probe, Expected::Inadmissible("waitProbe.periodSeconds")));
    }
    stage.check(cases).await;
    stage.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_lasts_as_long_as_written() {
    let Some(stage) = Stage::set_up(&json!({})).await else { return };
    let (default, short) = (Duration::from_secs(3), Duration::from_millis(700));
    let groups = [
        (default, vec![json!(null), json!(0), json!("0s"), json!("3s"), json!(3_000_000_000_i64)]),
        (short, vec![json!("700ms"), json!(700_000_000)]),
    ];
    for (expected, written) in groups {
        let before = probed(&stage).await;
        // One hole per object: objects with one target would share a probe. Made concurrently, since filling
        // takes a while.
        let holes: Vec<BlackHole> =
            futures_util::future::join_all(written.iter().map(|_| black_hole())).await;
        for (at, (hole, timeout)) in holes.iter().zip(&written).enumerate() {
            // One probe each, so that the metrics count one per object.
            let wait_probe =
                json!({"address": hole.address().to_string(), "timeout": timeout, "periodSeconds": 3600});
            stage.create(&format!("of-{}-{at}", expected.as_millis()), &wait_probe).await.expect("created");
        }
        for at in 0..written.len() {
            stage.is_probed(&format!("of-{}-{at}", expected.as_millis())).await;
        }
        let after = probed(&stage).await;
        let (count, sum) = (after.0 - before.0, after.1 - before.1);
        assert!(
            (count - written.len() as f64).abs() < 0.5,
            "{count} probes instead of one for each of {written:?}"
        );
        let least = expected.as_secs_f64() * count;
        let most = least + LATE.as_secs_f64() * count;
        assert!((least..most).contains(&sum), "{written:?}: {count} probes took {sum} s, expected {least} s");
    }
    stage.still_works().await;
}

/// Returns the number of finished probes and the seconds they took together.
async fn probed(stage: &Stage) -> (f64, f64) {
    let metrics = stage.manager.metrics_text().await;
    let of = |series| sample(&metrics, series).unwrap_or_default();
    let family = "mainstay_waitdeployment_probe_duration_seconds";
    (of(&format!(r#"{family}_count{{type="tcp"}}"#)), of(&format!(r#"{family}_sum{{type="tcp"}}"#)))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_write_an_address_is_understood_or_refused() {
    let Some(stage) = Stage::set_up(&json!({})).await else { return };
    let open = BothFamilies::open();
    let port = open.port();
    let at = |host: &str| json!({"address": format!("{host}:{port}")});
    let good = [
        "127.0.0.1",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "localhost",
        "LocalHost.",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
    ];
    let mut cases: Vec<_> = good.map(|host| (at(host), Expected::Opens)).into();

    let refused = |address: String, problem: &str| {
        let expected = Expected::Refused(
            "InvalidProbe",
            vec![
                format!("waitProbe.address {address:?}: "),
                problem.to_owned(),
                "expected host:port, such as postgres:5432 or [2001:db8::1]:5432".to_owned(),
            ],
        );
        (json!({"address": address}), expected)
    };
    let hosts = [
        ("", "the host is empty"),
        ("::1", "needs brackets"),
        ("::ffff:127.0.0.1", "needs brackets"),
        ("[127.0.0.1]", "not an IPv6 address"),
        ("[::1%lo]", "zone id"),
        ("0177.0.0.1", "IPv4 address in an unusual form"),
        ("0x7f.0.0.1", "IPv4 address in an unusual form"),
        ("2130706433", "IPv4 address in an unusual form"),
        ("127.1", "IPv4 address in an unusual form"),
        ("0", "IPv4 address in an unusual form"),
        (" 127.0.0.1", "neither a name nor an address"),
        ("127.0.0.1 ", "neither a name nor an address"),
        ("localhost..", "neither a name nor an address"),
        (".", "neither a name nor an address"),
        ("local host", "neither a name nor an address"),
        ("user@127.0.0.1", "neither a name nor an address"),
        ("tcp://127.0.0.1", "an address has no scheme"),
    ];
    cases.extend(hosts.map(|(host, problem)| refused(format!("{host}:{port}"), problem)));
    let bad_ports = ["0", "65536", "http", "-1", "+1", "1e3", " 80", "80 ", "99999999999999999999"];
    let not_a_port = "the port is not a number from 1 to 65535";
    cases.extend(bad_ports.map(|port| refused(format!("127.0.0.1:{port}"), not_a_port)));
    let whole = [
        ("", "the address is empty"),
        (" ", "the port is missing"),
        ("127.0.0.1", "the port is missing"),
        ("127.0.0.1:", "the port is missing"),
        ("[::1]", "the port is missing"),
        ("[::1", "the closing bracket is missing"),
        (":", "the host is empty"),
    ];
    cases.extend(whole.map(|(address, problem)| refused(address.to_owned(), problem)));
    for missing in [json!({}), json!({"address": null}), json!({"adress": "127.0.0.1:1"})] {
        cases.push((missing, invalid("address", "\"\"", "the address is empty")));
    }
    for wrong in [json!(5432), json!(["127.0.0.1:1"]), json!("a".repeat(301))] {
        cases.push((json!({"address": wrong}), Expected::Inadmissible("waitProbe.address")));
    }
    cases.push((json!("127.0.0.1:1"), Expected::Inadmissible("waitProbe")));
    stage.check(cases).await;
    stage.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn loopback_is_dialled_only_if_the_policy_allows_it() {
    let policy = json!({"probePolicy": {"mode": "Any", "allowLoopback": false}});
    let Some(stage) = Stage::set_up(&policy).await else { return };
    let own = BothFamilies::open();
    let port = own.port();
    let external = |name: &str, outside: &str| -> Service {
        let service = json!({
            "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": outside},
        });
        serde_json::from_value(service).expect("a Service")
    };
    let services = stage.cluster.api::<Service>();
    services.create(&PostParams::default(), &external("alias", "localhost")).await.expect("created");

    let at = |host: &str| json!({"address": format!("{host}:{port}"), "periodSeconds": 1});
    let by_key = [
        "127.0.0.1",
        "127.0.0.1.",
        "127.9.9.9",
        "localhost",
        "LOCALHOST.",
        "any.localhost",
        "alias",
        "[::1]",
        "[::ffff:127.0.0.1]",
    ];
    let mut cases: Vec<_> = by_key.map(|host| (at(host), denied("probePolicy.allowLoopback"))).into();
    // The unspecified address reaches loopback on Linux; no setting admits it, and the message says so.
    let never = ["0.0.0.0", "[::]", "[::ffff:0.0.0.0]", "0.0.0.0."];
    cases.extend(never.map(|host| (at(host), denied("the unspecified address, and no setting admits it"))));
    let inside = ["[::127.0.0.1]", "[64:ff9b::127.0.0.1]"];
    let not_as_it_is = "it contains a loopback address in another form, and no setting admits this";
    cases.extend(inside.map(|host| (at(host), denied(not_as_it_is))));
    for host in ["", "0", "127.1", "0177.0.0.1", "2130706433", "0x7f000001", "::1"] {
        cases.push((at(host), Expected::Refused("InvalidProbe", vec!["waitProbe.address".to_owned()])));
    }
    let targets = by_key.len() + never.len() + inside.len();
    stage.check(cases).await;
    until_denied(&stage, targets * ROUNDS).await;
    assert_eq!(own.connections(), 0, "loopback was dialled");
    stage.still_works().await;
}

/// Waits until so many probes were denied. Different spellings of a host may be one target, so this may take
/// a little more than the given rounds.
async fn until_denied(stage: &Stage, times: usize) {
    let began = Instant::now();
    loop {
        let denied = r#"mainstay_waitdeployment_probe_total{type="tcp",result="denied"}"#;
        let count = sample(&stage.manager.metrics_text().await, denied).unwrap_or_default();
        if count >= times as f64 {
            return;
        }
        assert!(began.elapsed() < wait::PATIENCE, "{count} of {times} probes were denied");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_only_services_of_its_own_namespace_are_probed() {
    let policy = json!({"probePolicy": {"mode": "ServicesOnly", "allowLoopback": false}});
    let Some(stage) = Stage::set_up(&policy).await else { return };
    let own = BothFamilies::open();
    let at = |address: &str| json!({"address": address});
    let more = "mode AllowList with an entry in probePolicy.allow admits more";
    let outside = [
        "192.0.2.1:80",
        "[2001:db8::1]:80",
        "[::ffff:192.0.2.1]:80",
        "db.example.com:5432",
        "db.elsewhere:5432",
        "db.elsewhere.svc.cluster.local:5432",
    ];
    let mut cases: Vec<_> = outside.map(|address| (at(address), denied(more))).into();
    for host in ["127.0.0.1", "[::1]", "localhost", "[::ffff:127.0.0.1]"] {
        cases.push((at(&format!("{host}:{}", own.port())), denied("probePolicy.allowLoopback")));
    }
    let missing = "Service {namespace}/db does not exist".replace("{namespace}", stage.cluster.namespace());
    cases.push((at("db:5432"), Expected::Refused("WaitingForDependencies", vec![missing])));
    stage.check(cases).await;
    assert_eq!(own.connections(), 0, "loopback was dialled");
    stage.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_object_recovers_by_an_edit() {
    let Some(stage) = Stage::set_up(&json!({})).await else { return };
    let open = Prerequisite::open();
    let good = json!({"address": open.address().to_string(), "timeout": "3s", "periodSeconds": 1});
    let bad = [
        ("address", json!({"address": ":5432"}), "InvalidProbe"),
        ("timeout", json!({"address": "127.0.0.1:1", "timeout": 3}), "InvalidProbe"),
        ("policy", json!({"address": "0.0.0.0:1"}), "PolicyDenied"),
    ];
    for (name, wait_probe, reason) in &bad {
        stage.create(name, wait_probe).await.expect("created");
        stage.message_for(name, reason).await;
    }
    for (name, ..) in &bad {
        stage.edit(name, &good).await;
        stage.opens(name).await;
        // The status is of the new generation, without the refusal.
        wait::until(&stage.objects, name, "the refusal to go", |object| {
            let conditions = object.data["status"]["conditions"].as_array();
            let stalled = conditions.into_iter().flatten().find(|condition| condition["type"] == "Stalled");
            stalled.is_some_and(|stalled| stalled["status"] == "False")
                && object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation
        })
        .await;
    }
    stage.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_a_waiting_object_switches_its_target_at_once() {
    let Some(stage) = Stage::set_up(&json!({})).await else { return };
    let targets =
        async || sample(&stage.manager.metrics_text().await, "mainstay_waitdeployment_probe_targets");
    let (hole, mut closed, open) = (black_hole().await, Prerequisite::closed(), Prerequisite::open());
    let at =
        |address: SocketAddr| json!({"address": address.to_string(), "timeout": "5m", "periodSeconds": 1});

    // The first probe would be in flight long after this test.
    stage.create("web", &at(hole.address())).await.expect("created");
    wait::until(&stage.objects, "web", "web to wait", |web| ready(web)["status"] == "Unknown").await;
    stage.edit("web", &at(closed.address())).await;
    stage.is_probed("web").await;
    let message = stage.message_for("web", "WaitingForDependencies").await;
    assert!(message.contains(&closed.address().to_string()), "{message}");
    assert_eq!(targets().await, Some(1.0), "the earlier target is removed");

    // An edit that makes the object invalid ends its probes.
    stage.edit("web", &json!({"address": "127.0.0.1:0"})).await;
    stage.message_for("web", "InvalidProbe").await;
    assert_eq!(targets().await, Some(0.0), "no object has a target");

    stage.edit("web", &at(open.address())).await;
    stage.opens("web").await;
    closed.come_up();
    // Probed once an hour, so that a second connection would belong to another object.
    let mut rarely = at(closed.address());
    rarely["periodSeconds"] = json!(3600);
    stage.create("other", &rarely).await.expect("created");
    stage.opens("other").await;
    assert_eq!(closed.connections(), 1, "only for the object with this target");

    // Removing the prerequisite opens the gate, too.
    stage.create("bare", &at(hole.address())).await.expect("created");
    wait::until(&stage.objects, "bare", "bare to wait", |bare| ready(bare)["status"] == "Unknown").await;
    stage.edit("bare", &Value::Null).await;
    stage.opens("bare").await;
    stage.still_works().await;
}
