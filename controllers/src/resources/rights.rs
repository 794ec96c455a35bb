//! What ServiceAccounts may read, as far as somebody waits for it: answers of the API server, kept for a while.
//!
//! Whoever makes a WaitDeployment chooses what it waits for, and is told whether that holds; so nothing is told that the
//! ServiceAccount of its Pods could not read itself. First it is asked about all objects of the kind in the namespace,
//! which one answer settles for most; where that is refused, about the one object.
//!
//! Questions are bounded in their rate, and namespaces take turns: none waits for the backlog of another.
//!
//! Pure: time is passed in, and who asks is elsewhere.
//!
//! # Invariants
//! 1. An answer is asked for anew [`YES_COUNTS`] or [`NO_COUNTS`] after it was given, for as long as somebody waits for it.
//!    A yes stands while the question cannot be asked, and for [`YES_LASTS`] at most.
//! 2. What nobody waits for any more is dropped once its answer is old: who comes back within that time asks nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use mainstay::key::KindId;
use tokio::time::Instant;

/// How long a yes counts: as long as the API server's own authorizers remember one.
pub(super) const YES_COUNTS: Duration = Duration::from_mins(5);
/// How long a no counts. Who was just given the right waits for it.
pub(super) const NO_COUNTS: Duration = Duration::from_mins(1);
/// How long a yes stands that nobody could ask for anew: a short failure of the API server takes no right away.
const YES_LASTS: Duration = Duration::from_mins(10);
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
    /// By namespace; those without a question to be asked or dropped are not in it.
    due: BTreeMap<String, Due>,
    /// When the next question may be asked.
    free_at: Option<Instant>,
    /// How many have been asked.
    asked: u64,
}

/// What is to be asked for one namespace.
#[derive(Debug)]
struct Due {
    /// When each is to be asked anew, or dropped; never empty. Those being asked are not in it.
    questions: BTreeSet<(Instant, Question)>,
    /// How many had been asked for all namespaces when it last had its turn, or came.
    turn: u64,
}

#[derive(Debug, Default)]
struct Known {
    answer: Option<Answer>,
    /// Until when it stands, though it may not have been asked for anew; `None` is as long as it is kept.
    until: Option<Instant>,
    /// Its place in `due`; `None` while it is being asked.
    due: Option<Instant>,
}

// === impl Rights ===

impl Rights {
    /// Returns what is known, and has it found out if that is nothing.
    pub(super) fn answer(&mut self, question: &Question, now: Instant) -> Option<Answer> {
        if let Some(known) = self.answers.get(question) {
            return if known.stands(now) { known.answer } else { Some(Answer::Failed) };
        }
        self.plan(question, now);
        self.answers.insert(question.clone(), Known { due: Some(now), ..Known::default() });
        None
    }

    /// Returns the next question to ask now, of those that `is_waited_for`, or when to look again.
    pub(super) fn next(
        &mut self,
        now: Instant,
        is_waited_for: impl Fn(&Question) -> bool,
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
            if !is_waited_for(&question) {
                self.answers.remove(&question);
                continue;
            }
            self.asked += 1;
            if let Some(due) = self.due.get_mut(&question.namespace) {
                due.turn = self.asked;
            }
            if let Some(known) = self.answers.get_mut(&question) {
                known.due = None;
            }
            self.free_at = Some(now + SPACING);
            return Ok(question);
        }
    }

    fn plan(&mut self, question: &Question, at: Instant) {
        // A newcomer comes after those who have waited since.
        let newcomer = || Due { questions: BTreeSet::new(), turn: self.asked };
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

    /// Takes an answer. Returns whether it is another one than before.
    pub(super) fn answered(&mut self, question: &Question, answer: Answer, now: Instant) -> bool {
        let Some(known) = self.answers.get_mut(question) else { return false };
        let counts = match answer {
            Answer::Yes => YES_COUNTS,
            Answer::No => NO_COUNTS,
            Answer::Failed => FAILED_RETRY,
        };
        // What was told last. A yes that has just run out was told until now.
        let told = known.answer;
        let keeps = answer == Answer::Failed && told == Some(Answer::Yes) && known.stands(now);
        if !keeps {
            known.answer = Some(answer);
            known.until = (answer == Answer::Yes).then(|| now + YES_LASTS);
        }
        let is_news = told != known.answer;
        if let Some(before) = known.due.replace(now + counts) {
            self.unplan(question, before);
        }
        self.plan(question, now + counts);
        is_news
    }

    /// Forgets everything.
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
    async fn a_yes_outlasts_a_short_failure_of_the_server() {
        let (mut rights, web) = (Rights::default(), question("web"));
        rights.answer(&web, Instant::now());
        assert!(rights.answered(&web, Answer::Yes, Instant::now()));
        advance(YES_LASTS.saturating_sub(Duration::from_millis(1))).await;
        assert!(!rights.answered(&web, Answer::Failed, Instant::now()), "no news");
        assert_eq!(rights.answer(&web, Instant::now()), Some(Answer::Yes));
        advance(Duration::from_millis(1)).await;
        assert_eq!(rights.answer(&web, Instant::now()), Some(Answer::Failed), "it may have been taken away");
        assert!(rights.answered(&web, Answer::Failed, Instant::now()), "who waits is told");
        assert!(rights.answered(&web, Answer::No, Instant::now()), "a no counts at once");
        assert!(rights.answered(&web, Answer::Failed, Instant::now()));
        assert!(rights.answered(&web, Answer::Yes, Instant::now()));
        assert!(rights.answered(&web, Answer::No, Instant::now()));
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
    async fn no_namespace_waits_for_the_backlog_of_another() {
        let mut rights = Rights::default();
        for number in 0..100 {
            rights.answer(&question(&number.to_string()), Instant::now());
        }
        let ask = async |rights: &mut Rights| {
            advance(SPACING).await;
            rights.next(Instant::now(), |_| true).unwrap()
        };
        ask(&mut rights).await;
        for namespace in ["pay", "mail"] {
            let theirs = Question { namespace: namespace.to_owned(), ..question("web") };
            rights.answer(&theirs, Instant::now());
        }
        let mut asked = Vec::new();
        for _ in 0..4 {
            asked.push(ask(&mut rights).await.namespace);
        }
        asked[..3].sort();
        assert_eq!(asked, ["mail", "pay", "shop", "shop"], "each in its turn");
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
