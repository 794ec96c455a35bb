use super::*;

fn settings(lease_ms: u64, renew_ms: u64, retry_ms: u64) -> ElectionSettings {
    ElectionSettings {
        lease_duration: Duration::from_millis(lease_ms),
        renew_deadline: Duration::from_millis(renew_ms),
        retry_period: Duration::from_millis(retry_ms),
        ..ElectionSettings::new("default", "mainstay", "a")
    }
}

#[track_caller]
fn check(settings: &ElectionSettings, expected: &[&str]) {
    let found: Vec<_> = settings.validate().iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_defaults_and_short_leases_are_accepted() {
    check(&ElectionSettings::new("default", "mainstay", unique_identity(None)), &[]);
    for (lease, renew, retry) in
        [(15_000, 10_000, 2_000), (5_000, 4_000, 500), (3_000, 2_000, 500), (1_000, 700, 100)]
    {
        check(&settings(lease, renew, retry), &[]);
    }
}

#[test]
fn timings_with_which_a_leader_tries_longer_than_it_may_write_are_refused() {
    check(
        &settings(5_000, 4_900, 3_000),
        &["leaderElection.renewDeadline 4.9s: with retryPeriod 3s the leader would try for 7.9s, but may \
             write only for 4.5s, 0.9 x leaseDuration 5s; lower renewDeadline or retryPeriod, or raise \
             leaseDuration"],
    );
    assert_eq!(settings(5_000, 4_001, 500).validate().len(), 1, "one millisecond beyond");
}

#[test]
fn all_contradictions_of_the_timings_are_reported() {
    check(
        &settings(15_000, 15_000, 2_000),
        &["leaderElection.renewDeadline 15s: expected less than leaseDuration 15s"],
    );
    check(
        &settings(15_000, 2_400, 2_000),
        &["leaderElection.renewDeadline 2.4s: expected more than 1.2 x retryPeriod = 2.4s, or there is no \
             second try"],
    );
    check(&settings(15_000, 2_401, 2_000), &[]);
    check(
        &settings(1_500, 1_000, 0),
        &[
            "leaderElection.leaseDuration 1.5s: expected whole seconds from 1s to 3600s: the Lease stores no \
             fractions",
            "leaderElection.retryPeriod 0ns: expected at least 1ms",
        ],
    );
    assert_eq!(settings(900, 600, 100).validate().len(), 1);
    assert_eq!(settings(3_601_000, 10_000, 2_000).validate().len(), 1);
}

#[test]
fn invalid_names_are_refused() {
    check(
        &ElectionSettings::new("", "Main", " "),
        &[
            "leaderElection.namespace \"\": expected lower-case letters, digits, '-' and '.'",
            "leaderElection.leaseName \"Main\": expected lower-case letters, digits, '-' and '.'",
            "identity \" \": expected a name no other replica has",
        ],
    );
}

#[test]
fn identities_differ_within_one_host() {
    assert_ne!(unique_identity(None), unique_identity(None));
    assert_ne!(unique_identity(Some("web-0")), unique_identity(Some("web-0")));
}
