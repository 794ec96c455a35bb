//! Registrations that a manager accepts or refuses, without an API server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;
use crate::config::{ConfigSchema, Overrides};
use crate::controller::{Controller, ControllerSettings};
use crate::key::NamespacedName;
use crate::metrics::Format;
use crate::queue::{Delay, Rate, RetryPolicy};
use crate::reconcile::{Action, Context, Outcome, Reconciler};
use crate::watch::channel;

const SECOND: Duration = Duration::from_secs(1);

/// Makes a manager from a configuration file with this section `controllers`.
fn manager(controllers: &str) -> Manager {
    let text = format!(
        "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
         leaderElection: {{enabled: false}}\n\
         health: {{bindAddress: \"\"}}\nmetrics: {{bindAddress: \"\"}}\ninspect: {{bindAddress: \"\"}}\n\
         controllers: {controllers}\n"
    );
    let configuration =
        ConfigSchema::new().parse(&text, "test", &Overrides::default()).unwrap().configuration;
    let options = ManagerOptions {
        identity: "me".to_owned(),
        signals: false,
        preflight: false,
        ..ManagerOptions::replica("test")
    };
    Manager::new(options, configuration, kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap()
}

struct Nothing;

impl Reconciler for Nothing {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome {
        Ok(Action::Done)
    }
}

fn registration(controller: Controller) -> Registration {
    controller.source(channel().1).reconciler(Nothing)
}

/// Returns the settings of the controller `web` in a manager with this section.
fn in_force(controllers: &str, wire: impl FnOnce(Controller) -> Controller) -> ControllerSettings {
    let manager = manager(controllers);
    let handle = manager.register(registration(wire(Controller::new("web")))).unwrap();
    handle.status().unwrap().settings
}

fn refusal(controllers: &str, wire: impl FnOnce(Controller) -> Controller) -> Vec<String> {
    let manager = manager(controllers);
    let error = manager.register(registration(wire(Controller::new("web")))).unwrap_err();
    assert!(matches!(&error, RegisterError::Settings { name, .. } if **name == *"web"), "{error}");
    error.to_string().lines().map(str::to_owned).collect()
}

fn doubling(base: Duration, factor: f64, max: Duration) -> Delay {
    Delay::Exponential { base, factor, max }
}

#[tokio::test]
async fn what_is_said_to_all_is_inherited_and_never_overrides_what_the_code_sets() {
    let star = r#"{"*": {workers: 3, reconcileTimeout: 1m, queue: {retryShare: 20, maxDepth: 7}}}"#;
    let untouched = in_force(star, |web| web);
    assert_eq!((untouched.workers, untouched.reconcile_timeout), (3, 60 * SECOND));
    assert_eq!((untouched.queue.retry_share, untouched.queue.max_depth), (20, 7));
    assert_eq!(untouched.queue.max_wait, ControllerSettings::default().queue.max_wait, "said by nobody");

    let set = in_force(star, |web| {
        web.workers(1).reconcile_timeout(Duration::ZERO).queue(|queue| queue.retry_share = 100)
    });
    assert_eq!((set.workers, set.reconcile_timeout, set.queue.retry_share), (1, Duration::ZERO, 100));
    assert_eq!(set.queue.max_depth, 7, "the code left it alone");
    assert_eq!(in_force("{}", |web| web), ControllerSettings::default());
}

#[tokio::test]
async fn an_entry_of_its_name_is_the_last_word_on_what_is_written_there_and_on_nothing_else() {
    let file = r#"{
        "*": {workers: 3, queue: {retryShare: 20}}, web: {workers: 9, queue: {maxWait: 5s}}, api: {workers: 1}
    }"#;
    let settings = in_force(file, |web| {
        web.workers(4).reconcile_timeout(SECOND).queue(|queue| {
            queue.max_wait = SECOND;
            queue.max_depth = 8;
        })
    });
    assert_eq!((settings.workers, settings.queue.max_wait), (9, 5 * SECOND), "written");
    assert_eq!((settings.reconcile_timeout, settings.queue.max_depth), (SECOND, 8), "not written");
    assert_eq!(settings.queue.retry_share, 20, "said to all");
}

#[tokio::test]
async fn changes_are_made_in_the_order_they_were_said_each_to_what_the_former_left() {
    let settings = in_force(r#"{"*": {queue: {maxDepth: 10}}}"#, |web| {
        web.workers(4).workers(5).queue(|queue| queue.max_depth *= 3).queue(|queue| queue.max_depth += 1)
    });
    assert_eq!((settings.workers, settings.queue.max_depth), (5, 31));
}

#[tokio::test]
async fn a_written_part_of_a_backoff_leaves_the_rest_of_it_to_the_code() {
    let own = |web: Controller| {
        web.queue(|queue| queue.retry = RetryPolicy::exponential(SECOND, 60 * SECOND).with_max_attempts(3))
    };
    let written = in_force("{web: {queue: {retry: {maxDelay: 30s, jitter: 0}}}}", own).queue.retry;
    assert_eq!(written.delay, doubling(SECOND, 2.0, 30 * SECOND));
    assert_eq!((written.jitter_percent, written.max_attempts), (0, 3));
}

#[tokio::test]
async fn a_policy_that_a_file_has_no_words_for_gives_way_to_the_files_own_once_a_part_is_written() {
    let star = r#""*": {queue: {retry: {baseDelay: 2s}}}"#;
    let steps =
        |web: Controller| web.queue(|queue| queue.retry = RetryPolicy::fast_slow(SECOND, 9 * SECOND, 3));
    let kept = in_force(&format!("{{{star}, web: {{queue: {{retry: {{jitter: 1}}}}}}}}"), steps).queue.retry;
    assert_eq!(kept, RetryPolicy::fast_slow(SECOND, 9 * SECOND, 3).with_jitter(1));
    let replaced =
        in_force(&format!("{{{star}, web: {{queue: {{retry: {{maxDelay: 8s}}}}}}}}"), steps).queue.retry;
    assert_eq!(replaced.delay, doubling(2 * SECOND, 2.0, 8 * SECOND));
}

#[tokio::test]
async fn a_written_rate_replaces_the_one_of_the_code_and_null_lifts_it() {
    let coded = Rate { per_second: 1.0, burst: 1 };
    let rate = |file: &str| {
        in_force(file, |web| web.queue(move |queue| queue.retry.rate = Some(coded))).queue.retry.rate
    };
    assert_eq!(rate("{}"), Some(coded));
    assert_eq!(rate("{web: {queue: {retryRate: null}}}"), None);
    let written = rate("{web: {queue: {retryRate: {perSecond: 5, burst: 6}}}}");
    assert_eq!(written, Some(Rate { per_second: 5.0, burst: 6 }));
    let half =
        r#"{"*": {queue: {retryRate: {perSecond: 7, burst: 8}}}, web: {queue: {retryRate: {burst: 6}}}}"#;
    assert_eq!(rate(half), Some(Rate { burst: 6, ..coded }), "the other half is the code's");
    let uncoded = in_force(half, |web| web.queue(|queue| queue.retry.rate = None)).queue.retry.rate;
    assert_eq!(uncoded, Some(Rate { per_second: 7.0, burst: 6 }), "or that of all");
}

#[tokio::test]
async fn nonsense_in_code_is_refused_with_all_of_its_fields_values_and_remedies() {
    let nonsense = |web: Controller| {
        web.workers(0).queue(|queue| {
            queue.retry = RetryPolicy::exponential(9 * SECOND, 3 * SECOND);
            queue.max_wait = Duration::ZERO;
        })
    };
    let expected = [
        r#"controller "web": workers 0 would reconcile nothing; give a number from 1 to 1000"#,
        "controller \"web\": queue.retry.baseDelay 9s is longer than retry.maxDelay 3s; \
         raise maxDelay or lower baseDelay",
        r#"controller "web": queue.maxWait 0ns makes every key the most urgent one; give a duration above 0"#,
    ];
    assert_eq!(refusal("{}", nonsense), expected);
    assert_eq!(
        refusal("{}", |web| web.workers(usize::MAX)),
        [format!(
            "controller \"web\": workers {} would only wait for the API server; give a number from 1 to 1000",
            usize::MAX
        )]
    );
    let edges = [1, usize::from(crate::controller::MAX_WORKERS)];
    assert_eq!(edges.map(|workers| in_force("{}", |web| web.workers(workers)).workers), edges);
}

#[tokio::test]
async fn code_and_file_that_are_right_by_themselves_may_not_fit_together() {
    let own =
        |web: Controller| web.queue(|queue| queue.retry = RetryPolicy::exponential(SECOND, 10 * SECOND));
    assert_eq!(
        refusal("{web: {queue: {retry: {baseDelay: 20s}}}}", own),
        ["controller \"web\": queue.retry.baseDelay 20s is longer than retry.maxDelay 10s; \
             raise maxDelay or lower baseDelay"]
    );
}

#[tokio::test]
async fn the_file_mends_what_the_code_got_wrong() {
    assert_eq!(in_force("{web: {workers: 2}}", |web| web.workers(0)).workers, 2);
}

#[tokio::test]
async fn only_a_dns_label_is_the_name_of_a_controller() {
    let manager = manager("{}");
    let too_long: &'static str = "a123456789a123456789a123456789a123456789a123456789a123456789abcd";
    for name in
        ["", "*", "Web", "web_front", "web.front", "-web", "web-", "web front", "wëb", "a/b", too_long]
    {
        let error = manager.register(registration(Controller::new(name))).unwrap_err();
        assert!(matches!(error, RegisterError::Name { .. }), "{name:?}: {error}");
    }
    for name in ["a", "0", "web-frontend", &too_long[1..]] {
        manager.register(registration(Controller::new(name))).unwrap();
    }
    let refused = |name| manager.register(registration(Controller::new(name))).unwrap_err().to_string();
    let form = "expected 1 to 63 lower-case letters, digits and hyphens, no hyphen at either end, such as \
                web-frontend: it appears in metrics, paths and the configuration";
    assert_eq!(refused("Web"), format!(r#""Web" is no name of a controller; {form}"#));
    assert_eq!(refused("*"), format!(r#""*" is no name of a controller, it means all controllers; {form}"#));
}

#[tokio::test]
async fn a_name_is_taken_once_in_a_manager_and_again_in_another() {
    let (one, other) = (manager("{}"), manager("{}"));
    one.register(registration(Controller::new("web"))).unwrap();
    let error = one.register(registration(Controller::new("web"))).unwrap_err();
    assert!(matches!(&error, RegisterError::DuplicateName { name, .. } if **name == *"web"), "{error}");
    other.register(registration(Controller::new("web"))).unwrap();
    one.register(registration(Controller::new("api"))).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_registration_leaves_nothing_behind() {
    /// Held for as long as anything of the registration is.
    struct Holds {
        _held: Arc<()>,
    }

    impl Reconciler for Holds {
        async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome {
            Ok(Action::Done)
        }
    }

    let manager = manager("{}");
    let held = Arc::new(());
    let of = |controller: Controller| {
        let held = Arc::clone(&held);
        controller.source(channel().1).reconciler(Holds { _held: held })
    };
    let present = || {
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let metrics = manager.registry().encode(Format::Text).unwrap();
        // The metrics of the process and of its runtimes differ at each scrape.
        let another = ["process_", "mainstay_tokio_"];
        let ours = metrics.lines().filter(|line| !another.iter().any(|of| line.starts_with(of)));
        (ours.map(str::to_owned).collect::<Vec<_>>(), tasks, Arc::strong_count(&held))
    };
    let before = present();
    manager.register(of(Controller::new("*"))).unwrap_err();
    manager.register(of(Controller::new("web").workers(0))).unwrap_err();
    manager.register(Controller::new("web").reconciler(Holds { _held: Arc::clone(&held) })).unwrap_err();
    let panics = of(Controller::new("web").queue(|_| panic!("no idea")));
    catch_unwind(AssertUnwindSafe(|| manager.register(panics))).unwrap_err();
    assert_eq!(present(), before);

    let _web = manager.register(of(Controller::new("web"))).expect("the name is free");
    let before = present();
    manager.register(of(Controller::new("web"))).unwrap_err();
    assert_eq!(present(), before);

    manager.stop();
    manager.run().await.unwrap();
    let before = present();
    manager.register(of(Controller::new("late"))).unwrap_err();
    assert_eq!(present(), before);
}
