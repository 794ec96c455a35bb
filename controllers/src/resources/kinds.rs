//! The kinds that somebody waits for: how to list each, or why that is not possible.
//!
//! Pure: time is passed in, and who asks the server is elsewhere.
//!
//! # Invariants
//! 1. What a group serves is asked when somebody first waits for one of its kinds, again every [`RETRY`] while one that is
//!    waited for is not found, and once at a time. No kind is listed by an answer that is older than that: its definition
//!    may be gone. Groups are the operator's; versions, of which anybody can name as many as
//!    they like, cost no question of their own.
//! 2. What nobody has waited for in [`LINGER`] is let go of, and with it its list and watch. So who comes and goes has
//!    nothing listed anew each time.

use std::collections::HashMap;
use std::time::Duration;

use kube::core::GroupVersionKind;
use mainstay::key::KindId;
use tokio::time::Instant;

/// How long a group rests in which something is missing.
pub(super) const RETRY: Duration = Duration::from_secs(30);
/// How long a kind is kept that nobody waits for.
pub(super) const LINGER: Duration = Duration::from_mins(10);

/// Why objects of a kind cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server does not serve it.
    NotServed,
    /// Its objects are in no namespace.
    NotNamespaced,
    /// The server could not be asked; with the cause.
    Unknown(String),
}

/// The kinds that a group serves in one version or another: those in namespaces with how to list them.
pub(super) type Served = HashMap<GroupVersionKind, Option<KindId>>;

/// All kinds, each with an `S` once it can be read.
#[derive(Debug)]
pub(super) struct Kinds<S> {
    slots: HashMap<GroupVersionKind, Slot<S>>,
    /// By name.
    groups: HashMap<String, Group>,
}

#[derive(Debug)]
struct Slot<S> {
    /// `None` until it is found.
    open: Option<S>,
    /// Since when nobody waits for it; `None` while somebody does.
    idle_since: Option<Instant>,
}

#[derive(Debug)]
struct Group {
    /// What was found last.
    served: Option<Result<Served, Trouble>>,
    /// When it may be asked; `None` while it is.
    ask_at: Option<Instant>,
}

/// What is to be done about kinds.
#[derive(Debug)]
pub(super) enum Step<S> {
    /// Ask what this group serves.
    Find(String),
    /// List and watch this one.
    Open(GroupVersionKind, KindId),
    /// Drop this, outside any lock.
    Close(S),
    /// Nothing before this time; `None`: nothing until something changes.
    Wait(Option<Instant>),
}

// === impl Kinds ===

impl<S> Kinds<S> {
    /// Returns what is known of a kind, and has it looked for if that is nothing. `Err(None)`: it is being looked for.
    pub(super) fn open(&mut self, kind: &GroupVersionKind, now: Instant) -> Result<&S, Option<Trouble>> {
        let Self { slots, groups } = self;
        let group =
            groups.entry(kind.group.clone()).or_insert_with(|| Group { served: None, ask_at: Some(now) });
        let slot = slots.entry(kind.clone()).or_insert_with(|| Slot { open: None, idle_since: None });
        slot.open.as_ref().ok_or_else(|| group.look_up(kind).and_then(Result::err))
    }

    /// Returns what is known of a kind without asking for it.
    pub(super) fn get(&self, kind: &GroupVersionKind) -> Option<&S> {
        self.slots.get(kind)?.open.as_ref()
    }

    /// Returns the next thing to do.
    pub(super) fn next(
        &mut self,
        now: Instant,
        is_waited_for: impl Fn(&GroupVersionKind) -> bool,
    ) -> Step<S> {
        let mut wake = None;
        let mut sooner = |at: Instant| wake = Some(wake.map_or(at, |known: Instant| known.min(at)));
        let mut gone = None;
        for (kind, slot) in &mut self.slots {
            if is_waited_for(kind) {
                slot.idle_since = None;
                let Some(group) = self.groups.get_mut(&kind.group).filter(|_| slot.open.is_none()) else {
                    continue;
                };
                match group.ask_at {
                    Some(at) if at <= now => {
                        group.ask_at = None;
                        return Step::Find(kind.group.clone());
                    }
                    Some(at) => match group.look_up(kind) {
                        Some(Ok(id)) => return Step::Open(kind.clone(), id),
                        _ => sooner(at),
                    },
                    None => {}
                }
            } else {
                let until = *slot.idle_since.get_or_insert(now) + LINGER;
                if until <= now {
                    gone = Some(kind.clone());
                } else {
                    sooner(until);
                }
            }
        }
        let Some(kind) = gone else { return Step::Wait(wake) };
        match self.slots.remove(&kind).and_then(|slot| slot.open) {
            Some(open) => Step::Close(open),
            None => Step::Wait(Some(now)),
        }
    }

