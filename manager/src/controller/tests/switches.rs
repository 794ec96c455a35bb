//! `enabled` and `paused` of the configuration.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_paused_controller_takes_no_key_and_keeps_all_until_it_goes_on() {
    let (reconciler, mut runs) = scripted(|_| async {
        sleep(Duration::from_secs(5)).await;
        Ok(Action::Done)
    });
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("running"));
    next(&mut runs).await;
    bench.settings.send_modify(|settings| settings.paused = true);
    sleep(Duration::from_secs(1)).await;
    bench.notifier.notify(key("queued"));
    none(&mut runs, LONG).await;
    let status = bench.status();
    assert!(status.settings.paused);
    assert_eq!((status.counts.running, status.counts.ready_live), (0, 1), "the run ended, and the key stays");

    bench.settings.send_modify(|settings| settings.paused = false);
    assert_eq!(next(&mut runs).await.0, key("queued"));
}

#[tokio::test(start_paused = true)]
async fn a_disabled_controller_is_listed_and_runs_neither_sources_nor_reconciles() {
    let (reconciler, mut runs) = scripted(|_| async { Ok(Action::Done) });
    let disabled = ControllerSettings { enabled: false, ..settings() };
    let mut bench = Bench::start_with(disabled, Term::begun(), Controller::new("test"), reconciler);
    bench.notifier.notify(key("a"));
    none(&mut runs, LONG).await;
    let status = bench.status();
    assert!(!status.settings.enabled && !status.synced);
    let controller = bench.directory.find("test").expect("it is listed");
    assert_eq!(controller.reconcile(Some("shop"), "a"), Err(ReconcileRefused::Disabled));
    bench.settings.send_modify(|settings| settings.enabled = true);
    none(&mut runs, LONG).await;
    bench.stop.cancel();
    bench.ended().await.unwrap();
}
