//! Closed gates that wait for each other in a circle, so that none can ever open.
//!
//! A gate waits for another WaitDeployment by a `resource` check on it, or by anything that asks a Service whose selector
//! picks the Pods that the other one holds back.
//!
//! Who is closed says what it waits for and what it holds back ([`Cycles::closed`]), and is told the shortest circle it is
//! in. Whose circle may have come, gone or changed with that is named to a callback, and asks in turn. All of it is in
//! memory, so that a search reads no object.
//!
//! # Invariants
//! 1. Only gates that have said in this term that they are closed are in a circle.
//! 2. When a gate opens, or waits for something else, all are named whose circle leads over it or may from now on.
//! 3. A search looks at `MAX_VISITED` gates, and at `MAX_COMPARED` pairs that may be a gate and what it waits for. In
//!    the same graph it finds the same circle.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;

use mainstay::key::{Key, NamespacedName};
use parking_lot::Mutex;

/// Most gates that one search looks at. A longer circle is not found: nobody draws one.
const MAX_VISITED: usize = 256;
/// Most pairs of gates that one search compares, some milliseconds.
const MAX_COMPARED: usize = 16_384;

/// A closed gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// What it waits for that another WaitDeployment may bring.
    pub awaits: Vec<Awaited>,
    /// The labels of the Pods that it holds back; `None` while its Deployment has Pods, and only an update is held.
    pub holds: Option<BTreeMap<String, String>>,
}

/// What a closed gate waits for that another WaitDeployment may bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// That one being ready, which none is whose gate is closed.
    Ready(NamespacedName),
    /// Something else of that one: it may have come with the Pods, if there are any.
    Object(NamespacedName),
    /// Pods of a namespace with these labels.
    Pods(String, BTreeMap<String, String>),
}

/// Finds circles among closed gates.
pub struct Cycles {
    graph: Mutex<Graph>,
    tell: Box<dyn Fn(NamespacedName) + Send + Sync>,
}

#[derive(Debug, Default)]
struct Graph {
    /// All of it is of this term.
    term: u64,
    gates: HashMap<NamespacedName, Gate>,
    /// Those who hold Pods back, by namespace and each label of these.
    by_label: HashMap<(String, String, String), BTreeSet<NamespacedName>>,
    /// The circles that were told, by who was told.
    circles: HashMap<NamespacedName, Vec<NamespacedName>>,
}

/// What a search has come by, the nearest first.
#[derive(Debug)]
struct Reached {
    /// The first is where it began.
    gates: Vec<NamespacedName>,
    /// Who waits for whom, by their places in `gates`, in the order in which that was found.
    ways: Vec<(usize, usize)>,
}

// === impl Cycles ===

impl Cycles {
    /// `tell` is called, outside any lock, with whose circle may have come, gone or changed; it must not block.
    pub fn new(tell: impl Fn(NamespacedName) + Send + Sync + 'static) -> Self {
        Self { graph: Mutex::default(), tell: Box::new(tell) }
    }

    /// Notes that the gate of `request` is closed, and returns the shortest circle it is in, beginning with it. With
    /// another term than before everything of the earlier one is forgotten.
    pub fn closed(&self, request: &NamespacedName, gate: Gate, term: u64) -> Option<Vec<NamespacedName>> {
        let mut graph = self.graph.lock();
        if graph.term != term {
            *graph = Graph { term, ..Graph::default() };
        }
        let is_news = graph.gates.get(request) != Some(&gate);
        if is_news {
            graph.remove(request);
            graph.insert(request, gate);
        }
        let reached = graph.search(request);
        let circle = reached.circle();
        let mut concerned = BTreeSet::new();
        // Where nothing has changed here, whoever changed something has named all others.
        if is_news {
            concerned.extend(graph.led_over(request));
            concerned.extend(reached.leading_back());
        }
        match &circle {
            Some(circle) => graph.circles.insert(request.clone(), circle.clone()),
            None => graph.circles.remove(request),
        };
        drop(graph);
        self.tell_others(request, concerned);
        circle
    }

    /// Notes that the gate of `request` is not closed any more.
    pub fn opened(&self, request: &NamespacedName) {
        let mut graph = self.graph.lock();
        if !graph.remove(request) {
            return;
        }
        graph.circles.remove(request);
        let concerned = graph.led_over(request);
        drop(graph);
        self.tell_others(request, concerned);
    }

    fn tell_others(&self, request: &NamespacedName, concerned: BTreeSet<NamespacedName>) {
        concerned.into_iter().filter(|other| other != request).for_each(&self.tell);
    }
}

impl fmt::Debug for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cycles").finish_non_exhaustive()
    }
}

/// Writes a circle for people who may see the first member's namespace: that member stands at both ends, and those of
/// other namespaces have no names.
pub fn text_of(circle: &[NamespacedName]) -> String {
    let Some(first) = circle.first() else { return String::new() };
    let name = |member: &NamespacedName| {
        let is_near = member.namespace() == first.namespace();
        if is_near { member.name().to_owned() } else { "(in another namespace)".to_owned() }
    };
    circle.iter().chain([first]).map(name).collect::<Vec<_>>().join(" -> ")
}

// === impl Graph ===