    /// Takes what a group serves. Returns the kinds of it that are looked for and of which something else is known now.
    pub(super) fn found(
        &mut self,
        group: &str,
        served: Result<Served, Trouble>,
        now: Instant,
    ) -> Vec<GroupVersionKind> {
        let found = Group { served: Some(served), ask_at: Some(now + RETRY) };
        let before = self.groups.get(group);
        let is_news =
            |kind: &GroupVersionKind| before.and_then(|before| before.look_up(kind)) != found.look_up(kind);
        let missing = self.slots.iter().filter(|(kind, slot)| kind.group == group && slot.open.is_none());
        let news = missing.map(|(kind, _)| kind.clone()).filter(is_news).collect();
        self.groups.insert(group.to_owned(), found);
        news
    }

    /// Takes what a kind can be read by. Gives back what has come too late.
    pub(super) fn opened(&mut self, kind: &GroupVersionKind, open: S) -> Option<S> {
        match self.slots.get_mut(kind) {
            Some(slot) => slot.open.replace(open),
            None => Some(open),
        }
    }

    /// Forgets everything, and returns what is to be dropped.
    pub(super) fn clear(&mut self) -> Vec<S> {
        let Self { slots, .. } = std::mem::take(self);
        slots.into_values().filter_map(|slot| slot.open).collect()
    }
}

impl<S> Default for Kinds<S> {
    fn default() -> Self {
        Self { slots: HashMap::new(), groups: HashMap::new() }
    }
}

// === impl Group ===

