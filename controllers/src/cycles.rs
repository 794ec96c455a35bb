//! Closed gates that wait for each other in a circle, so that none can ever open.
//!
//! A gate waits for another WaitDeployment by a `resource` check on it, or by anything that asks a Service whose selector
//! picks the Pods which that one's template would make. Only what is required and does not hold counts; where any of
//! several is enough, nothing does, for another one may still come up.
//!
//! Who is closed says what it waits for ([`Cycles::waits`]) and is told the shortest circle it is in. Those in a circle
//! that has come, gone or changed are named to a callback: each of them has to report it.
//!
//! # Invariants
//! 1. Only gates that have said that they are closed are in a circle.
//! 2. A search looks at `MAX_VISITED` gates at most, and for each Service at `MAX_MEMBERS`.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;

use mainstay::cache::{LabelSelector, Select, Store};
use mainstay::key::{Key, Request};
use mainstay_api::WaitDeployment;
use parking_lot::Mutex;
use serde_json::Value;

/// Most gates that one search looks at. A longer circle is not found: nobody draws one.
const MAX_VISITED: usize = 256;
/// Most WaitDeployments that one Service or selector stands for.
const MAX_MEMBERS: usize = 64;
/// Finds WaitDeployments by the labels of their templates, as `key=value`.
const BY_LABEL: &str = "template-label";

/// What a closed gate waits for that another WaitDeployment may bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// That WaitDeployment.
    Object(Request),
    /// All of a namespace that a selector picks.
    Selected(String, LabelSelector),
    /// Those of a namespace whose Pods have these labels.
    Pods(String, BTreeMap<String, String>),
}

/// Finds circles among closed gates.
pub struct Cycles {
    objects: Store<WaitDeployment>,
    closed: Mutex<Closed>,
    tell: Box<dyn Fn(Request) + Send + Sync>,
}

#[derive(Debug, Default)]
struct Closed {
    /// Everything that is closed, and what it waits for.
    waits: HashMap<Request, Vec<Awaited>>,
    /// The circles that were told, by who was told.
    circles: HashMap<Request, Vec<Request>>,
}

// === impl Cycles ===

impl Cycles {
    /// Looks among these objects. `tell` is called, outside any lock, with who is in a circle that has come, gone or
    /// changed; it must not block.
    pub fn new(objects: &Store<WaitDeployment>, tell: impl Fn(Request) + Send + Sync + 'static) -> Self {
        let objects = Store::new(objects.kind_store().clone());
        let labels = |object: &WaitDeployment| {
            labels_of(object).map(|(key, value)| format!("{key}={value}")).collect()
        };
        // Cannot fail: the handle is new, and has no other index.
        drop(objects.index(BY_LABEL, labels));
        Self { objects, closed: Mutex::default(), tell: Box::new(tell) }
    }

    /// Notes that `request` is closed and waits for these, and returns the shortest circle it is in, beginning with it.
    pub fn waits(&self, request: &Request, awaited: Vec<Awaited>) -> Option<Vec<Request>> {
        self.closed.lock().waits.insert(request.clone(), awaited);
        let circle = shortest_circle(request, |one| self.next(one));
        self.told(request, circle.clone());
        circle
    }

    /// Returns the circle that was found last.
    pub fn of(&self, request: &Request) -> Option<Vec<Request>> {
        self.closed.lock().circles.get(request).cloned()
    }

    /// Notes that `request` is not closed any more.
    pub fn opened(&self, request: &Request) {
        if self.closed.lock().waits.remove(request).is_some() {
            self.told(request, None);
        }
    }

    /// Tells the others of a circle, unless it is the one that was known.
    fn told(&self, request: &Request, circle: Option<Vec<Request>>) {
        let mut closed = self.closed.lock();
        let before = closed.circles.remove(request);
        if let Some(circle) = &circle {
            closed.circles.insert(request.clone(), circle.clone());
        }
        drop(closed);
        if before != circle {
            let others: HashSet<Request> = before.into_iter().chain(circle).flatten().collect();
            others.into_iter().filter(|other| other != request).for_each(&self.tell);
        }
    }

