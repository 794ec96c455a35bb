//! Answers that take long: their requests wait, and other requests do not.

use std::fmt;

use super::*;

/// A key with a text that blocks the thread, or panics, when it is made.
#[derive(Clone)]
struct BlockingKey {
    name: &'static str,
    /// Blocks the text of the key until the test waits at the barrier too.
    barrier: Arc<std::sync::Barrier>,
}

impl PartialEq for BlockingKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for BlockingKey {}

impl std::hash::Hash for BlockingKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Key for BlockingKey {
    fn namespace(&self) -> Option<&str> {
        None
    }

    fn name(&self) -> &str {
        self.name
    }
}

impl fmt::Display for BlockingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(self.name != "panics", "on purpose");
        self.barrier.wait();
        f.write_str(self.name)
    }
}

/// Requests a debug page from this machine and returns the response.
async fn get_async(router: Router, path: &str) -> response::Response {
    router.oneshot(request("GET", "localhost", path).map(Body::from)).await.unwrap()
}

struct Never;

impl Reconciler<BlockingKey> for Never {
    async fn reconcile(&self, _: &BlockingKey, _: &Context) -> Outcome {
        Err("a standby must not reconcile".into())
    }
}

#[tokio::test]
async fn a_key_whose_text_blocks_or_panics_affects_only_its_own_request() {
    let live = Live::start_keyed(Term::new(), Never);
    let barrier = Arc::new(std::sync::Barrier::new(2));
    for name in ["panics", "blocks"] {
        live.notifier.notify(BlockingKey { name, barrier: Arc::clone(&barrier) });
    }
    let get = {
        let router = inspect(&live.controllers).router();
        move |path| get_async(router.clone(), path)
    };
    while listed_count(&live.controllers) < 2 {
        tokio::task::yield_now().await;
    }
    let mut blocked = JoinSet::from_iter([get("/debug/controllers/web/queue?name=blocks")]);
    // This test has one thread: if the answer blocked it, the test would hang here.
    tokio::task::yield_now().await;
    assert!(blocked.try_join_next().is_none());
    barrier.wait();
    assert_eq!(blocked.join_next().await.unwrap().unwrap().status(), StatusCode::OK);

    let failed = get("/debug/controllers/web/queue?name=panics").await;
    assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(failed.into_body().collect().await.unwrap().to_bytes(), "the handler panicked\n");
    assert_eq!(get("/debug/leader").await.status(), StatusCode::OK, "other pages are still answered");
    live.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_a_queue_page_delays_only_other_queue_pages() {
    let live = Live::start(Term::new());
    while listed_count(&live.controllers) < 1 {
        live.notifier.notify(NamespacedName::namespaced("shop", "any"));
        tokio::task::yield_now().await;
    }
    let router = inspect(&live.controllers).router();
    let get = |path| get_async(router.clone(), path);
    let unread = get("/debug/controllers/web/queue").await;
    let status = async |path| get(path).await.status();
    assert_eq!(status("/debug/leader").await, StatusCode::OK);
    // The request times out while it waits for the unread answer.
    assert_eq!(status("/debug/controllers/web/queue").await, StatusCode::SERVICE_UNAVAILABLE);
    drop(unread);
    assert_eq!(status("/debug/controllers/web/queue").await, StatusCode::OK);
    live.end().await;
}

/// Returns how many ready keys the controller `web` has; 0 before it runs.
fn listed_count(controllers: &Directory) -> usize {
    controllers.find("web").map_or(0, |web| web.status().counts.ready())
}
