//! Random edits of a file, each judged as if it had been saved.

use super::*;
use crate::config::tests::edits::{edit, every_key};

/// Files that are saved one after the other, and with `MAINSTAY_LONG=1`.
const FILES: [usize; 2] = [2_000, 10_000];

/// A valid configuration file of many lines.
const SETTINGS: &str = r#"shop:
  currency: USD
  prices: {apple: 3, pear: 4}
logging:
  level: info,mainstay::queue=debug
shutdown: {gracePeriod: 5s}
controllers:
  "*":
    workers: 4
    queue:
      maxDepth: 9
      retry:
        maxDelay: 20s
  web:
    workers: 8
    queue:
      retryRate: {perSecond: 5, burst: 10}
  coded:
    reconcileTimeout: 3s
    queue:
      retry:
        jitter: 20
"#;

/// The configuration in force, and the settings of every controller.
type Holds = (ManagerConfiguration, Vec<ControllerSettings>);

#[tokio::test]
async fn random_edits_are_applied_whole_or_not_at_all() {
    let seed = std::env::var("MAINSTAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_250_801);
    let mut random = fastrand::Rng::with_seed(seed);
    let good = [every_key(), format!("{HEAD}{SETTINGS}")];
    let subject = Subject::new("");
    let steps = |it: Controller| {
        it.workers(3).queue(|queue| {
            queue.max_depth *= 2;
            queue.retry.max_attempts = 7;
        })
    };
    let handles = [subject.register("web", |it| it), subject.register("coded", steps)];
    let holds =
        || -> Holds { ((*subject.manager.configuration()).clone(), handles.iter().map(settings).collect()) };
    let files = FILES[usize::from(std::env::var_os("MAINSTAY_LONG").is_some())];
    let (mut applied, mut unchanged, mut refused) = (0, 0, 0);
    for round in 0..files {
        let mut text = random.choice(&good).unwrap().clone();
        for _ in 0..random.usize(..=2) {
            text = edit(&text, &mut random);
        }
        let about = || format!("MAINSTAY_SEED={seed}, file {round}:\n{text}");
        let before = holds();
        let outcome = subject.save_text(text.clone());
        let after = holds();
        match outcome {
            Outcome::Refused => {
                refused += 1;
                assert_eq!(after, before, "{}", about());
                assert!(!subject.problems().is_empty(), "{}", about());
                continue;
            }
            Outcome::Applied => applied += 1,
            Outcome::Unchanged => {
                unchanged += 1;
                assert_eq!(after, before, "{}", about());
            }
        }
        let status = subject.reload_status();
        let alone = &status.accepted.configuration;
        assert_eq!(after.0, status.started.configuration.reloaded(alone), "{}", about());
        assert!(status.refused.is_none(), "{}", about());
        let coded = alone.controllers.settings("coded", |below| {
            below.workers = 3;
            below.queue.max_depth *= 2;
            below.queue.retry.max_attempts = 7;
        });
        assert_eq!(after.1, [alone.controller("web"), coded], "{}", about());
    }
    let (many, some) = (files / 20, files / 1_000);
    assert!(
        applied > many && unchanged > some && refused > many,
        "{applied}, {unchanged}, {refused}: one-sided"
    );
}
