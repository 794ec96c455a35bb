//! The task of an elector: collects events, calls `decide` and performs its actions. No decision is made
//! here.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::decide::{Action, Answer, Call, Ending, Event, State, decide};
use super::lock::LockError;
use super::record::Record;
use super::trouble::{Trouble, TroubleLog};
use super::{Elector, Ended, Leadership, LeaseEvent};

/// A function that ends leader-only work. Its future resolves to `true` once the work has ended, or to
/// `false` if work may still run.
pub(super) type EndWork = Box<dyn FnMut() -> BoxFuture<'static, bool> + Send>;

/// A running elector with the state of its election.
struct Task {
    elector: Elector,
    state: State,
    end_work: EndWork,
    /// The future that `end_work` returned: leader-only work is ending. Set from the end of a term until it
    /// resolves.
    work: Option<BoxFuture<'static, bool>>,
    request: Option<Request>,
    /// The holder of the Lease in the last [`Action::NewHolder`].
    holder: Option<Arc<str>>,
    /// The holder of the Lease that was last logged; a holder that acquires its own Lease again is not
    /// logged.
    logged_holder: Option<Arc<str>>,
    /// Reason of the last loss of the Lease, unless this replica has led since.
    lost: Option<Ending>,
    troubles: TroubleLog,
    /// Time since which the Lease has named no holder, after it named one.
    free_since: Option<Instant>,
    /// Time at which `end_work` was last called to end leader-only work.
    ending_since: Option<Instant>,
    /// Whether a failed request for the Lease was logged and none has succeeded since.
    failing: bool,
    ended: Option<Ended>,
}

struct Request {
    answer: BoxFuture<'static, Result<Answer, LockError>>,
    sent: Instant,
    /// Whether the request is a renewal of the Lease, which is a leader's write.
    renews: bool,
}

pub(super) async fn run(elector: Elector, end_work: EndWork, stop: CancellationToken) -> Ended {
    let (settings, clock) = (elector.settings.clone(), Arc::clone(&elector.clock));
    // A leader renews every retry period, so a watch that is silent for two lease durations is broken.
    let silence = settings.lease_duration * 2;
    let (sender, mut events) = mpsc::channel(1);
    let pause = || settings.candidate_wait(clock().random);
    let mut watching = pin!(elector.lock.clone().watch(silence, pause, sender));
    let mut task = Task {
        state: State::new(clock().boot),
        troubles: TroubleLog::new(elector.lock.name.clone()),
        elector,
        end_work,
        work: None,
        request: None,
        holder: None,
        logged_holder: None,
        lost: None,
        free_since: None,
        ending_since: None,
        failing: false,
        ended: None,
    };
    let mut stopping = false;
    loop {
        let rest = task.rest();
        // Biased: a stop and the end of work come first, and an answer before the timer, since a renewal
        // extends the time to lead.
        let event = tokio::select! {
            biased;
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                Event::Stop
            }
            Some(ended) = OptionFuture::from(task.work.as_mut()) => {
                task.work = None;
                Event::WorkEnded(ended)
            }
            Some(answer) = OptionFuture::from(task.request.as_mut().map(|request| &mut request.answer)) => {
                task.answered(answer)
            }
            Some(event) = events.recv() => event,
            never = &mut watching => match never {},
            () = sleep(rest) => Event::Tick,
        };
        task.turn(event);
        if let Some(ended) = task.ended {
            return ended;
        }
    }
}

// === impl Task ===

impl Task {
    /// Returns the time until the elector's next tick, at most one retry period: the timer stands still while
    /// the machine is suspended, but the clock of the decision does not.
    fn rest(&self) -> std::time::Duration {
        let settings = &self.elector.settings;
        let now = (self.elector.clock)().boot;
        let wake = self.state.wake_at(settings).map(|wake| wake.saturating_since(now));
        wake.unwrap_or(settings.retry_period).min(settings.retry_period)
    }

    fn turn(&mut self, event: Event) {
        if let Event::Seen(record, _) = &event {
            self.warn_if_invalid_duration(record);
        }
        let state = self.state.clone();
        let (state, actions) = decide(&self.elector.settings, state, (self.elector.clock)(), event);
        self.state = state;
        for action in actions {
            self.perform(action);
        }
    }

    fn answered(&mut self, answer: Result<Answer, LockError>) -> Event {
        let request = self.request.take();
        let good = matches!(answer, Ok(Answer::Stored(..)));
        if let Some(request) = request.filter(|request| request.renews) {
            if good {
                self.elector.metrics.renew_seconds.observe(request.sent.elapsed().as_secs_f64());
            } else {
                self.elector.metrics.failures.inc();
            }
        }
        let answer = match answer {
            Ok(answer) => {
                if std::mem::take(&mut self.failing) {
                    let lease = &self.elector.lock.name;
                    tracing::info!(%lease, "requests for the lease are answered again");
                }
                answer
            }
            Err(error) => {
                let text = "request for the lease failed; trying again";
                self.failing |= self.troubles.log(error.trouble, Some(&error), text);
                Answer::Failed
            }
        };
        if let Answer::Stored(record, _) = &answer {
            self.warn_if_invalid_duration(record);
        }
        Event::Answered(answer)
    }