impl Graph {
    fn insert(&mut self, request: &NamespacedName, gate: Gate) {
        for label in labels(request, &gate) {
            self.by_label.entry(label).or_default().insert(request.clone());
        }
        self.gates.insert(request.clone(), gate);
    }

    /// Returns whether it was there.
    fn remove(&mut self, request: &NamespacedName) -> bool {
        let Some(gate) = self.gates.remove(request) else { return false };
        for label in labels(request, &gate) {
            if let Some(holding) = self.by_label.get_mut(&label) {
                holding.remove(request);
                if holding.is_empty() {
                    self.by_label.remove(&label);
                }
            }
        }
        true
    }

    /// Returns who was told a circle that leads over `request`.
    fn led_over(&self, request: &NamespacedName) -> BTreeSet<NamespacedName> {
        let told = self.circles.iter().filter(|(_, circle)| circle.contains(request));
        told.map(|(who, _)| who.clone()).collect()
    }

    /// Searches in breadth, so that the first way back is the shortest.
    fn search<'a>(&'a self, from: &'a NamespacedName) -> Reached {
        let (mut places, mut left) = (HashMap::from([(from, 0)]), MAX_COMPARED);
        let mut reached = Reached { gates: vec![from.clone()], ways: Vec::new() };
        let mut queue = VecDeque::from([from]);
        let mut at = 0;
        while let Some(one) = queue.pop_front() {
            for other in self.next(one, &mut left) {
                let is_new = !places.contains_key(other);
                if is_new && places.len() >= MAX_VISITED {
                    continue;
                }
                let place = *places.entry(other).or_insert(reached.gates.len());
                if is_new {
                    reached.gates.push(other.clone());
                    queue.push_back(other);
                }
                reached.ways.push((at, place));
            }
            at += 1;
        }
        reached
    }

    /// Returns the closed gates that one waits for, in order for each thing that it waits for; compares no more than
    /// `left`.
    fn next<'a>(&'a self, request: &NamespacedName, left: &mut usize) -> Vec<&'a NamespacedName> {
        let mut found = Vec::new();
        for awaited in self.gates.get(request).into_iter().flat_map(|gate| &gate.awaits) {
            match awaited {
                Awaited::Ready(other) | Awaited::Object(other) => {
                    let brings = |gate: &Gate| gate.holds.is_some() || matches!(awaited, Awaited::Ready(_));
                    let gate = self.gates.get_key_value(other).filter(|(_, gate)| brings(gate));
                    found.extend(gate.map(|(other, _)| other).filter(|_| *left > 0));
                    *left = left.saturating_sub(1);
                }
                Awaited::Pods(namespace, wanted) => {
                    let holding = |(key, value): (&String, &String)| {
                        self.by_label.get(&(namespace.clone(), key.clone(), value.clone()))
                    };
                    // One label that nobody has is enough; without any, it is a Service whose Pods nobody here makes.
                    let holding: Option<Vec<_>> = wanted.iter().map(holding).collect();
                    let Some(rarest) = holding.into_iter().flatten().min_by_key(|holding| holding.len())
                    else {
                        continue;
                    };
                    let has = |held: &BTreeMap<String, String>| {
                        wanted.iter().all(|(key, value)| held.get(key) == Some(value))
                    };
                    let held_by =
                        |other: &NamespacedName| self.gates.get(other).and_then(|gate| gate.holds.as_ref());
                    found.extend(rarest.iter().take(*left).filter(|other| held_by(other).is_some_and(has)));
                    *left = left.saturating_sub(rarest.len());
                }
            }
        }
        found
    }
}

/// By what one that holds Pods back is found.
fn labels(request: &NamespacedName, gate: &Gate) -> impl Iterator<Item = (String, String, String)> {
    let namespace = request.namespace().unwrap_or_default();
    let held = gate.holds.iter().flatten();
    held.map(move |(key, value)| (namespace.to_owned(), key.clone(), value.clone()))
}

// === impl Reached ===

impl Reached {
    /// Returns the shortest way back to where the search began.
    fn circle(&self) -> Option<Vec<NamespacedName>> {
        let (mut at, _) = *self.ways.iter().find(|(_, to)| *to == 0)?;
        let mut circle = Vec::new();
        loop {
            circle.push(self.gates[at].clone());
            if at == 0 {
                break;
            }
            // The first way to one that was found is the one that it was found by.
            at = self.ways.iter().find(|(_, to)| *to == at)?.0;
        }
        circle.reverse();
        Some(circle)
    }

    /// Returns everybody who waits for where the search began, at however many removes.
    fn leading_back(&self) -> Vec<NamespacedName> {
        let mut before: HashMap<usize, Vec<usize>> = HashMap::new();
        for (from, to) in &self.ways {
            before.entry(*to).or_default().push(*from);
        }
        let (mut seen, mut queue) = (BTreeSet::new(), vec![0]);
        while let Some(at) = queue.pop() {
            for from in before.get(&at).into_iter().flatten() {
                if seen.insert(*from) {
                    queue.push(*from);
                }
            }
        }
        seen.into_iter().map(|at| self.gates[at].clone()).collect()
    }
}

#[cfg(test)]
mod tests;
