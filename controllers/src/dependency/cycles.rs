//! Cycles of closed gates: each gate waits for the next one, so none of them can ever open.
//!
//! A gate waits for another WaitDeployment by a `resource` check on it, or by a `service` check or a probe
//! of a Service with a selector of Pods that the other WaitDeployment holds back.
//!
//! A reconcile that finds its gate closed calls [`Cycles::closed`] with the edges of the gate, and gets the
//! shortest cycle through it. If the change creates, changes or ends the cycle of another gate, a callback
//! gets that gate, and its next reconcile calls `closed` again. The graph is in memory; a search reads no
//! objects.
//!
//! # Invariants
//! 1. A cycle contains only gates that were recorded as closed in this term of leadership.
//! 2. When a gate opens or its edges change, the callback gets every other gate whose cycle leads through
//!    it, before or after the change.
//! 3. A search visits at most `MAX_VISITED` gates and compares at most `MAX_COMPARED` pairs of gates.
//!    In the same graph it finds the same cycle.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use mainstay::key::{Key, NamespacedName};
use parking_lot::Mutex;

use super::waiters::Waiters;

/// Maximum number of closed gates that one search for a cycle visits. A longer cycle is not found; no real
/// setup comes near it.
const MAX_VISITED: usize = 256;
/// Maximum number of pairs of gates that one search for a cycle compares, which takes some milliseconds.
const MAX_COMPARED: usize = 16_384;

/// The closed gate of a WaitDeployment: it holds back the Pods, or an update, until the dependencies are
/// ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// The effects of other WaitDeployments, such as their Pods, that the closed gate waits for.
    pub awaits: Vec<Awaited>,
    /// The labels of the Pods that the gate holds back; `None` if its Deployment has Pods already and only an
    /// update is held back.
    pub holds: Option<BTreeMap<String, String>>,
}

/// An effect of another WaitDeployment that a closed gate waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// This WaitDeployment becomes ready, which is impossible while its own gate is closed.
    Ready(NamespacedName),
    /// This WaitDeployment reaches another state than readiness, which can come true as soon as it has Pods.
    Object(NamespacedName),
    /// Pods exist in this namespace with these labels.
    Pods(String, BTreeMap<String, String>),
}

/// Finds cycles of closed gates: WaitDeployments that wait for each other, so that none can ever become
/// ready.
#[derive(derive_more::Debug)]
#[debug("Cycles {{ .. }}")]
pub struct Cycles {
    graph: Mutex<Graph>,
    notify: Box<dyn Fn(NamespacedName) + Send + Sync>,
}

/// The graph of all closed gates in one term of leadership, with the cycles found in it.
#[derive(Debug, Default)]
struct Graph {
    term: u64,
    gates: HashMap<NamespacedName, Gate>,
    /// The gates that hold Pods back, by each label of the Pods that they hold back.
    by_label: Waiters<Label>,
    /// By gate, the cycle through it that [`Cycles::closed`] returned last.
    cycles: HashMap<NamespacedName, Vec<NamespacedName>>,
}

/// Namespace of a Pod, with key and value of one of its labels.
type Label = (String, String, String);

/// The result of a search for a cycle: the closed gates that it visited, nearest first, and the edges between
/// them.
#[derive(Debug)]
struct Search {
    /// The visited gates, nearest first; the first one is the start of the search.
    gates: Vec<NamespacedName>,
    /// The edges in the order of the search, as pairs of indices into `gates`: the first gate waits for the
    /// second.
    edges: Vec<(usize, usize)>,
}

// === impl Cycles ===

impl Cycles {
    /// Makes an empty graph of closed gates. `notify` is called, outside any lock, with each gate for which a
    /// cycle may have come, gone or changed; it must not block.
    pub fn new(notify: impl Fn(NamespacedName) + Send + Sync + 'static) -> Self {
        Self { graph: Mutex::default(), notify: Box::new(notify) }
    }

    /// Records that the gate of the WaitDeployment `request` is closed, and returns the shortest cycle of
    /// closed gates through it, starting with it; `None` if there is none. If `term` is not that of the last
    /// call, all recorded gates are forgotten first.
    pub fn closed(&self, request: &NamespacedName, gate: Gate, term: u64) -> Option<Vec<NamespacedName>> {
        let mut graph = self.graph.lock();
        if graph.term != term {
            *graph = Graph { term, ..Graph::default() };
        }
        let is_news = graph.gates.get(request) != Some(&gate);
        if is_news {
            graph.by_label.set(request, labels(request, &gate));
            graph.gates.insert(request.clone(), gate);
        }
        let search = graph.search(request);
        let cycle = search.cycle();
        let mut concerned = BTreeSet::new();
        // If this gate has not changed, the call for the changed gate has notified all others.
        if is_news {
            concerned.extend(graph.with_cycle_through(request));
            concerned.extend(search.waiting_for_start());
        }
        match &cycle {
            Some(cycle) => graph.cycles.insert(request.clone(), cycle.clone()),
            None => graph.cycles.remove(request),
        };
        drop(graph);
        self.notify_others(request, concerned);
        cycle
    }

