//! The thin task under the decision: it sends, waits and publishes what was decided, and decides nothing.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::BoxStream;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::decide::{Action, Answer, Call, Ending, Event, State, decide};
use super::lock::LockError;
use super::record::Record;
use super::trouble::{Trouble, trouble_log};
use super::{Elector, Ended, Leadership, LeaseEvent};
use crate::key::Chain;
use crate::util::LogOnce;

/// An elector that runs.
struct Task<W, F> {
    elector: Elector,
    state: State,
    end_work: F,
    /// The end of leader-only work, while it is awaited.
    work: Option<Pin<Box<W>>>,
    request: Option<Request>,
    /// Who leads as far as is known.
    holder: Option<Arc<str>>,
    /// The last one that the log has named: whoever takes its own Lease again is no news.
    named: Option<Arc<str>>,
    /// The last loss that no later term made good.
    lost: Option<Ending>,
    logged: LogOnce<Trouble>,
    /// Since when the Lease has been known to name nobody.
    free_since: Option<Instant>,
    /// Since when the term that ends does so.
    ending_since: Option<Instant>,
    /// Requests fail, and the log has said so.
    failing: bool,
    ended: Option<Ended>,
}

struct Request {
    answer: BoxFuture<'static, Result<Answer, LockError>>,
    sent: Instant,
    /// Whether it is a leader's, which counts as renewing.
    renews: bool,
}

pub(super) async fn run<W, F>(
    elector: Elector,
    mut watch: BoxStream<'static, Event>,
    end_work: F,
    stop: CancellationToken,
) -> Ended
where
    W: Future<Output = bool>,
    F: FnMut() -> W,
{
    let state = State::new((elector.clock)().boot);
    let mut task = Task {
        elector,
        state,
        end_work,
        work: None,
        request: None,
        holder: None,
        named: None,
        lost: None,
        logged: trouble_log(),
        free_since: None,
        ending_since: None,
        failing: false,
        ended: None,
    };
    let mut told_to_stop = false;
    loop {
        let rest = task.rest();
        // Biased: a stop and the end of work come before all else, and an answer before the clock, since it may
        // say that there is time left.
        let event = tokio::select! {
            biased;
            () = stop.cancelled(), if !told_to_stop => {
                told_to_stop = true;
                Event::Stop
            }
            Some(ended) = OptionFuture::from(task.work.as_mut()) => {
                task.work = None;
                Event::WorkEnded(ended)
            }
            Some(answer) = OptionFuture::from(task.request.as_mut().map(|request| &mut request.answer)) => {
                task.answered(answer)
            }
            Some(event) = watch.next() => event,
            () = sleep(rest) => Event::Tick,
        };
        task.turn(event);
        if let Some(ended) = task.ended {
            return ended;
        }
    }
}

// === impl Task ===

impl<W, F> Task<W, F>
where
    W: Future<Output = bool>,
    F: FnMut() -> W,
{
    /// Returns how long nothing is to be done. Never more than a retry period: the timer stands still while the
    /// machine is suspended, and the clock of the decision does not.
    fn rest(&self) -> std::time::Duration {
        let settings = &self.elector.settings;
        let now = (self.elector.clock)().boot;
        let wake = self.state.wake_at(settings).map(|wake| wake.saturating_since(now));
        wake.unwrap_or(settings.retry_period).min(settings.retry_period)
    }

    fn turn(&mut self, event: Event) {
        if let Event::Seen(record, _) = &event {
            self.warn_if_absurd(record);
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
        let good = matches!(answer, Ok(Answer::Is(..)));
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
                    tracing::info!(lease = %self.elector.lock, "requests for the lease are answered again");
                }
                answer
            }
            Err(error) => {
                self.complain(&error);
                Answer::Failed
            }
        };
        if let Answer::Is(record, _) = &answer {
            self.warn_if_absurd(record);
        }
        Event::Answered(answer)
    }

    fn complain(&mut self, error: &LockError) {
        let news = self.logged.is_first(error.trouble, Instant::now());
        let (lease, error) = (&self.elector.lock, Chain(error));
        if news {
            self.failing = true;
            tracing::warn!(%lease, %error, "request for the lease failed; trying again");
        } else {
            tracing::debug!(%lease, %error, "request for the lease failed again");
        }
    }

    fn warn_if_absurd(&mut self, record: &Record) {
        // What others make of our own record is told where it is mended.
        let of_another = record.holder.as_ref() != Some(&self.elector.settings.identity);
        if of_another && record.is_absurd() && self.logged.is_first(Trouble::Absurd, Instant::now()) {
            let believed = record.duration(self.elector.settings.lease_duration);
            tracing::warn!(
                lease = %self.elector.lock,
                holder = record.holder.as_deref(),
                stated = record.duration_seconds,
                ?believed,
                "the lease states a leaseDurationSeconds that nobody can mean"
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
                tracing::info!(lease = %self.elector.lock, identity = %self.identity(), transitions, "became leader");
                self.publish(Leadership::Leading { transitions });
                self.tell(LeaseEvent::BecameLeader { identity: self.identity() });
            }
            Action::Extend { until } => self.elector.fence.extend(until),
            Action::Suspend => {
                self.elector.fence.close();
                let lease = &self.elector.lock;
                if self.logged.is_first(Trouble::Missing, Instant::now()) {
                    tracing::warn!(%lease, "the lease was deleted or its holder cleared; taking it again");
                } else {
                    tracing::debug!(%lease, "the lease was deleted or its holder cleared again");
                }
            }
            Action::Mend => {
                let lease = &self.elector.lock;
                if self.logged.is_first(Trouble::Edited, Instant::now()) {
                    tracing::warn!(%lease, "the lease was edited by somebody else; the next renewal writes it anew");
                } else {
                    tracing::debug!(%lease, "the lease was edited by somebody else again");
                }
            }
            Action::StopLeading(ending) => self.stop_leading(ending),
            Action::EndWork => {
                self.ending_since = Some(Instant::now());
                self.work = Some(Box::pin((self.end_work)()));
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
        let lease = &self.elector.lock;
        match &ending {
            Ending::Stopped => tracing::info!(%lease, "stopped leading"),
            Ending::Expired => tracing::error!(%lease, "stopped leading: no renewal got through in time"),
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
        self.tell(LeaseEvent::StoppedLeading { identity: self.identity(), ending });
    }

    fn new_holder(&mut self, holder: Option<Arc<str>>) {
        self.holder.clone_from(&holder);
        match &holder {
            // Only what somebody held can be taken over.
            None => self.free_since = self.named.is_some().then(Instant::now),
            Some(holder) if *holder != self.identity() => self.free_since = None,
            Some(_) => {}
        }
        if let Some(holder) = holder.as_ref().filter(|_| holder != self.named) {
            tracing::info!(lease = %self.elector.lock, %holder, "new leader");
            self.named = Some(Arc::clone(holder));
        }
        if matches!(*self.elector.leadership.borrow(), Leadership::Standby { .. }) {
            self.publish(Leadership::Standby { holder: holder.clone() });
        }
        self.tell(LeaseEvent::NewLeader { holder });
    }

    fn finish(&mut self, released: bool) {
        self.elector.fence.close();
        if released {
            tracing::info!(lease = %self.elector.lock, "gave the lease up");
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

    fn tell(&self, event: LeaseEvent) {
        (self.elector.on_event)(event);
    }
}
