//! The effects of a saved configuration file, without an API server.

mod edits;
mod races;
mod running;

use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::client::tests::server::{Answer, TestServer};
use crate::config::tests::{Shop, shop_schema};
use crate::config::{ConfigSchema, ManagerConfiguration, Overrides};
use crate::controller::{Controller, ControllerSettings};
use crate::key::NamespacedName;
use crate::manager::{ControllerHandle, Manager};
use crate::metrics::Format;
use crate::reconcile::{Action, Context, Outcome as Reconciled, Reconciler};
use crate::util::os::tests::make_pipe;
use crate::watch::channel;

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
    leaderElection: {enabled: false}\nhealth: {bindAddress: \"\"}\nmetrics: {bindAddress: \"\"}\n\
    inspect: {bindAddress: \"\"}\n";

/// The filter that was set last.
#[derive(Debug, Default)]
struct LogLevel(Mutex<String>);

impl SetLogLevel for LogLevel {
    fn set_log_level(&self, filter: &LogFilter) -> Result<(), BoxError> {
        *self.0.lock() = filter.to_string();
        Ok(())
    }
}

struct Nothing;

impl Reconciler for Nothing {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Reconciled {
        Ok(Action::Done)
    }
}

/// Sends that it runs, and never ends.
struct Endless(mpsc::UnboundedSender<()>);

impl Reconciler for Endless {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Reconciled {
        self.0.send(()).expect("the test listens");
        std::future::pending().await
    }
}

/// A manager that does not run, and its file.
struct Subject {
    manager: Manager,
    reloads: Reloads,
    source: ConfigSource,
}

impl Subject {
    fn new(body: &str) -> Self {
        Self::with(body, None, "127.0.0.1:1")
    }

    fn with(body: &str, log: Option<Arc<dyn SetLogLevel>>, server: &str) -> Self {
        let source = ConfigSource::new(Path::new("m.yaml"), Overrides::default(), shop_schema());
        let loaded = source.parse(Ok(format!("{HEAD}{body}"))).unwrap();
        let pod = ObjectReference {
            name: Some("mainstay-0".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectReference::default()
        };
        let options = ManagerOptions {
            signals: false,
            preflight: false,
            source: Some(source.clone()),
            log,
            pod: Some(pod),
            ..ManagerOptions::replica("test")
        };
        let connection = kube::Config::new(format!("http://{server}").parse().unwrap());
        let manager = Manager::new(options, loaded, connection).unwrap();
        Self { reloads: manager.shared.reloads.clone(), manager, source }
    }

    fn register(&self, name: &'static str, wire: impl FnOnce(Controller) -> Controller) -> ControllerHandle {
        let controller = wire(Controller::new(name)).source(channel().1).reconciler(Nothing);
        self.manager.register(controller).unwrap()
    }

    /// The file is saved with this body.
    fn save(&self, body: &str) -> Outcome {
        self.save_text(format!("{HEAD}{body}"))
    }

    fn save_text(&self, text: String) -> Outcome {
        let outcome = self.reloads.take(&self.source, Ok(text));
        self.reloads.metrics.count(outcome);
        outcome
    }

    fn reload_status(&self) -> ReloadStatus {
        self.manager.reload_status().borrow().clone()
    }

    fn problems(&self) -> Vec<String> {
        self.reload_status().refused.map_or_else(Vec::new, |refused| refused.problems)
    }

    /// The families about the configuration, but when it was applied.
    fn metrics(&self) -> Vec<String> {
        let text = self.manager.registry().encode(Format::Text).unwrap();
        let ours = text.lines().filter(|line| line.starts_with("mainstay_config_"));
        let ours = ours
            .filter(|line| !line.contains("timestamp"))
            .map(|line| line.trim_start_matches("mainstay_config_").to_owned());
        ours.collect()
    }
}

/// A manager that was started with a text that was read there.
fn at(path: &Path, text: &str) -> Manager {
    let source = ConfigSource::new(path, Overrides::default(), ConfigSchema::new().controllers(["web"]));
    let loaded = source.parse(Ok(text.to_owned())).unwrap();
    let options = ManagerOptions {
        signals: false,
        preflight: false,
        source: Some(source),
        ..ManagerOptions::replica("test")
    };
    Manager::new(options, loaded, kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap()
}

fn settings(handle: &ControllerHandle) -> ControllerSettings {
    handle.status().expect("it lives").settings
}

#[tokio::test]
async fn what_is_saved_reaches_every_controller_beneath_what_its_code_sets() {
    let subject = Subject::new(r#"controllers: {"*": {workers: 4}}"#);
    let (plain, named) = (subject.register("plain", |it| it), subject.register("named", |it| it));
    let coded = subject.register("coded", |it| it.workers(7).queue(|queue| queue.max_depth *= 2));
    let mut configurations = subject.manager.configurations();
    configurations.mark_unchanged();
    let mut shop = subject.manager.section::<Shop>("shop").unwrap();
    shop.mark_unchanged();
    let all =
        |field: fn(&ControllerSettings) -> usize| [&plain, &named, &coded].map(|it| field(&settings(it)));
    assert_eq!(all(|it| it.workers), [4, 4, 7]);

    let file = r#"controllers: {"*": {workers: 16, queue: {maxDepth: 10, retry: {maxAttempts: 3}}},
        named: {workers: 2, reconcileTimeout: 7s}}
shutdown: {gracePeriod: 5s}
shop: {maxOrders: 9, currency: USD}"#;
    assert_eq!(subject.save(file), Outcome::Applied);
    assert_eq!(all(|it| it.workers), [16, 2, 7]);
    assert_eq!(all(|it| it.queue.max_depth), [10, 10, 20], "the code's change is made to the new value");
    assert_eq!(all(|it| it.queue.retry.max_attempts as usize), [3, 3, 3]);
    assert_eq!(settings(&named).reconcile_timeout, Duration::from_secs(7));
    assert!(configurations.has_changed().unwrap(), "who listens is told");
    let now = configurations.borrow_and_update().clone();
    assert_eq!((*now.shutdown.grace_period, shop.borrow().max_orders), (Duration::from_secs(5), 9));
    assert_eq!(now, subject.manager.configuration());
    assert!(shop.has_changed().unwrap());
    assert_eq!(shop.borrow_and_update().currency, "EUR", "a key that waits for the next start");
    assert!(matches!(subject.manager.section::<Shop>("shp"), Err(SectionError::Unknown { .. })));

    let shown = subject.reloads.controllers(&subject.reload_status().accepted);
    let from = |path: &str| {
        let setting = shown.iter().find(|setting| setting.path == path).unwrap();
        format!("{} from {}", setting.value, setting.origin)
    };
    assert_eq!(from("controllers.coded.workers"), "7 from code");
    assert_eq!(from("controllers.coded.queue.maxDepth"), "20 from code");
    assert_eq!(from("controllers.plain.workers"), r#"16 from "*""#);
    assert_eq!(from("controllers.named.workers"), "2 from file");

    assert_eq!(subject.save(""), Outcome::Applied);
    assert_eq!(all(|it| it.workers), [2, 2, 7], "what is no longer written is the default again");
    let late = subject.register("late", |it| it.workers(3));
    assert_eq!(settings(&late).workers, 3);
}

#[tokio::test]
async fn keys_that_need_a_restart_are_named_and_hold_back_none_of_the_others() {
    let subject = Subject::new("");
    let web = subject.register("web", |it| it);
    let both = "cache: {resync: 1h}\nlogging: {format: Text}\ncontrollers: {web: {workers: 5}}";
    assert_eq!(subject.save(both), Outcome::Applied);
    assert_eq!(settings(&web).workers, 5);
    let now = subject.manager.configuration();
    assert_eq!(now.cache, ManagerConfiguration::default().cache, "not in force");
    assert_eq!(now.logging, ManagerConfiguration::default().logging);
    assert!(subject.metrics().contains(&"restart_needed 2".to_owned()), "{:?}", subject.metrics());
    let ReloadStatus { started, accepted, .. } = subject.reload_status();
    let waits = Change::between(&started.configuration, &accepted.configuration).restart;
    assert_eq!(waits.iter().map(|it| &*it.path).collect::<Vec<_>>(), ["cache.resync", "logging.format"]);

    assert_eq!(subject.save("cache: {resync: 1h}\ncontrollers: {web: {workers: 5}}"), Outcome::Applied);
    assert!(
        subject.metrics().contains(&"restart_needed 1".to_owned()),
        "still waits: {:?}",
        subject.metrics()
    );
    assert_eq!(subject.save("controllers: {web: {workers: 5}}"), Outcome::Applied);
    assert!(subject.metrics().contains(&"restart_needed 0".to_owned()), "taken back");
}

#[tokio::test]
async fn fifty_bad_files_change_nothing_and_each_is_told() {
    let subject = Subject::new("controllers: {web: {workers: 4}}");
    let coded = |it: Controller| it.queue(|queue| queue.retry.jitter_percent = 50);
    let (web, other) = (subject.register("web", coded), subject.register("other", |it| it));
    let before = (subject.manager.configuration(), settings(&web), settings(&other));
    let mut configurations = subject.manager.configurations();
    configurations.mark_unchanged();
    let bad = [
        (
            "controllers: {web: {workers: 0}}",
            "m.yaml: controllers.web.workers: 0; expected a whole number from 1 to 1000",
        ),
        (
            "controllers: {web: {workers: 9}}\nshutdown: {gracePeriod: 1}",
            "m.yaml:8:25: shutdown.gracePeriod: 1; expected a duration",
        ),
        (
            "controllers: {web: {workers: 9}, other: {worker: 9}}",
            "m.yaml:7:42: controllers.other.worker: unknown key",
        ),
        ("controllers: {web: {workers: 9}}\n  - x", "m.yaml:8:"),
        ("controllers: [", "not YAML"),
        (
            "controllers: {web: {workers: 9}}\nshop: {maxOrders: 0}",
            "m.yaml: shop.maxOrders: 0; expected a whole number from 1 to 1000",
        ),
    ];
    for round in 0..10 {
        for (number, (body, problem)) in bad.into_iter().enumerate() {
            assert_eq!(subject.save(body), Outcome::Refused, "{body}");
            let problems = subject.problems();
            assert!(problems.iter().any(|told| told.contains(problem)), "{problems:?}");
            let refused = round * bad.len() + number + 1;
            let metrics = subject.metrics();
            assert!(
                metrics.contains(&format!(r#"reloads_total{{result="refused"}} {refused}"#)),
                "{metrics:?}"
            );
            assert!(metrics.contains(&"last_reload_successful 0".to_owned()), "{metrics:?}");
        }
    }
    let gone = subject.reloads.take(&subject.source, Err(io::ErrorKind::NotFound.into()));
    assert_eq!(
        (gone, subject.problems()),
        (Outcome::Refused, vec!["m.yaml: cannot be read: entity not found".to_owned()])
    );
    assert_eq!((subject.manager.configuration(), settings(&web), settings(&other)), before);
    assert!(!configurations.has_changed().unwrap(), "nobody was told of anything");

    // The one that was in force all the time is news all the same: the file is good again.
    assert_eq!(subject.save("controllers: {web: {workers: 4}}"), Outcome::Applied);
    assert!(subject.reload_status().refused.is_none());
    assert!(subject.metrics().contains(&"last_reload_successful 1".to_owned()));
    assert_eq!(subject.save("# in other words\ncontrollers: {web: {workers: 4}}"), Outcome::Unchanged);
}

#[tokio::test]
async fn a_good_file_that_makes_no_sense_with_the_code_of_one_controller_is_refused_for_all() {
    let subject = Subject::new("");
    let second = Duration::from_secs(1);
    let policy = crate::queue::RetryPolicy::exponential(5 * second, 60 * second);
    let odd = subject.register("odd", move |it| it.queue(move |queue| queue.retry = policy.clone()));
    let plain = subject.register("plain", |it| it);
    let before = (settings(&odd), settings(&plain));
    let file = r#"controllers: {"*": {workers: 9}, odd: {queue: {retry: {maxDelay: 3s}}}}"#;
    assert_eq!(subject.save(file), Outcome::Refused);
    let problem = "controller \"odd\": queue.retry.baseDelay 5s is longer than retry.maxDelay 3s; \
                   raise maxDelay or lower baseDelay";
    assert_eq!(subject.problems(), [problem]);
    assert_eq!((settings(&odd), settings(&plain)), before, "not the one without the other");
    drop(odd.remove());
    assert_eq!(subject.save(file), Outcome::Applied, "who has left has no say");
    assert_eq!(settings(&plain).workers, 9);
}

#[tokio::test]
async fn code_that_panics_over_a_file_has_it_refused_and_nothing_else() {
    let subject = Subject::new("");
    let picky =
        |it: Controller| it.queue(|queue| assert!(queue.max_depth < 100, "too deep:\n{}", queue.max_depth));
    let (picky, plain) = (subject.register("picky", picky), subject.register("plain", |it| it));
    assert_eq!(subject.save(r#"controllers: {"*": {workers: 9, queue: {maxDepth: 100}}}"#), Outcome::Refused);
    let problem = "controller \"picky\": its code panicked while it changed the settings of this file: \
                   too deep: 100";
    assert_eq!(subject.problems(), [problem]);
    assert_eq!(settings(&plain).workers, 2);
    assert_eq!(subject.save(r#"controllers: {"*": {workers: 9, queue: {maxDepth: 99}}}"#), Outcome::Applied);
    assert_eq!((settings(&picky).workers, settings(&plain).workers), (9, 9));
}

#[tokio::test]
async fn of_the_log_level_the_later_word_holds() {
    let log = Arc::new(LogLevel::default());
    let subject = Subject::with("", Some(Arc::clone(&log) as Arc<dyn SetLogLevel>), "127.0.0.1:1");
    let level = || log.0.lock().clone();
    assert_eq!(level(), "", "as the program has set it up");
    assert_eq!(subject.save("logging: {level: debug}"), Outcome::Applied);
    assert_eq!(level(), "debug");

    subject.manager.set_log_level("off".parse().unwrap()).unwrap();
    assert_eq!(level(), "off");
    assert_eq!(subject.reload_status().log_level.unwrap().to_string(), "off");
    assert_eq!(subject.save("logging: {level: debug}\nshutdown: {gracePeriod: 1s}"), Outcome::Applied);
    assert_eq!(level(), "off", "the file says about it what it said before");
    assert!(subject.reload_status().log_level.is_some());
    assert_eq!(subject.save("logging: {level: warn}"), Outcome::Applied);
    assert_eq!((level().as_str(), subject.reload_status().log_level), ("warn", None));
    let without = Subject::new("").manager.set_log_level("off".parse().unwrap());
    assert_eq!(without.unwrap_err().to_string(), "the program has set up its own log");
}

#[test]
fn a_log_line_has_room_for_ten_problems() {
    let problems = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(summary(&problems(2)), "1; 2");
    assert_eq!(summary(&problems(10)), "1; 2; 3; 4; 5; 6; 7; 8; 9; 10");
    assert_eq!(summary(&problems(11)), "1; 2; 3; 4; 5; 6; 7; 8; 9; 10; and more, which /debug/config shows");
}

#[tokio::test]
async fn what_comes_out_of_a_pipe_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let manager = at(&pipe, HEAD);
    assert_eq!(manager.reload_status().borrow().file, None);
    assert!(manager.shared.follower(&CancellationToken::new()).is_none());
    // One that is being replaced may be back in a moment.
    let manager = at(&folder.path().join("gone"), HEAD);
    assert!(manager.shared.follower(&CancellationToken::new()).is_some());
}