impl Group {
    /// Returns how a kind is listed, or why it is not; `None` before anybody has asked.
    fn look_up(&self, kind: &GroupVersionKind) -> Option<Result<KindId, Trouble>> {
        Some(match self.served.as_ref()? {
            Err(trouble) => Err(trouble.clone()),
            Ok(served) => match served.get(kind) {
                None => Err(Trouble::NotServed),
                Some(None) => Err(Trouble::NotNamespaced),
                Some(Some(id)) => Ok(id.clone()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn jobs(version: &str) -> GroupVersionKind {
        GroupVersionKind::gvk("batch", version, "Job")
    }

    fn served() -> Served {
        let id = KindId::new("batch", "v1", "Job", "jobs", true);
        HashMap::from([(jobs("v1"), Some(id)), (GroupVersionKind::gvk("batch", "v1", "Odd"), None)])
    }

    fn finds(kinds: &mut Kinds<u8>) -> bool {
        matches!(kinds.next(Instant::now(), |_| true), Step::Find(group) if group == "batch")
    }

    fn opens(kinds: &mut Kinds<u8>) {
        let Step::Open(kind, id) = kinds.next(Instant::now(), |_| true) else { panic!("it is served") };
        assert_eq!((&kind, id.plural()), (&jobs("v1"), "jobs"));
        assert_eq!(kinds.opened(&kind, 7), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_looked_for_until_it_is_there() {
        let mut kinds = Kinds::<u8>::default();
        assert_eq!(kinds.open(&jobs("v1"), Instant::now()), Err(None));
        assert!(finds(&mut kinds), "at once");
        assert!(!finds(&mut kinds), "once at a time");
        assert_eq!(kinds.found("batch", Ok(Served::new()), Instant::now()), [jobs("v1")]);
        assert_eq!(kinds.open(&jobs("v1"), Instant::now()), Err(Some(Trouble::NotServed)));
        advance(RETRY.saturating_sub(Duration::from_millis(1))).await;
        assert!(!finds(&mut kinds));
        advance(Duration::from_millis(1)).await;
        assert!(finds(&mut kinds));
        assert_eq!(kinds.found("batch", Ok(Served::new()), Instant::now()), [], "no news");
        assert_eq!(kinds.found("batch", Ok(served()), Instant::now()), [jobs("v1")]);
        opens(&mut kinds);
        assert_eq!(kinds.open(&jobs("v1"), Instant::now()), Ok(&7));
        assert!(matches!(kinds.next(Instant::now(), |_| true), Step::Wait(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn versions_cost_no_question_of_their_own() {
        let mut kinds = Kinds::<u8>::default();
        let (mut asked, began) = (0, Instant::now());
        for number in 0..1_000 {
            // Two hours of somebody who names a new one every now and then.
            advance(Duration::from_millis(7_200)).await;
            let _unknown = kinds.open(&jobs(&format!("v{}", number + 2)), Instant::now()).is_err();
            if let Step::Find(_) = kinds.next(Instant::now(), |_| true) {
                asked += 1;
                kinds.found("batch", Ok(served()), Instant::now());
            }
        }
        let most = began.elapsed().as_secs() / RETRY.as_secs() + 1;
        assert!(asked <= most, "{asked} questions, expected at most {most}");
        assert_eq!(kinds.open(&jobs("v1"), Instant::now()), Err(None), "one that is served is found at once");
        opens(&mut kinds);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_listed_says_why() {
        let mut kinds = Kinds::<u8>::default();
        let odd = GroupVersionKind::gvk("batch", "v1", "Odd");
        let unknown = Trouble::Unknown("there is no connection".to_owned());
        for (found, trouble) in [(Ok(served()), Trouble::NotNamespaced), (Err(unknown.clone()), unknown)] {
            assert!(kinds.open(&odd, Instant::now()).is_err());
            kinds.found("batch", found, Instant::now());
            assert_eq!(kinds.open(&odd, Instant::now()), Err(Some(trouble)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_is_let_go_of_after_a_while() {
        let mut kinds = Kinds::<u8>::default();
        assert_eq!(kinds.open(&jobs("v1"), Instant::now()), Err(None));
        assert!(finds(&mut kinds));
        kinds.found("batch", Ok(served()), Instant::now());
        opens(&mut kinds);
        let waits = |kinds: &mut Kinds<u8>| kinds.next(Instant::now(), |_| false);
        let Step::Wait(Some(until)) = waits(&mut kinds) else { panic!("it is to be looked at again") };
        assert_eq!(until, Instant::now() + LINGER);
        advance(LINGER / 2).await;
        assert!(matches!(kinds.next(Instant::now(), |_| true), Step::Wait(None)), "somebody is back");
        advance(LINGER / 2).await;
        assert!(matches!(waits(&mut kinds), Step::Wait(Some(_))), "the time begins anew");
        advance(LINGER).await;
        assert!(matches!(waits(&mut kinds), Step::Close(7)));
        assert_eq!(kinds.get(&jobs("v1")), None);
        assert_eq!(kinds.opened(&jobs("v1"), 8), Some(8), "too late");
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_that_went_meanwhile_is_missed() {
        let mut kinds = Kinds::<u8>::default();
        assert_eq!(kinds.open(&jobs("v1"), Instant::now()), Err(None));
        assert!(finds(&mut kinds));
        kinds.found("batch", Ok(served()), Instant::now());
        opens(&mut kinds);
        drop(kinds.next(Instant::now(), |_| false));
        advance(LINGER).await;
        assert!(matches!(kinds.next(Instant::now(), |_| false), Step::Close(7)));
        assert_eq!(kinds.open(&jobs("v1"), Instant::now()), Err(None));
        assert!(finds(&mut kinds), "what was found is too old");
        assert_eq!(kinds.found("batch", Ok(Served::new()), Instant::now()), [jobs("v1")]);
        assert_eq!(kinds.open(&jobs("v1"), Instant::now()), Err(Some(Trouble::NotServed)));
    }
}
