//! The kinds of resource checks: how to list each, or why that is not possible.
//!
//! Pure: time is passed in, and the [driver](super::driver) sends the requests.
//!
//! # Invariants
//! 1. Discovery of a group is requested when a check first needs one of its kinds, again every [`RETRY`]
//!    while a check needs one that is not open, and never twice at a time. No kind is listed by an answer
//!    older than that, because its definition may be gone.
//! 2. A kind that no check has needed for [`LINGER`] is closed, and with it its list and watch.
//! 3. Only kinds that their group serves take room. Users choose versions freely, so a table of those would
//!    grow without bound; the groups are the operator's.

use std::collections::HashMap;
use std::time::Duration;

use kube::core::GroupVersionKind;
use mainstay::key::KindId;
use tokio::time::Instant;

/// Shortest time between two discoveries of an API group.
pub(super) const RETRY: Duration = Duration::from_secs(30);
/// How long a kind that no check needs stays listed and watched.
pub(super) const LINGER: Duration = Duration::from_mins(10);

/// The reason why the objects of a kind cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The API server does not serve the kind.
    NotServed,
    /// The kind is cluster-scoped: its objects are in no namespace.
    NotNamespaced,
    /// Discovery of the API group failed; with the cause.
    Unknown(String),
}

/// The kinds that an API group serves, in all versions: how to list each, or why that is not possible.
pub(super) type Served = HashMap<GroupVersionKind, Result<KindId, Trouble>>;

/// All kinds of `resource` checks, each with a value `S` once it is open, that is, listed and watched.
#[derive(Debug)]
pub(super) struct Kinds<S> {
    slots: HashMap<GroupVersionKind, Slot<S>>,
    /// The API groups of the kinds, by name, with the answer of their discovery.
    groups: HashMap<String, Group>,
}

#[derive(Debug)]
struct Slot<S> {
    id: KindId,
    /// The value of the kind once it is open; `None` until [`Step::Open`] is done.
    open: Option<S>,
    /// The time since which no check needs the kind; `None` while one does.
    idle_since: Option<Instant>,
}

#[derive(Debug)]
struct Group {
    /// The last answer to the discovery of the group; `None` before the first answer.
    served: Option<Result<Served, Trouble>>,
    /// When discovery of the group may be requested; `None` while a request is under way.
    discover_at: Option<Instant>,
    /// Whether a check waits for the next answer to the discovery of the group, even if it equals the last
    /// one.
    is_awaited: bool,
}

/// The next thing to do for the kinds of `resource` checks.
#[derive(Debug)]
pub(super) enum Step<S> {
    /// Request discovery of this API group.
    Discover(String),
    /// List and watch this kind.
    Open(GroupVersionKind, KindId),
    /// Drop this value of a closed kind, outside any lock, which ends its list and watch.
    Close(S),
}

// === impl Kinds ===

impl<S> Kinds<S> {
    /// Returns the value of an open kind. A kind that is not open is discovered and opened if it is served.
    /// `Err(None)`: that is under way; otherwise the error is the reason why the kind cannot be read.
    pub(super) fn open(&mut self, kind: &GroupVersionKind, now: Instant) -> Result<&S, Option<Trouble>> {
        let first = || Group { served: None, discover_at: Some(now), is_awaited: false };
        let group = self.groups.entry(kind.group.clone()).or_insert_with(first);
        if !self.slots.contains_key(kind) {
            match group.look_up(kind) {
                Some(Err(trouble)) => return Err(Some(trouble)),
                Some(Ok(id)) if group.discover_at.is_some_and(|at| now < at) => {
                    self.slots.insert(kind.clone(), Slot { id, open: None, idle_since: None });
                }
                _ => group.is_awaited = true,
            }
        }
        self.get(kind).ok_or(None)
    }

    /// Returns the value of a kind if it is open.
    pub(super) fn get(&self, kind: &GroupVersionKind) -> Option<&S> {
        self.slots.get(kind)?.open.as_ref()
    }

    /// Returns the next thing to do for the kinds. Fails with the time to call again. `needs_kind` returns
    /// whether a check needs a kind, `needs_group` whether a check needs a kind of a group that is not open.
    pub(super) fn next(
        &mut self,
        now: Instant,
        needs_kind: impl Fn(&GroupVersionKind) -> bool,
        needs_group: impl Fn(&str) -> bool,
    ) -> Result<Step<S>, Option<Instant>> {
        let mut wake = None;
        let mut sooner = |at: Instant| wake = Some(wake.map_or(at, |known: Instant| known.min(at)));
        for (name, group) in &mut self.groups {
            let Some(at) = group.discover_at.filter(|_| needs_group(name)) else { continue };
            if at <= now {
                group.discover_at = None;
                return Ok(Step::Discover(name.clone()));
            }
            sooner(at);
        }
        for (kind, slot) in &mut self.slots {
            if needs_kind(kind) {
                slot.idle_since = None;
                if slot.open.is_none() {
                    return Ok(Step::Open(kind.clone(), slot.id.clone()));
                }
            } else {
                sooner(*slot.idle_since.get_or_insert(now) + LINGER);
            }
        }
        let is_over = |slot: &Slot<S>| slot.idle_since.is_some_and(|since| since + LINGER <= now);
        let mut over = self.slots.extract_if(|_, slot| is_over(slot)).filter_map(|(_, slot)| slot.open);
        over.next().map(Step::Close).ok_or(wake)
    }

    /// Stores the answer to the discovery of an API group. Returns whether checks of its kinds have to read
    /// again.
    pub(super) fn discovered(&mut self, group: &str, served: Result<Served, Trouble>, now: Instant) -> bool {
        let found = Group { served: Some(served), discover_at: Some(now + RETRY), is_awaited: false };
        let before = self.groups.get(group);
        let is_news = before.is_none_or(|before| before.is_awaited || before.served != found.served);
        self.groups.insert(group.to_owned(), found);
        is_news
    }

    /// Stores the value of a kind that was opened. Gives the value back if the kind was closed meanwhile, or
    /// returns an earlier value that it replaces.
    pub(super) fn opened(&mut self, kind: &GroupVersionKind, open: S) -> Option<S> {
        match self.slots.get_mut(kind) {
            Some(slot) => slot.open.replace(open),
            None => Some(open),
        }
    }

    /// Forgets all kinds and groups, and returns the values of the open kinds, to be dropped outside any
    /// lock.
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
    /// Returns how a kind of the group is listed, or why it is not; `None` before the first answer to
    /// discovery.
    fn look_up(&self, kind: &GroupVersionKind) -> Option<Result<KindId, Trouble>> {
        Some(match self.served.as_ref()? {
            Err(trouble) => Err(trouble.clone()),
            Ok(served) => served.get(kind).cloned().unwrap_or(Err(Trouble::NotServed)),
        })
    }
}

#[cfg(test)]
mod tests;
