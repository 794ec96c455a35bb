use super::*;

fn lease(spec: &serde_json::Value) -> Lease {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "mainstay", "resourceVersion": "7", "labels": {"team": "a"}}, "spec": spec,
    }))
    .unwrap()
}

#[test]
fn a_client_go_record_is_read_and_written_back_unchanged() {
    let written = lease(&serde_json::json!({
        "holderIdentity": "a_1", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-02T03:04:05.000006Z", "renewTime": "2026-01-02T03:04:07.123456Z",
        "strategy": "OldestEmulationVersion", "preferredHolder": "b",
    }));
    let record = Record::of(&written);
    assert_eq!((record.holder.as_deref(), record.transitions), (Some("a_1"), 3));
    let mut renewed = Version::of(written.clone()).lease();
    record.write_into(&mut renewed);
    assert_eq!(renewed, written, "labels and strategy are kept");
}

#[test]
fn renewals_one_microsecond_apart_differ() {
    let at = |micros: &str| {
        Record::of(&lease(&serde_json::json!({"renewTime": format!("2026-01-02T03:04:05.{micros}Z")})))
    };
    assert_ne!(at("000001"), at("000002"));
    assert_eq!(at("0000010"), at("000001"));
}

#[test]
fn only_an_elector_writes_a_release() {
    let now: Timestamp = "2026-01-02T03:04:05.000006789Z".parse().unwrap();
    let held = Record::held("a".into(), Duration::from_secs(15), now, now, 2);
    let released = held.released(now);
    assert!(released.is_release());
    assert_eq!(released.transitions, 2, "a release does not count as a transition");
    let mut stored = Lease::default();
    released.write_into(&mut stored);
    assert_eq!(stored.spec.clone().unwrap().holder_identity.as_deref(), Some(""), "as client-go writes it");
    assert_eq!(Record::of(&stored), released, "nanoseconds were truncated before");
    assert!(!Record { holder: None, ..held }.is_release(), "cleared by hand");
}

#[test]
fn an_implausible_duration_is_replaced() {
    let own = Duration::from_secs(15);
    let record = |seconds: &serde_json::Value| {
        Record::of(&lease(&serde_json::json!({"holderIdentity": "a", "leaseDurationSeconds": seconds})))
    };
    for (stated, used, invalid) in [
        (serde_json::json!(null), 15, true),
        (serde_json::json!(-1), 15, true),
        (serde_json::json!(0), 15, true),
        (serde_json::json!(1), 1, false),
        (serde_json::json!(3600), 3600, false),
        (serde_json::json!(i32::MAX), 3600, true),
    ] {
        let record = record(&stated);
        assert_eq!(record.duration(own).as_secs(), used, "{stated}");
        assert_eq!(record.has_invalid_duration(), invalid, "{stated}");
    }
}

#[test]
fn a_lease_without_a_spec_has_no_holder() {
    let record = Record::of(&Lease::default());
    assert_eq!((record.holder, record.transitions), (None, 0));
    let record = Record::of(&lease(&serde_json::json!({"holderIdentity": "", "leaseTransitions": -4})));
    assert_eq!((record.holder, record.transitions), (None, 0));
}
