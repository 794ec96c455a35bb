//! The access of ServiceAccounts that checks depend on: answers of the API server, kept for a while.
//!
//! The author of a WaitDeployment chooses its objects and sees whether they are in a state, so a check is
//! answered only if the ServiceAccount of the template could read the objects itself. The first question is
//! about all objects of the kind in the namespace, which settles most checks with one answer; after a no the
//! question is about the one object.
//!
//! The rate of questions is bounded, and namespaces take turns, so no namespace waits for the backlog of
//! another.
//!
//! Pure: time is passed in, and the [driver](super::driver) sends the requests.
//!
//! # Invariants
//! 1. While a check needs an answer, the question is repeated [`YES_COUNTS`] or [`NO_COUNTS`] after the last
//!    answer. A yes stands while reviews fail, for [`YES_LASTS`] at most.
//! 2. An answer that no check needs is dropped when it would have been renewed; until then a returning check
//!    uses it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use mainstay::key::KindId;
use tokio::time::Instant;

/// Time after which a positive access review is repeated: as long as the API server's own authorizers
/// remember one.
pub(super) const YES_COUNTS: Duration = Duration::from_mins(5);
/// Time after which a negative access review is repeated, and so the longest delay until a new Role has an
/// effect.
pub(super) const NO_COUNTS: Duration = Duration::from_mins(1);
/// How long a positive access review stands while it cannot be renewed: a short failure of the API server
/// takes no right away.
const YES_LASTS: Duration = Duration::from_mins(10);
/// Time from a failed access review to the next one of the same question.
const FAILED_RETRY: Duration = Duration::from_secs(30);
/// Time between two access reviews: 50 a second, of all namespaces together.
const SPACING: Duration = Duration::from_millis(20);

/// The question of an access review: whether a ServiceAccount may read objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Question {
    pub(super) namespace: String,
    /// Name of the ServiceAccount.
    pub(super) account: String,
    pub(super) kind: KindId,
    /// The name of one object; `None` is all objects of the namespace.
    pub(super) name: Option<String>,
    /// The verb of the access: `get` or `list`.
    pub(super) verb: &'static str,
}

/// The outcome of an access review of a ServiceAccount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    /// The access review failed, so the access is not known.
    Failed,
}

/// The objects that the ServiceAccounts of WaitDeployments may read: the answers of the API server, and when
/// each question is sent again.
#[derive(Debug, Default)]
pub(super) struct Rights {
    answers: HashMap<Question, Known>,
    /// The questions to send or to drop, by namespace; a namespace without any is absent.
    due: BTreeMap<String, Due>,
    /// When the next question of any namespace may be sent; `None`: at once.
    free_at: Option<Instant>,
    /// The number of questions that were sent.
    sent: u64,
}

/// The access questions of one namespace that are to be sent again or dropped.
#[derive(Debug)]
struct Due {
    /// Each question with the time at which it is sent again, or dropped; never empty. A question under
    /// review is absent.
    questions: BTreeSet<(Instant, Question)>,
    /// The number of questions of all namespaces that had been sent at the last turn of this namespace, or
    /// when it was added.
    turn: u64,
}

#[derive(Debug, Default)]
struct Known {
    answer: Option<Answer>,
    /// The time until which the answer stands without a renewal; `None`: as long as it is kept.
    until: Option<Instant>,
    /// The time in `due` at which the question is sent again; `None` while it is under review.
    due: Option<Instant>,
}

// === impl Rights ===

impl Rights {
    /// Returns the answer to an access question. Without one, schedules the question and returns `None`.
    pub(super) fn answer(&mut self, question: &Question, now: Instant) -> Option<Answer> {
        if let Some(known) = self.answers.get(question) {
            return if known.stands(now) { known.answer } else { Some(Answer::Failed) };
        }
        self.plan(question, now);
        self.answers.insert(question.clone(), Known { due: Some(now), ..Known::default() });
        None
    }

    /// Returns the next access question to send, and drops due ones without `is_needed`. Fails with the time
    /// to call again.
    pub(super) fn next(
        &mut self,
        now: Instant,
        is_needed: impl Fn(&Question) -> bool,
    ) -> Result<Question, Option<Instant>> {
        loop {
            let firsts = self.due.values().filter_map(|due| Some((due.questions.first()?, due.turn)));
            let next = firsts.clone().filter(|((at, _), _)| *at <= now).min_by_key(|(_, turn)| *turn);
            let Some(((at, question), _)) = next else {
                return Err(firsts.map(|((at, _), _)| *at).min());
            };
            if let Some(free) = self.free_at.filter(|free| *free > now) {
                return Err(Some(free));
            }
            let (at, question) = (*at, question.clone());
            self.unplan(&question, at);
            if !is_needed(&question) {
                self.answers.remove(&question);
                continue;
            }
            self.sent += 1;
            if let Some(due) = self.due.get_mut(&question.namespace) {
                due.turn = self.sent;
            }
            if let Some(known) = self.answers.get_mut(&question) {
                known.due = None;
            }
            self.free_at = Some(now + SPACING);
            return Ok(question);
        }
    }

    fn plan(&mut self, question: &Question, at: Instant) {
        // A new namespace comes after the namespaces that have waited.
        let newcomer = || Due { questions: BTreeSet::new(), turn: self.sent };
        let due = self.due.entry(question.namespace.clone()).or_insert_with(newcomer);
        due.questions.insert((at, question.clone()));
    }

    fn unplan(&mut self, question: &Question, at: Instant) {
        let Some(due) = self.due.get_mut(&question.namespace) else { return };
        due.questions.remove(&(at, question.clone()));
        if due.questions.is_empty() {
            self.due.remove(&question.namespace);
        }
    }

    /// Stores the answer to an access question. Returns whether it differs from the one before.
    pub(super) fn answered(&mut self, question: &Question, answer: Answer, now: Instant) -> bool {
        let Some(known) = self.answers.get_mut(question) else { return false };
        let counts = match answer {
            Answer::Yes => YES_COUNTS,
            Answer::No => NO_COUNTS,
            Answer::Failed => FAILED_RETRY,
        };
        // A yes that has just run out counted until now.
        let before = known.answer;
        let keeps = answer == Answer::Failed && before == Some(Answer::Yes) && known.stands(now);
        if !keeps {
            known.answer = Some(answer);
            known.until = (answer == Answer::Yes).then(|| now + YES_LASTS);
        }
        let is_news = before != known.answer;
        if let Some(due) = known.due.replace(now + counts) {
            self.unplan(question, due);
        }
        self.plan(question, now + counts);
        is_news
    }

    /// Forgets all access questions and answers.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

// === impl Known ===

impl Known {
    fn stands(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

#[cfg(test)]
mod tests;
