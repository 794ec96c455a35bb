//! Moves the clock of the controllers forward, for tests.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::store::Shift;

/// A request to let time pass.
#[derive(Debug)]
struct Request {
    by: Duration,
    done: oneshot::Sender<()>,
}

/// Lets time pass for controllers. The clock in their [`Options`](super::Options) must be one of this
/// [`Shift`].
#[derive(Clone, Debug)]
pub struct Time {
    requests: mpsc::UnboundedSender<Request>,
}

/// The side of the controllers.
#[derive(Debug)]
pub(super) struct Advances {
    shift: Shift,
    requests: mpsc::UnboundedReceiver<Request>,
    current: Option<Request>,
}

// === impl Time ===

impl Time {
    /// Returns a handle and the side of the controllers.
    pub(super) fn new(shift: Shift) -> (Self, Advances) {
        // Unbounded: each sender waits until its request is done.
        let (sender, requests) = mpsc::unbounded_channel();
        (Self { requests: sender }, Advances { shift, requests, current: None })
    }

    /// Lets this much time pass, and returns when the controllers have done all work that was due in it.
    /// Returns at once if the controllers have stopped.
    pub async fn advance(&self, by: Duration) {
        let (done, finished) = oneshot::channel();
        if self.requests.send(Request { by, done }).is_ok() {
            // An error: the controllers have stopped.
            _ = finished.await;
        }
    }
}

// === impl Advances ===

impl Advances {
    /// Waits for a request; pending if none can come.
    pub(super) async fn arrive(&mut self) {
        match self.requests.recv().await {
            Some(request) => self.current = Some(request),
            None => std::future::pending().await,
        }
    }

    /// Whether a request is in progress.
    pub(super) fn is_moving(&self) -> bool {
        self.current.is_some()
    }

    /// Moves the clock towards the end of the current request, at most by `due`, and returns the distance.
    /// Answers the request if its end was reached before. Called while the controllers are idle.
    pub(super) fn step(&mut self, due: Option<Duration>) -> Duration {
        let left = self.current.as_ref().map_or(Duration::ZERO, |request| request.by);
        let step = due.map_or(left, |due| due.min(left));
        if left.is_zero()
            && let Some(request) = self.current.take()
        {
            // An error: the caller no longer waits.
            _ = request.done.send(());
        }
        if let Some(request) = &mut self.current {
            request.by -= step;
        }
        self.shift.advance(step);
        step
    }
}
