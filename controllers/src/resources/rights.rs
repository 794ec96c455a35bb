//! What ServiceAccounts may read, as far as somebody waits for it: answers of the API server, kept for a while.
//!
//! Whoever makes a WaitDeployment chooses what it waits for, and is told whether that holds; so nothing is told that the
//! ServiceAccount of its Pods could not read itself. First it is asked about all objects of the kind in the namespace,
//! which one answer settles for most; where that is refused, about the one object.
//!
//! Pure: time is passed in, and who asks is elsewhere.
//!
//! # Invariants
//! 1. An answer is used for no longer than [`YES_COUNTS`] or [`NO_COUNTS`] after it was given, and the time a question
//!    takes: it is asked anew for as long as somebody waits for it.
//! 2. What nobody waits for any more is dropped once its answer is old: who comes back within that time asks nothing.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use mainstay::key::KindId;
use tokio::time::Instant;

/// How long a yes counts: as long as the API server's own authorizers remember one.
pub(super) const YES_COUNTS: Duration = Duration::from_mins(5);
/// How long a no counts. Who was just given the right waits for it.
pub(super) const NO_COUNTS: Duration = Duration::from_mins(1);
/// How long a question rests that could not be asked.
const FAILED_RETRY: Duration = Duration::from_secs(30);
/// Between two questions: 50 a second, whoever asks.
const SPACING: Duration = Duration::from_millis(20);

/// Whether a ServiceAccount may read something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Question {
    pub(super) namespace: String,
    /// Name of the ServiceAccount.
    pub(super) account: String,
    pub(super) kind: KindId,
    /// One object; `None` is all of the namespace.
    pub(super) name: Option<String>,
    /// `get` or `list`.
    pub(super) verb: &'static str,
}

/// What the API server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    /// It cannot be asked.
    Failed,
}

/// Questions and answers.
#[derive(Debug, Default)]
pub(super) struct Rights {
    answers: HashMap<Question, Known>,
    /// When each is to be asked anew, or dropped. Those being asked are not in it.
    due: BTreeSet<(Instant, Question)>,
    /// When the next question may be asked.
    free_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Known {
    answer: Option<Answer>,
    /// Its place in `due`; `None` while it is being asked.
    due: Option<Instant>,
}

// === impl Rights ===

impl Rights {
    /// Returns what is known, and has it found out if that is nothing.
    pub(super) fn answer(&mut self, question: &Question, now: Instant) -> Option<Answer> {
        if let Some(known) = self.answers.get(question) {
            return known.answer;
        }
        self.due.insert((now, question.clone()));
        self.answers.insert(question.clone(), Known { answer: None, due: Some(now) });
        None
    }

    /// Returns the next question to ask now, of those that `is_waited_for`, or when to look again.
    pub(super) fn next(
        &mut self,
        now: Instant,
        is_waited_for: impl Fn(&Question) -> bool,
    ) -> Result<Question, Option<Instant>> {
        loop {
            let Some((at, _)) = self.due.first() else { return Err(None) };
            let at = self.free_at.map_or(*at, |free| free.max(*at));
            if at > now {
                return Err(Some(at));
            }
            let Some((_, question)) = self.due.pop_first() else { return Err(None) };
            if !is_waited_for(&question) {
                self.answers.remove(&question);
                continue;
            }
            if let Some(known) = self.answers.get_mut(&question) {
                known.due = None;
            }
            self.free_at = Some(now + SPACING);
            return Ok(question);
        }
    }

    /// Takes an answer. Returns whether it is another one than before.
    pub(super) fn answered(&mut self, question: &Question, answer: Answer, now: Instant) -> bool {
        let Some(known) = self.answers.get_mut(question) else { return false };
        let counts = match answer {
            Answer::Yes => YES_COUNTS,
            Answer::No => NO_COUNTS,
            Answer::Failed => FAILED_RETRY,
        };
        let is_news = known.answer.replace(answer) != Some(answer);
        if let Some(before) = known.due.replace(now + counts) {
            self.due.remove(&(before, question.clone()));
        }
        self.due.insert((now + counts, question.clone()));
        is_news
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use tokio::time::advance;

    use super::*;

    fn question(account: &str) -> Question {
        Question {
            namespace: "shop".to_owned(),
            account: account.to_owned(),
            kind: KindId::of::<Job>(),
            name: None,
            verb: "list",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_asked_for_anew_while_somebody_waits() {
        let (mut rights, web) = (Rights::default(), question("web"));
        let ask = |rights: &mut Rights| rights.next(Instant::now(), |_| true);
        assert_eq!(rights.answer(&web, Instant::now()), None);
        let mut before = None;
        for (answer, counts) in [(Answer::Yes, YES_COUNTS), (Answer::No, NO_COUNTS), (Answer::No, NO_COUNTS)]
        {
            assert_eq!(ask(&mut rights), Ok(web.clone()), "it is due");
            assert_eq!(ask(&mut rights), Err(None), "asked once at a time");
            assert_eq!(rights.answer(&web, Instant::now()), before, "until there is another");
            assert_eq!(rights.answered(&web, answer, Instant::now()), before != Some(answer), "what is news");
            assert_eq!(rights.answer(&web, Instant::now()), Some(answer));
            advance(counts.saturating_sub(Duration::from_millis(1))).await;
            let again = Instant::now() + Duration::from_millis(1);
            assert_eq!(ask(&mut rights), Err(Some(again)), "{answer:?} still counts");
            advance(Duration::from_millis(1)).await;
            before = Some(answer);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_is_dropped_when_it_is_old() {
        let (mut rights, web) = (Rights::default(), question("web"));
        rights.answer(&web, Instant::now());
        rights.next(Instant::now(), |_| true).unwrap();
        rights.answered(&web, Answer::Yes, Instant::now());
        advance(YES_COUNTS).await;
        assert_eq!(rights.next(Instant::now(), |_| false), Err(None));
        assert!(rights.answers.is_empty());
        assert!(!rights.answered(&web, Answer::No, Instant::now()), "nobody asked any more");
        assert!(rights.answers.is_empty() && rights.due.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_questions_are_asked_one_after_another() {
        let mut rights = Rights::default();
        for number in 0..100 {
            rights.answer(&question(&number.to_string()), Instant::now());
        }
        let (began, mut asked) = (Instant::now(), 0);
        while asked < 100 {
            match rights.next(Instant::now(), |_| true) {
                Ok(question) => {
                    asked += 1;
                    rights.answered(&question, Answer::No, Instant::now());
                }
                Err(Some(at)) => tokio::time::sleep_until(at).await,
                Err(None) => panic!("{asked} of 100 were asked"),
            }
        }
        assert_eq!(began.elapsed(), 99 * SPACING);
    }
}