    /// Returns the closed gates that one waits for.
    fn next(&self, request: &Request) -> Vec<Request> {
        let awaited = self.closed.lock().waits.get(request).cloned().unwrap_or_default();
        let mut members: Vec<Request> = awaited.iter().flat_map(|one| self.members(one)).collect();
        let closed = self.closed.lock();
        members.retain(|member| closed.waits.contains_key(member));
        members
    }

    fn members(&self, awaited: &Awaited) -> Vec<Request> {
        let select = match awaited {
            Awaited::Object(request) => return vec![request.clone()],
            Awaited::Selected(namespace, selector) => {
                Select::namespace(namespace.as_str()).labels(selector.clone())
            }
            Awaited::Pods(namespace, labels) => {
                // A Service without a selector has Pods that nobody here makes.
                let Some((key, value)) = labels.first_key_value() else { return Vec::new() };
                Select::index(BY_LABEL, format!("{key}={value}")).within(namespace.as_str())
            }
        };
        // Not synced: nobody can be named yet, and who is closed looks again.
        let found = self.objects.list(&select).unwrap_or_default();
        let mut members = Vec::new();
        for entry in found.iter().take(MAX_MEMBERS) {
            let picked = match awaited {
                Awaited::Pods(_, labels) => entry.decode().is_ok_and(|object| has_all(&object, labels)),
                Awaited::Object(_) | Awaited::Selected(..) => true,
            };
            if picked {
                members.push(entry.view().request().clone());
            }
        }
        members.sort_unstable();
        members
    }
}

impl fmt::Debug for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cycles").finish_non_exhaustive()
    }
}

/// Writes a circle for people: its first member stands at both ends.
pub fn text_of(circle: &[Request]) -> String {
    let names = circle.iter().chain(circle.first()).map(Key::name);
    names.collect::<Vec<_>>().join(" -> ")
}

// === private ===