    /// Records that the gate of the WaitDeployment `request` is no longer closed, and notifies the other
    /// gates of the cycles that this breaks.
    pub fn opened(&self, request: &NamespacedName) {
        let mut graph = self.graph.lock();
        if graph.gates.remove(request).is_none() {
            return;
        }
        graph.by_label.forget(request);
        graph.cycles.remove(request);
        let concerned = graph.with_cycle_through(request);
        drop(graph);
        self.notify_others(request, concerned);
    }

    fn notify_others(&self, request: &NamespacedName, concerned: BTreeSet<NamespacedName>) {
        concerned.into_iter().filter(|other| other != request).for_each(&self.notify);
    }
}

/// Formats a cycle of closed gates as text such as `web -> api -> web`, for readers with access to the
/// namespace of its first gate. The names of gates in other namespaces are left out.
pub fn text_of(cycle: &[NamespacedName]) -> String {
    let Some(first) = cycle.first() else { return String::new() };
    let name = |gate: &NamespacedName| {
        let is_near = gate.namespace() == first.namespace();
        if is_near { gate.name().to_owned() } else { "(in another namespace)".to_owned() }
    };
    cycle.iter().chain([first]).map(name).collect::<Vec<_>>().join(" -> ")
}

// === impl Graph ===

impl Graph {
    /// Returns the gates for which the last returned cycle leads through the gate of `request`.
    fn with_cycle_through(&self, request: &NamespacedName) -> BTreeSet<NamespacedName> {
        let through = self.cycles.iter().filter(|(_, cycle)| cycle.contains(request));
        through.map(|(gate, _)| gate.clone()).collect()
    }

    /// Visits the closed gates that the gate `start` waits for, directly or through other gates. The search
    /// is breadth first, so the first way back to `start` is the shortest.
    fn search<'a>(&'a self, start: &'a NamespacedName) -> Search {
        let (mut indices, mut left) = (HashMap::from([(start, 0)]), MAX_COMPARED);
        let mut search = Search { gates: vec![start.clone()], edges: Vec::new() };
        let mut queue = VecDeque::from([start]);
        let mut from = 0;
        while let Some(gate) = queue.pop_front() {
            for other in self.next(gate, &mut left) {
                let is_new = !indices.contains_key(other);
                if is_new && indices.len() >= MAX_VISITED {
                    continue;
                }
                let to = *indices.entry(other).or_insert(search.gates.len());
                if is_new {
                    search.gates.push(other.clone());
                    queue.push_back(other);
                }
                search.edges.push((from, to));
            }
            from += 1;
        }
        search
    }

    /// Returns the closed gates that the gate of `request` waits for, in the order of `awaits`, after at most
    /// `left` comparisons.
    fn next<'a>(&'a self, request: &NamespacedName, left: &mut usize) -> Vec<&'a NamespacedName> {
        let mut found = Vec::new();
        for awaited in self.gates.get(request).into_iter().flat_map(|gate| &gate.awaits) {
            match awaited {
                Awaited::Ready(other) | Awaited::Object(other) => {
                    let blocks = |gate: &Gate| gate.holds.is_some() || matches!(awaited, Awaited::Ready(_));
                    let gate = self.gates.get_key_value(other).filter(|(_, gate)| blocks(gate));
                    found.extend(gate.map(|(other, _)| other).filter(|_| *left > 0));
                    *left = left.saturating_sub(1);
                }
                Awaited::Pods(namespace, wanted) => {
                    let holding = |(key, value): (&String, &String)| {
                        self.by_label.get(&(namespace.clone(), key.clone(), value.clone()))
                    };
                    // A label that no held Pod has settles it. So does an empty selector: the endpoints of
                    // such a Service are not Pods of a WaitDeployment.
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

/// Returns the labels of the Pods that the gate of `request` holds back, each with their namespace.
fn labels(request: &NamespacedName, gate: &Gate) -> Vec<Label> {
    let namespace = request.namespace().unwrap_or_default();
    let held = gate.holds.iter().flatten();
    held.map(|(key, value)| (namespace.to_owned(), key.clone(), value.clone())).collect()
}

// === impl Search ===

impl Search {
    /// Returns the shortest cycle through the gate at the start of the search; `None` if there is none.
    fn cycle(&self) -> Option<Vec<NamespacedName>> {
        let mut cycle = Vec::new();
        let mut at = 0;
        loop {
            // The first edge to a gate is the one by which the search found it.
            at = self.edges.iter().find(|(_, to)| *to == at)?.0;
            cycle.push(self.gates[at].clone());
            if at == 0 {
                break;
            }
        }
        cycle.reverse();
        Some(cycle)
    }

    /// Returns all visited gates that wait for the gate at the start of the search, directly or through other
    /// gates.
    fn waiting_for_start(&self) -> Vec<NamespacedName> {
        let mut before: HashMap<usize, Vec<usize>> = HashMap::new();
        for (from, to) in &self.edges {
            before.entry(*to).or_default().push(*from);
        }
        let (mut seen, mut queue) = (BTreeSet::new(), vec![0]);
        while let Some(at) = queue.pop() {
            queue.extend(before.remove(&at).into_iter().flatten().filter(|from| seen.insert(*from)));
        }
        seen.into_iter().map(|at| self.gates[at].clone()).collect()
    }
}

#[cfg(test)]
mod tests;
