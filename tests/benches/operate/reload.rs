//! How soon a saved configuration is in force: from the save until the sixteenth worker reconciles.
//!
//! One controller has more keys than workers, and reconciles that last until the bench ends them. Each round
//! begins with 4 busy workers; the file is saved with 16 and timed, and then saved with 4 again. The time
//! includes the poll that detects the change, the second read 100 ms later that must agree, parsing, and the
//! start of reconciles. The file is alternately written in place and replaced by a rename.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use mainstay::config::{ConfigSchema, ConfigSource, Overrides};
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::manager::{Manager, ManagerOptions};
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay::watch::channel;
use mainstay_tests::report::{figure, percentile};
use mainstay_tests::wait::PATIENCE;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::Form;

const CONTROLLER: &str = "slow";
const FEW: usize = 4;
const MANY: usize = 16;
/// As a test: longest time to apply a configuration, ten times the promised one.
const APPLY_MS: f64 = 10_000.0;

/// Reconciler with runs that last until `over` is notified; then it requeues its key.
struct Slow {
    /// Number of runs in progress.
    at_work: watch::Sender<usize>,
    over: Arc<Notify>,
}

impl Reconciler for Slow {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome {
        let over = self.over.notified();
        self.at_work.send_modify(|count| *count += 1);
        over.await;
        self.at_work.send_modify(|count| *count -= 1);
        Ok(Action::RequeueAfter(Duration::from_millis(1)))
    }
}

/// Runs the rounds and prints the figures.
pub(crate) async fn measure(form: Form) -> anyhow::Result<()> {
    let rounds = if form.quick { 6 } else { 100 };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("manager.yaml");
    save(&file, FEW, 0)?;
    let schema = ConfigSchema::new().controllers([CONTROLLER]);
    let source = ConfigSource::new(&file, Overrides::default(), schema.clone());
    let loaded = schema.load(&file, &Overrides::default())?;
    let options =
        ManagerOptions { signals: false, source: Some(source), ..ManagerOptions::replica("reload") };
    // Port 1 has no listener; the manager never connects to it.
    let manager = Manager::new(options, loaded, kube::Config::new("http://127.0.0.1:1".parse()?))?;
    let (at_work, over) = (watch::Sender::new(0), Arc::new(Notify::new()));
    let mut count = at_work.subscribe();
    let slow = Slow { at_work, over: Arc::clone(&over) };
    let handle = manager.register(Controller::new(CONTROLLER).source(channel().1).reconciler(slow))?;
    for key in 0..4 * MANY {
        handle.trigger(NamespacedName::namespaced("shop", format!("key-{key}")))?;
    }
    let mut running = JoinSet::new();
    let to_run = manager.clone();
    running.spawn(async move { to_run.run().await });

    let mut times = Vec::new();
    for round in 1..=rounds {
        until(&mut count, FEW).await?;
        let began = Instant::now();
        save(&file, MANY, round)?;
        until(&mut count, MANY).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        save(&file, FEW, round)?;
        let mut configurations = manager.configurations();
        let few = configurations.wait_for(|now| now.controller(CONTROLLER).workers == FEW);
        drop(timeout(PATIENCE, few).await.context("the smaller number is not applied")??);
        // A worker that ends its run before the controller has applied the new number takes another key, so
        // the notification is repeated.
        let fewer = async {
            while *count.borrow() != FEW {
                over.notify_waiters();
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, fewer).await.context("too many workers are still at work")?;
    }
    manager.stop();
    over.notify_waiters();
    // The measurement is over, so runs that began since are dropped with the runtime.
    running.abort_all();

    times.sort_by(f64::total_cmp);
    let (median, most) = (percentile(&times, 50), percentile(&times, 100));
    figure("reload.apply_ms", median, "ms");
    figure("reload.apply_max_ms", most, "ms");
    anyhow::ensure!(!form.test || most < APPLY_MS, "reload.apply_max_ms {most:.1} is above {APPLY_MS}");
    Ok(())
}

/// Waits until exactly `workers` runs are in progress.
async fn until(count: &mut watch::Receiver<usize>, workers: usize) -> anyhow::Result<()> {
    let waited = timeout(PATIENCE, count.wait_for(|count| *count == workers)).await;
    drop(waited.with_context(|| format!("waited {PATIENCE:?} for {workers} at work"))??);
    Ok(())
}

fn save(file: &Path, workers: usize, round: usize) -> anyhow::Result<()> {
    let text = format!(
        "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
         leaderElection: {{enabled: false}}\nhealth: {{bindAddress: \"\"}}\nmetrics: {{bindAddress: \"\"}}\n\
         inspect: {{bindAddress: \"\"}}\ncontrollers: {{{CONTROLLER}: {{workers: {workers}}}}}\n"
    );
    if round.is_multiple_of(2) {
        fs::write(file, text)?;
    } else {
        let beside = file.with_extension("new");
        fs::write(&beside, text)?;
        fs::rename(&beside, file)?;
    }
    Ok(())
}
