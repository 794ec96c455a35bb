//! Runs at the end of a term, and at a stop.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lost_term_drops_the_run_and_the_next_term_begins_it_anew() {
    let (reconciler, mut runs) = scripted(async |_| {
        std::future::pending::<()>().await;
        Ok(Action::Done)
    });
    let now = Arc::clone(&reconciler.now);
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    next(&mut runs).await;
    bench.term.lose();
    timeout(LONG, bench.term.ended()).await.expect("the run is dropped");
    assert_eq!(now.load(Ordering::SeqCst), 0);
    none(&mut runs, LONG).await;
    bench.term.begin();
    assert_eq!(next(&mut runs).await.1, 1, "an interrupted run is no failure");
}

/// A reconciler that sends the number of the term of each reconcile.
struct TermTeller(mpsc::UnboundedSender<u64>);

impl Reconciler for TermTeller {
    async fn reconcile(&self, _request: &NamespacedName, cx: &Context) -> Outcome {
        self.0.send(cx.term()).expect("the test listens");
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_knows_that_others_may_have_led_since_the_last_one() {
    let (told, mut terms) = mpsc::unbounded_channel();
    let bench = Bench::start(Controller::new("test"), TermTeller(told));
    let mut run = async || {
        bench.notifier.notify(key("web"));
        timeout(LONG, terms.recv()).await.expect("a run").expect("the controller lives")
    };
    let (first, second) = (run().await, run().await);
    assert_eq!(first, second);
    bench.term.lose();
    bench.term.begin();
    assert!(run().await > first, "another term");
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_run_finish_and_begins_no_other() {
    let (reconciler, mut runs) = scripted(async |_| {
        sleep(Duration::from_secs(5)).await;
        Ok(Action::Done)
    });
    let mut bench = Bench::start(Controller::new("test"), reconciler);
    bench.settings.send_modify(|settings| settings.workers = 1);
    bench.notifier.notify(key("first"));
    next(&mut runs).await;
    bench.notifier.notify(key("second"));
    bench.term.end();
    bench.stop.cancel();
    bench.ended().await.expect("in order");
    none(&mut runs, LONG).await;
    assert_eq!(
        bench.counts("controller_runtime_reconcile_total"),
        "{controller=\"test\",result=\"success\"} 1",
        "the first has finished"
    );
}
