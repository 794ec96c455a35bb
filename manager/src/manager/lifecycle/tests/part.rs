//! Runnables and reconciles that write down when they start and end.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::key::NamespacedName;
use crate::manager::{RunContext, Runnable, RunnableGroup};
use crate::reconcile::{Action, BoxError, Context, Outcome, Reconciler};

/// Far longer than any step of these tests, because the machine may compile meanwhile.
const PATIENCE: Duration = Duration::from_mins(1);

/// A record of events, in order. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Diary(watch::Sender<Vec<String>>);

/// Records the end of a part when it is dropped, in whichever way the part ended.
struct Ends(String, Diary);

/// A runnable that records when it starts and ends.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) group: RunnableGroup,
    pub(super) way: Way,
    /// Cancelled by the test when a part that waits for a cue is to go on.
    pub(super) cue: CancellationToken,
    pub(super) diary: Diary,
}

/// How a part lives. Unless stated otherwise, a part is ready at once and ends without error when it is
/// stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Well,
    /// Declares its readiness, and is ready at the cue.
    ReadyAtCue,
    /// Declares its readiness and never becomes ready.
    NeverReady,
    /// Declares its readiness, and ends at the cue without having become ready.
    OverAtCue,
    /// Fails at the cue.
    FailsAtCue,
    /// Declares its readiness, and fails at the cue without having become ready.
    FailsUnready,
    /// Panics at the cue.
    PanicsAtCue,
    /// Panics before it has returned a future.
    PanicsAtOnce,
    /// Fails when it is stopped.
    FailsWhenTold,
    /// Ends a hundred turns of the runtime after the stop.
    Slow,
    /// Does not listen.
    Deaf,
    /// Ends once the diary records the end of the caches.
    AfterCaches,
}

/// Writes down its one run, which lasts until it is to stop.
pub(super) struct Reconciles(pub(super) &'static str, pub(super) Diary);

// === impl Diary ===

impl Diary {
    pub(super) fn note(&self, line: impl Into<String>) {
        self.0.send_modify(|lines| lines.push(line.into()));
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Waits until this has been written down.
    pub(super) async fn until(&self, line: &str) {
        let mut lines = self.0.subscribe();
        let noted = lines.wait_for(|lines| lines.iter().any(|noted| noted == line));
        let in_time = tokio::time::timeout(PATIENCE, noted).await.is_ok();
        assert!(in_time, "waited for {line:?}: {:#?}", self.lines());
    }

    /// Checks that this is all that was written down: one step after the other, the lines of a step in any
    /// order.
    pub(super) fn reads(&self, steps: &[&[&str]]) {
        let (lines, mut at) = (self.lines(), 0);
        for step in steps {
            let mut expected = step.to_vec();
            let mut found: Vec<_> = lines.iter().skip(at).take(step.len()).map(String::as_str).collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "from line {at} of {lines:#?}");
            at += step.len();
        }
        assert_eq!(lines.len(), at, "more than expected: {lines:#?}");
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.1.note(std::mem::take(&mut self.0));
    }
}

// === impl Part ===

impl Part {
    pub(super) fn new(name: &'static str, group: RunnableGroup, way: Way, diary: &Diary) -> Self {
        Self { name, group, way, cue: CancellationToken::new(), diary: diary.clone() }
    }

    async fn live(self: Box<Self>, cx: RunContext) -> Result<(), BoxError> {
        self.diary.note(format!("{} starts", self.name));
        let _ends = Ends(format!("{} ends", self.name), self.diary.clone());
        let told = || cx.stop.run_until_cancelled(self.cue.cancelled());
        match self.way {
            Way::Deaf => std::future::pending().await,
            Way::ReadyAtCue if told().await.is_some() => cx.ready(),
            Way::OverAtCue if told().await.is_some() => return Ok(()),
            Way::FailsAtCue | Way::FailsUnready if told().await.is_some() => {
                return Err("out of paper".into());
            }
            Way::PanicsAtCue if told().await.is_some() => panic!("as it was told to"),
            _ => {}
        }
        cx.stop.cancelled().await;
        match self.way {
            Way::Slow => {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
            Way::AfterCaches => self.diary.until("caches end").await,
            Way::FailsWhenTold => return Err("no time to tidy up".into()),
            _ => {}
        }
        Ok(())
    }
}

impl Runnable for Part {
    fn name(&self) -> &'static str {
        self.name
    }

    fn group(&self) -> RunnableGroup {
        self.group
    }

    fn declares_readiness(&self) -> bool {
        matches!(self.way, Way::ReadyAtCue | Way::NeverReady | Way::OverAtCue | Way::FailsUnready)
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        assert_ne!(self.way, Way::PanicsAtOnce, "as it was told to");
        Box::pin(self.live(cx))
    }
}

impl Reconciler for Reconciles {
    async fn reconcile(&self, _: &NamespacedName, cx: &Context) -> Outcome {
        self.1.note(format!("{} runs", self.0));
        let _ends = Ends(format!("{} has run", self.0), self.1.clone());
        cx.stopping().cancelled().await;
        Ok(Action::Done)
    }
}
