//! Controllers that come while a file is judged.

use std::sync::mpsc;

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::*;

/// Code of a controller that waits for `go` once it is called with a certain number.
struct Waits {
    /// Receives a message when the code waits.
    reached: Mutex<mpsc::Receiver<()>>,
    go: mpsc::Sender<()>,
}

fn waits(at: usize) -> (Waits, impl Fn(usize) + Send + Sync + 'static) {
    let ((tell, reached), (go, gone)) = (mpsc::channel(), mpsc::channel::<()>());
    let gone = Mutex::new(gone);
    let code = move |workers| {
        if workers == at {
            tell.send(()).expect("the test listens");
            // An error is as good as a word: the test has let go.
            gone.lock().recv().ok();
        }
    };
    (Waits { reached: Mutex::new(reached), go }, code)
}

impl Waits {
    fn reached(&self) {
        self.reached.lock().recv_timeout(Duration::from_mins(1)).expect("asked in time");
    }

    fn go(self) {
        drop(self.go);
    }
}

/// Calls `code` with the `maxDepth` that the settings below the code have.
fn asks(code: impl Fn(usize) + Send + Sync + 'static) -> impl FnOnce(Controller) -> Controller {
    |it| it.queue(move |queue| code(queue.max_depth))
}

#[tokio::test]
async fn a_controller_registered_while_a_file_is_judged_works_by_that_file() {
    let subject = Subject::new("");
    let (wait, code) = waits(77);
    let slow = subject.register("slow", asks(code));
    let (reloads, source) = (subject.reloads.clone(), subject.source.clone());
    let file = format!("{HEAD}controllers: {{\"*\": {{workers: 9, queue: {{maxDepth: 77}}}}}}");
    let judged = spawn_blocking(move || reloads.take(&source, Ok(file)));
    wait.reached();
    // A registration does not wait for the code of another controller, and the new file is not in force yet.
    let late = subject.register("late", |it| it.workers(3));
    let early = settings(&late);
    assert_eq!((early.workers, early.queue.max_depth), (3, 0));
    let (gone, again) = (subject.register("gone", |it| it.workers(4)), |it: Controller| it.workers(5));
    drop(gone.remove());
    let again = subject.register("gone", again);
    wait.go();
    assert_eq!(judged.await.unwrap(), Outcome::Applied);
    let found = [&slow, &late, &again].map(settings).map(|it| (it.workers, it.queue.max_depth));
    assert_eq!(found, [(9, 77), (3, 77), (5, 77)]);
}

#[tokio::test]
async fn who_registers_while_reading_the_configuration_holds_up_nobody() {
    let subject = Subject::new("");
    let configurations = subject.manager.configurations();
    let read = configurations.borrow();
    let (reloads, source, manager) =
        (subject.reloads.clone(), subject.source.clone(), subject.manager.clone());
    let saving =
        thread::spawn(move || reloads.take(&source, Ok(format!("{HEAD}shutdown: {{gracePeriod: 7s}}"))));
    let (tell, registered) = mpsc::channel();
    let registering = thread::spawn(move || {
        while *manager.configuration().shutdown.grace_period != Duration::from_secs(7) {
            thread::yield_now();
        }
        let late = manager.register(Controller::new("late").source(channel().1).reconciler(Nothing));
        tell.send(late.is_ok()).expect("the test listens");
    });
    let in_time = registered.recv_timeout(Duration::from_mins(1));
    drop(read);
    assert_eq!((in_time, saving.join().unwrap()), (Ok(true), Outcome::Applied));
    registering.join().unwrap();
}

#[tokio::test]
async fn a_file_applied_while_a_controller_is_registered_is_the_one_it_works_by() {
    let subject = Subject::new(r#"controllers: {"*": {queue: {maxDepth: 77}}}"#);
    let (wait, code) = waits(77);
    let manager = subject.manager.clone();
    let registered = spawn_blocking(move || {
        let controller = asks(code)(Controller::new("slow")).source(channel().1).reconciler(Nothing);
        manager.register(controller).unwrap()
    });
    wait.reached();
    assert_eq!(subject.save(r#"controllers: {"*": {workers: 9}}"#), Outcome::Applied);
    wait.go();
    let slow = registered.await.unwrap();
    assert_eq!((settings(&slow).workers, settings(&slow).queue.max_depth), (9, 0));
}
