//! Workers: their number, and their panics.

use std::fmt;

use super::*;

#[tokio::test(start_paused = true)]
async fn the_number_of_workers_changes_while_they_work_and_cancels_none() {
    let (reconciler, mut runs) = scripted(async |_| {
        sleep(Duration::from_secs(10)).await;
        Ok(Action::Done)
    });
    let (now, most) = (Arc::clone(&reconciler.now), Arc::clone(&reconciler.most));
    let bench = Bench::start(Controller::new("test"), reconciler);
    let workers = |workers| bench.settings.send_modify(|settings| settings.workers = workers);
    for number in 0..40 {
        bench.notifier.notify(key(&number.to_string()));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(now.load(Ordering::SeqCst), DEFAULT_WORKERS);
    workers(8);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(now.load(Ordering::SeqCst), 8, "more at once");
    workers(1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(now.load(Ordering::SeqCst), 8, "those at work finish");
    workers(3);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(now.load(Ordering::SeqCst), 3, "fewer afterwards");
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(most.load(Ordering::SeqCst), 8, "never more than wanted");
    let mut seen = 0;
    while runs.try_recv().is_ok() {
        seen += 1;
    }
    assert_eq!(seen, 40, "each once: nothing was cancelled, nothing lost");
}

/// An error that panics when it is displayed.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Unspeakable {}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_told_costs_no_worker() {
    let (reconciler, mut runs) = scripted(async |_| Err(Unspeakable.into()));
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    for attempt in 1..=2 * u32::try_from(DEFAULT_WORKERS).expect("small") {
        assert_eq!(next(&mut runs).await.1, attempt, "tried again by a worker that is still there");
    }
    bench.term.end();
    timeout(LONG, bench.term.ended()).await.expect("its work has been given back");
}

/// The payload of a panic. Its drop calls this function and then panics once more.
struct Bomb(Arc<dyn Fn() + Send + Sync>);

impl Drop for Bomb {
    fn drop(&mut self) {
        (self.0)();
        panic!("dropped");
    }
}

/// An error that panics with a [`Bomb`] when it is displayed.
struct Armed(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Armed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("armed")
    }
}

impl fmt::Display for Armed {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::panic::panic_any(Bomb(Arc::clone(&self.0)))
    }
}

impl std::error::Error for Armed {}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_ends_its_controller_also_if_the_crew_is_counted_before_that_is_noticed() {
    for busy in [false, true] {
        let port: Arc<Mutex<Option<Weak<ControllerPort<NamespacedName>>>>> = Arc::default();
        let reach = Arc::clone(&port);
        // With a new source at the same moment the controller goes through its pool first.
        let meanwhile: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let port = reach.lock().as_ref().and_then(Weak::upgrade).expect("it lives");
            if busy {
                port.add_source(Box::new(channel().1));
            }
        });
        let (reconciler, _runs) = scripted(move |_| {
            let armed = Armed(Arc::clone(&meanwhile));
            async { Err(armed.into()) }
        });
        let mut bench = Bench::start(Controller::new("test"), reconciler);
        *port.lock() = Some(Weak::clone(&bench.port));
        bench.notifier.notify(key("web"));
        let ended = bench.ended().await;
        assert!(matches!(ended, Err(ControllerError::WorkerPanicked { .. })), "{ended:?}");
    }
}
