//! Sources: their sync, their failures, their panics.

use super::*;

/// A source that has one key and syncs once the test notifies `go`.
struct Slow {
    go: Arc<Notify>,
}

impl Source<NamespacedName> for Slow {
    fn run(self: Box<Self>, sink: Sink<NamespacedName>, stop: CancellationToken) -> SourceFuture {
        Box::pin(async move {
            sink.add(key("listed"), Cause::bare(Trigger::Initial));
            self.go.notified().await;
            sink.synced();
            // Told twice, counted once.
            sink.synced();
            stop.cancelled().await;
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_every_source_has_synced() {
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let controller = Controller::new("test")
        .source(Slow { go: Arc::clone(&first) })
        .source(Slow { go: Arc::clone(&second) });
    let bench = Bench::start(controller, reconciler);
    bench.notifier.notify(key("told"));
    first.notify_one();
    none(&mut runs, LONG).await;
    second.notify_one();
    let mut names = [next(&mut runs).await.0.to_string(), next(&mut runs).await.0.to_string()];
    names.sort();
    assert_eq!(names, ["shop/listed", "shop/told"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_or_panics_ends_the_controller_and_is_named() {
    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let broken = function("feed", async |_, _| Err("closed".into()));
    let mut bench = Bench::start(Controller::new("test").source(broken), reconciler);
    let error = ReconcileError::from(bench.ended().await.expect_err("fails"));
    assert_eq!(error.to_string(), "controller test lost source function feed: closed");

    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let panics = function("counter", async |_, _| panic!("oops"));
    let mut bench = Bench::start(Controller::new("test").source(panics), reconciler);
    let error = ReconcileError::from(bench.ended().await.expect_err("fails"));
    assert_eq!(error.to_string(), "controller test lost source function counter: panicked: oops");
}

/// A source that ends without having called `synced`.
struct Silent;

impl Source<NamespacedName> for Silent {
    fn run(self: Box<Self>, _sink: Sink<NamespacedName>, _stop: CancellationToken) -> SourceFuture {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_without_having_synced_does_not_leave_its_controller_waiting() {
    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let mut bench = Bench::start(Controller::new("test").source(Silent), reconciler);
    let error = ReconcileError::from(bench.ended().await.expect_err("fails"));
    let lost = "controller test lost source mainstay::controller::tests::sources::Silent";
    assert_eq!(error.to_string(), format!("{lost}: it ended before it had synced"));
}
