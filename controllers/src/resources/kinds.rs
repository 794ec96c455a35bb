//! The kinds that somebody waits for: how to list each, or why that is not possible.
//!
//! Pure: time is passed in, and who asks the server is elsewhere.
//!
//! # Invariants
//! 1. A kind is looked for when somebody first waits for it, again every [`RETRY`] while it is not found and waited for,
//!    and once at a time.
//! 2. What nobody has waited for in [`LINGER`] is let go of, and with it its list and watch. So who comes and goes has
//!    nothing listed anew each time.

use std::collections::HashMap;
use std::time::Duration;

use kube::core::GroupVersionKind;
use tokio::time::Instant;

/// How long a kind rests that is not served.
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

/// All kinds, each with an `S` once it can be read.
#[derive(Debug)]
pub(super) struct Kinds<S> {
    slots: HashMap<GroupVersionKind, Slot<S>>,
}

#[derive(Debug)]
struct Slot<S> {
    standing: Standing<S>,
    /// Since when nobody waits for it; `None` while somebody does.
    idle_since: Option<Instant>,
}

#[derive(Debug)]
enum Standing<S> {
    /// Looked for, next at this time; `None` while it is being looked for.
    Missing {
        trouble: Option<Trouble>,
        look_at: Option<Instant>,
    },
    Open(S),
}

/// What is to be done about kinds.
#[derive(Debug)]
pub(super) enum Step<S> {
    /// Look for this one.
    Find(GroupVersionKind),
    /// Drop this, outside any lock.
    Close(S),
    /// Nothing before this time; `None`: nothing until something changes.
    Wait(Option<Instant>),
}

// === impl Kinds ===

impl<S> Kinds<S> {
    /// Returns what is known of a kind, and has it looked for if that is nothing. `Err(None)`: it is being looked for.
    pub(super) fn open(&mut self, kind: &GroupVersionKind, now: Instant) -> Result<&S, Option<&Trouble>> {
        let slot = self.slots.entry(kind.clone()).or_insert_with(|| Slot {
            standing: Standing::Missing { trouble: None, look_at: Some(now) },
            idle_since: None,
        });
        match &slot.standing {
            Standing::Open(store) => Ok(store),
            Standing::Missing { trouble, .. } => Err(trouble.as_ref()),
        }
    }

    /// Returns what is known of a kind without asking for it.
    pub(super) fn get(&self, kind: &GroupVersionKind) -> Option<&S> {
        match &self.slots.get(kind)?.standing {
            Standing::Open(store) => Some(store),
            Standing::Missing { .. } => None,
        }
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
                let Standing::Missing { look_at, .. } = &mut slot.standing else { continue };
                match *look_at {
                    Some(at) if at <= now => {
                        *look_at = None;
                        return Step::Find(kind.clone());
                    }
                    Some(at) => sooner(at),
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
        match self.slots.remove(&kind).map(|slot| slot.standing) {
            Some(Standing::Open(store)) => Step::Close(store),
            _ => Step::Wait(Some(now)),
        }
    }

    /// Takes what was found of a kind. Gives back what has come too late.
    pub(super) fn found(
        &mut self,
        kind: &GroupVersionKind,
        found: Result<S, Trouble>,
        now: Instant,
    ) -> Option<S> {
        let Some(slot) = self.slots.get_mut(kind) else { return found.ok() };
        slot.standing = match found {
            Ok(store) => Standing::Open(store),
            Err(trouble) => Standing::Missing { trouble: Some(trouble), look_at: Some(now + RETRY) },
        };
        None
    }

    /// Forgets everything, and returns what is to be dropped.
    pub(super) fn clear(&mut self) -> Vec<S> {
        let open = |slot: Slot<S>| match slot.standing {
            Standing::Open(store) => Some(store),
            Standing::Missing { .. } => None,
        };
        std::mem::take(&mut self.slots).into_values().filter_map(open).collect()
    }
}

impl<S> Default for Kinds<S> {
    fn default() -> Self {
        Self { slots: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn job() -> GroupVersionKind {
        GroupVersionKind::gvk("batch", "v1", "Job")
    }

    fn finds(kinds: &mut Kinds<u8>, waited: bool) -> bool {
        matches!(kinds.next(Instant::now(), |_| waited), Step::Find(kind) if kind == job())
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_looked_for_until_it_is_there() {
        let mut kinds = Kinds::<u8>::default();
        assert_eq!(kinds.open(&job(), Instant::now()), Err(None));
        assert!(finds(&mut kinds, true), "at once");
        assert!(!finds(&mut kinds, true), "once at a time");
        assert!(kinds.found(&job(), Err(Trouble::NotServed), Instant::now()).is_none());
        assert_eq!(kinds.open(&job(), Instant::now()), Err(Some(&Trouble::NotServed)));
        advance(RETRY.saturating_sub(Duration::from_millis(1))).await;
        assert!(!finds(&mut kinds, true));
        advance(Duration::from_millis(1)).await;
        assert!(finds(&mut kinds, true));
        assert!(kinds.found(&job(), Ok(7), Instant::now()).is_none());
        assert_eq!(kinds.open(&job(), Instant::now()), Ok(&7));
        assert!(matches!(kinds.next(Instant::now(), |_| true), Step::Wait(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_is_let_go_of_after_a_while() {
        let mut kinds = Kinds::<u8>::default();
        assert_eq!(kinds.open(&job(), Instant::now()), Err(None));
        assert!(finds(&mut kinds, true));
        kinds.found(&job(), Ok(7), Instant::now());
        let waits = |kinds: &mut Kinds<u8>| kinds.next(Instant::now(), |_| false);
        let Step::Wait(Some(until)) = waits(&mut kinds) else { panic!("it is to be looked at again") };
        assert_eq!(until, Instant::now() + LINGER);
        advance(LINGER / 2).await;
        assert!(matches!(kinds.next(Instant::now(), |_| true), Step::Wait(None)), "somebody is back");
        advance(LINGER / 2).await;
        assert!(matches!(waits(&mut kinds), Step::Wait(Some(_))), "the time begins anew");
        advance(LINGER).await;
        assert!(matches!(waits(&mut kinds), Step::Close(7)));
        assert_eq!(kinds.get(&job()), None);
        assert_eq!(kinds.found(&job(), Ok(8), Instant::now()), Some(8), "too late");
    }
}
