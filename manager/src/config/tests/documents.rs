//! Documents that are not a configuration, and documents that are damaged.

use std::path::Path;

use super::*;

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
