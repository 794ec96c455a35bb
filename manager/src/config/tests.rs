use super::*;

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

/// Reads a file that begins as all do; line 3 is the first of `body`.
fn parse(body: &str) -> Result<ManagerConfiguration, String> {
    parse_for(body, None)
}

fn parse_for(body: &str, controllers: Option<&[&str]>) -> Result<ManagerConfiguration, String> {
    let text = format!("{HEAD}{body}");
    ManagerConfiguration::parse(&text, "m.yaml", &Overrides::default(), controllers)
        .map_err(|e| e.to_string())
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

#[test]
fn every_key_of_the_shipped_file_is_explained() {
    let lines: Vec<&str> = DEFAULTS_TEXT.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some((key, value)) = line.split_once(':').filter(|(key, _)| !key.trim_start().starts_with('#'))
        else {
            continue;
        };
        let comment: Vec<&str> = lines[..index]
            .iter()
            .rev()
            .take_while(|line| line.trim_start().starts_with('#'))
            .copied()
            .collect();
        let comment =
            comment.into_iter().rev().map(|line| line.trim_start_matches([' ', '#'])).collect::<Vec<_>>();
        let comment = comment.join(" ");
        let fixed = ["apiVersion", "kind", "  \"*\""].contains(&key);
        assert!(fixed || !comment.is_empty(), "{key} has no comment");
        if value.is_empty() || fixed {
            continue;
        }
        let written = value.trim().trim_matches('"');
        let default = comment.split_once("Default: ").map(|(_, rest)| rest.split_once(". ").unwrap().0);
        assert_eq!(default.map(|text| text.trim_matches('"')), Some(written), "default of {key}");
        assert!(comment.contains("Range: ") || comment.contains("Values: "), "{key} has no range");
        assert!(comment.ends_with("Applied at next start."), "{key} does not say when it is applied");
    }
}

/// Asking for a key is what makes it known, so the messages list every key there is.
#[test]
fn the_shipped_file_names_every_key() {
    let every_section = "leaderElection: {x: 1}\nhealth: {x: 1}\nmetrics: {x: 1}\ninspect: {x: 1}\ncache: {x: 1}\n\
        shutdown: {x: 1}\nlogging: {x: 1}\nprobePolicy: {x: 1}\nx: 1\n\
        controllers: {\"*\": {x: 1, queue: {x: 1, retry: {x: 1}}}}\n";
    let messages = parse(every_section).unwrap_err();
    assert_eq!(messages.lines().count(), 12, "{messages}");
    for message in messages.lines() {
        let (_, keys) = message.split_once("; expected ").unwrap();
        for key in keys.split(", ").flat_map(|keys| keys.split(" or ")) {
            let named = DEFAULTS_TEXT.lines().any(|line| line.trim_start().starts_with(&format!("{key}:")));
            assert!(named, "manager.yaml does not name {key}");
        }
    }
}

#[test]
fn every_shipped_file_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    for name in ["manager.yaml", "ha.yaml", "dev.yaml", "low-memory.yaml"] {
        ManagerConfiguration::load_with(&folder.join(name), &Overrides::default(), Some(&[])).unwrap();
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
    assert_eq!(web.queue.retry.base_delay, Duration::from_secs(1));
    assert_eq!(web.queue.retry.factor.to_string(), "1.5");
    assert_eq!(web.queue.retry_rate, Some(Rate { per_second: 5.0, burst: 20 }));
    let idle = configuration.controller("idle");
    assert_eq!((idle.workers, &idle.queue.retry_rate), (1, &None));
    assert_eq!(configuration.controller("other"), &configuration.controllers.every);
    assert_eq!(configuration.controllers.every.workers, 3);
}