    fn warn_if_invalid_duration(&mut self, record: &Record) {
        // An edit of this replica's own record is logged by `Action::Rewrite`.
        let of_another = record.holder.as_ref() != Some(&self.elector.settings.identity);
        if of_another && record.has_invalid_duration() && self.troubles.is_new(Trouble::InvalidDuration) {
            let believed = record.duration(self.elector.settings.lease_duration);
            tracing::warn!(
                lease = %self.elector.lock.name,
                holder = record.holder.as_deref(),
                stated = record.duration_seconds,
                ?believed,
                "the lease states an implausible leaseDurationSeconds"
            );
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Send(call) => self.send(call),
            Action::Abandon => self.request = None,
            Action::Lead { until, transitions } => {
                self.elector.fence.extend(until);
                self.elector.metrics.master.set(1);
                self.elector.metrics.terms.inc();
                if let Some(free) = self.free_since.take() {
                    self.elector.metrics.take_over_seconds.observe(free.elapsed().as_secs_f64());
                }
                self.lost = None;
                let (lease, identity) = (&self.elector.lock.name, self.identity());
                tracing::info!(%lease, %identity, transitions, "became leader");
                self.publish(Leadership::Leading { transitions });
                self.emit(LeaseEvent::BecameLeader { identity });
            }
            Action::Extend { until } => self.elector.fence.extend(until),
            Action::Suspend => {
                self.elector.fence.close();
                let text = "the lease was deleted or its holder cleared; acquiring it again";
                self.troubles.log(Trouble::Missing, None, text);
            }
            Action::Rewrite => {
                let text = "the lease was edited; the next renewal overwrites the edit";
                self.troubles.log(Trouble::Edited, None, text);
            }
            Action::StopLeading(ending) => self.stop_leading(ending),
            Action::EndWork => {
                self.ending_since = Some(Instant::now());
                self.work = Some((self.end_work)());
            }
            Action::Standby => self.publish(Leadership::Standby { holder: self.holder.clone() }),
            Action::NewHolder(holder) => self.new_holder(holder),
            Action::Finish { released } => self.finish(released),
        }
    }

    fn send(&mut self, call: Call) {
        let leading = self.state.is_leading();
        if leading && call == Call::Get {
            self.elector.metrics.slow_path.inc();
        }
        let renews = leading && call != Call::Get;
        let lock = self.elector.lock.clone();
        let answer = Box::pin(async move { lock.call(call).await });
        self.request = Some(Request { answer, sent: Instant::now(), renews });
    }

    fn stop_leading(&mut self, ending: Ending) {
        self.elector.fence.close();
        self.elector.metrics.master.set(0);
        let lease = &self.elector.lock.name;
        match &ending {
            Ending::Stopped => tracing::info!(%lease, "stopped leading"),
            Ending::Expired => tracing::error!(%lease, "stopped leading: no renewal succeeded in time"),
            Ending::Taken(holder) => {
                tracing::error!(%lease, %holder, "stopped leading: another replica holds the lease");
            }
        }
        if ending == Ending::Stopped {
            self.publish(Leadership::Standby { holder: None });
        } else {
            self.elector.metrics.losses.inc();
            self.lost = Some(ending.clone());
            self.publish(Leadership::Lost(ending.clone()));
        }
        self.emit(LeaseEvent::StoppedLeading { identity: self.identity(), ending });
    }

    fn new_holder(&mut self, holder: Option<Arc<str>>) {
        self.holder.clone_from(&holder);
        match &holder {
            // A Lease without a previous holder cannot be taken over.
            None => self.free_since = self.logged_holder.is_some().then(Instant::now),
            Some(holder) if *holder != self.identity() => self.free_since = None,
            Some(_) => {}
        }
        if let Some(holder) = holder.as_ref().filter(|_| holder != self.logged_holder) {
            tracing::info!(lease = %self.elector.lock.name, %holder, "new leader");
            self.logged_holder = Some(Arc::clone(holder));
        }
        if matches!(*self.elector.leadership.borrow(), Leadership::Standby { .. }) {
            self.publish(Leadership::Standby { holder: holder.clone() });
        }
        self.emit(LeaseEvent::NewLeader { holder });
    }

    fn finish(&mut self, released: bool) {
        self.elector.fence.close();
        if released {
            tracing::info!(lease = %self.elector.lock.name, "released the lease");
            if let Some(ending) = self.ending_since.take() {
                self.elector.metrics.release_seconds.observe(ending.elapsed().as_secs_f64());
            }
        }
        self.ended = Some(Ended { released, lost: self.lost.clone() });
    }

    fn identity(&self) -> Arc<str> {
        Arc::clone(&self.elector.settings.identity)
    }

    fn publish(&self, leadership: Leadership) {
        self.elector.leadership.send_replace(leadership);
    }

    fn emit(&self, event: LeaseEvent) {
        (self.elector.on_event)(event);
    }
}