fn labels_of(object: &WaitDeployment) -> impl Iterator<Item = (&str, &str)> {
    let labels = object.spec.template.get("metadata").and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn has_all(object: &WaitDeployment, wanted: &BTreeMap<String, String>) -> bool {
    let labels: HashMap<&str, &str> = labels_of(object).collect();
    wanted.iter().all(|(key, value)| labels.get(key.as_str()) == Some(&value.as_str()))
}

/// Searches in breadth, so that the first way back is the shortest; the same for the same graph.
fn shortest_circle(from: &Request, next: impl Fn(&Request) -> Vec<Request>) -> Option<Vec<Request>> {
    let mut reached_from: HashMap<Request, Request> = HashMap::new();
    let mut queue = VecDeque::from([from.clone()]);
    while let Some(one) = queue.pop_front() {
        for other in next(&one) {
            if other == *from {
                let mut circle = vec![one.clone()];
                let mut at = &one;
                while let Some(earlier) = reached_from.get(at) {
                    circle.push(earlier.clone());
                    at = earlier;
                }
                circle.reverse();
                return Some(circle);
            }
            if reached_from.len() < MAX_VISITED && !reached_from.contains_key(&other) {
                reached_from.insert(other.clone(), one.clone());
                queue.push_back(other);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mainstay::key::KindId;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn named(name: &str) -> Request {
        Request::namespaced("shop", name)
    }

    fn awaits(name: &str) -> Vec<Awaited> {
        vec![Awaited::Object(named(name))]
    }

    fn pods(app: &str) -> Vec<Awaited> {
        vec![Awaited::Pods("shop".to_owned(), BTreeMap::from([("app".to_owned(), app.to_owned())]))]
    }

    /// Objects whose Pods carry their names, and who was told.
    fn cycles(names: &[&str]) -> (Cycles, Arc<Mutex<Vec<String>>>) {
        let object = |name: &&str| {
            json!({
                "metadata": {"name": name, "namespace": "shop", "labels": {"tier": "all"}},
                "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": name, "odd": 1}}}},
            })
        };
        let objects = Store::from_values(&KindId::of::<WaitDeployment>(), names.iter().map(object));
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let told = told.clone();
            move |request: Request| told.lock().push(request.name().to_owned())
        };
        (Cycles::new(&objects, tell), told)
    }

    fn found(circle: Option<Vec<Request>>) -> Option<String> {
        circle.map(|circle| text_of(&circle))
    }

    #[test]
    fn each_member_is_told_the_circle_from_its_own_side() {
        let (cycles, told) = cycles(&["api", "db", "web"]);
        assert_eq!(found(cycles.waits(&named("web"), pods("api"))), None);
        assert_eq!(found(cycles.waits(&named("api"), awaits("db"))), None);
        assert_eq!(*told.lock(), [""; 0]);
        let circle = found(cycles.waits(&named("db"), pods("web")));
        assert_eq!(circle.as_deref(), Some("db -> web -> api -> db"));
        let mut others = std::mem::take(&mut *told.lock());
        others.sort();
        assert_eq!(others, ["api", "web"], "they have to say so too");
        assert_eq!(
            found(cycles.waits(&named("web"), pods("api"))).as_deref(),
            Some("web -> api -> db -> web")
        );
        assert_eq!(found(cycles.of(&named("web"))).as_deref(), Some("web -> api -> db -> web"));
    }

    #[test]
    fn a_circle_ends_with_who_leaves_it() {
        for leave in [
            |cycles: &Cycles| cycles.opened(&named("db")),
            |cycles: &Cycles| {
                assert_eq!(cycles.waits(&named("db"), Vec::new()), None);
            },
        ] {
            let (cycles, told) = cycles(&["db", "web"]);
            cycles.waits(&named("web"), pods("db"));
            cycles.waits(&named("db"), awaits("web"));
            cycles.waits(&named("web"), pods("db"));
            told.lock().clear();
            leave(&cycles);
            assert_eq!(*told.lock(), ["web"]);
            assert_eq!(cycles.waits(&named("web"), pods("db")), None);
            assert_eq!(cycles.of(&named("web")), None);
        }
    }

    #[test]
    fn who_waits_for_itself_is_a_circle() {
        let (cycles, told) = cycles(&["web"]);
        assert_eq!(found(cycles.waits(&named("web"), pods("web"))).as_deref(), Some("web -> web"));
        assert_eq!(*told.lock(), [""; 0], "nobody else is in it");
    }

    #[test]
    fn what_is_open_or_of_other_labels_is_in_no_circle() {
        let (cycles, _) = cycles(&["api", "web"]);
        cycles.waits(&named("web"), pods("api"));
        assert_eq!(cycles.of(&named("web")), None, "api is open");
        let both = [("app", "web"), ("odd", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let other = Awaited::Pods("shop".to_owned(), BTreeMap::from(both));
        assert_eq!(cycles.waits(&named("api"), vec![other]), None, "not all labels");
        let none = Awaited::Pods("shop".to_owned(), BTreeMap::new());
        assert_eq!(cycles.waits(&named("api"), vec![none]), None, "a Service without a selector");
        let all = Awaited::Selected("shop".to_owned(), "tier=all".parse().unwrap());
        assert_eq!(found(cycles.waits(&named("api"), vec![all])).as_deref(), Some("api -> api"));
    }

    proptest! {
        #[test]
        fn a_circle_is_one_and_found_if_there_is_one(edges in proptest::collection::vec((0..8_usize, 0..8_usize), 0..16)) {
            let request = |number: usize| named(&number.to_string());
            let next = |one: &Request| -> Vec<Request> {
                let number: usize = one.name().parse().unwrap();
                edges.iter().filter(|(from, _)| *from == number).map(|(_, to)| request(*to)).collect()
            };
            // Reachable in one step or more.
            let mut reach = [[false; 8]; 8];
            for (from, to) in &edges {
                reach[*from][*to] = true;
            }
            for (via, from, to) in (0..8).flat_map(|v| (0..8).flat_map(move |f| (0..8).map(move |t| (v, f, t)))) {
                reach[from][to] |= reach[from][via] && reach[via][to];
            }
            for (number, reached) in reach.iter().enumerate() {
                let circle = shortest_circle(&request(number), next);
                prop_assert_eq!(circle.is_some(), reached[number]);
                let Some(circle) = circle else { continue };
                prop_assert_eq!(&circle[0], &request(number));
                for (at, one) in circle.iter().enumerate() {
                    let follower = &circle[(at + 1) % circle.len()];
                    prop_assert!(next(one).contains(follower), "{:?}", circle);
                }
            }
        }
    }
}
