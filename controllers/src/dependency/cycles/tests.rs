use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A graph, and the gates that it has notified since the last call of [`Bench::notified`].
struct Bench {
    cycles: Cycles,
    notified: Arc<Mutex<Vec<NamespacedName>>>,
}

fn named(name: &str) -> NamespacedName {
    NamespacedName::namespaced("shop", name)
}

fn app(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), name.to_owned())])
}

fn pods(name: &str) -> Awaited {
    Awaited::Pods("shop".to_owned(), app(name))
}

impl Bench {
    fn new() -> Self {
        let notified = Arc::new(Mutex::new(Vec::new()));
        let notify = {
            let notified = notified.clone();
            move |request| notified.lock().push(request)
        };
        Self { cycles: Cycles::new(notify), notified }
    }

    /// Records in term 1 that the gate of this name is closed and holds back Pods with the label `app=NAME`.
    fn closed(&self, name: &str, awaits: &[Awaited]) -> String {
        let gate = Gate { awaits: awaits.to_vec(), holds: Some(app(name)) };
        self.record(&named(name), gate, 1)
    }

    fn record(&self, request: &NamespacedName, gate: Gate, term: u64) -> String {
        self.cycles.closed(request, gate, term).map(|cycle| text_of(&cycle)).unwrap_or_default()
    }

    fn notified(&self) -> Vec<String> {
        let mut notified: Vec<_> =
            self.notified.lock().drain(..).map(|request| request.name().to_owned()).collect();
        notified.sort();
        notified
    }
}

#[test]
fn each_gate_gets_the_cycle_starting_with_itself() {
    let bench = Bench::new();
    assert_eq!(bench.closed("web", &[pods("api")]), "");
    assert_eq!(bench.closed("api", &[Awaited::Ready(named("db"))]), "");
    assert_eq!(bench.notified(), [""; 0]);
    assert_eq!(bench.closed("db", &[pods("web")]), "db -> web -> api -> db");
    assert_eq!(bench.notified(), ["api", "web"], "their conditions have to name the cycle too");
    assert_eq!(bench.closed("web", &[pods("api")]), "web -> api -> db -> web");
    assert_eq!(bench.notified(), [""; 0], "no cycle has changed");
}

#[test]
fn a_gate_that_leaves_a_cycle_ends_it_for_all_its_gates() {
    for leave in [
        |bench: &Bench| bench.cycles.opened(&named("c")),
        |bench: &Bench| assert_eq!(bench.closed("c", &[]), ""),
    ] {
        // Two cycles that share a gate.
        let bench = Bench::new();
        let close = || {
            let a = bench.closed("a", &[pods("b")]);
            let b = bench.closed("b", &[pods("c")]);
            let d = bench.closed("d", &[pods("c")]);
            [a, b, d]
        };
        close();
        assert_eq!(bench.closed("c", &[pods("a"), pods("d")]), "c -> d -> c", "the shorter cycle");
        assert_eq!(bench.notified(), ["a", "b", "d"], "also the gates of the longer cycle");
        assert_eq!(close(), ["a -> b -> c -> a", "b -> c -> a -> b", "d -> c -> d"]);
        leave(&bench);
        assert_eq!(bench.notified(), ["a", "b", "d"]);
        assert_eq!(close(), [""; 3]);
    }
}

#[test]
fn a_gate_that_waits_for_itself_is_a_cycle() {
    let bench = Bench::new();
    assert_eq!(bench.closed("web", &[pods("web")]), "web -> web");
    assert_eq!(bench.notified(), [""; 0], "no other gate is in the cycle");
}

#[test]
fn open_gates_and_gates_with_other_labels_are_in_no_cycle() {
    let bench = Bench::new();
    assert_eq!(bench.closed("web", &[pods("api")]), "", "api is open");
    let mut both = app("web");
    both.insert("tier".to_owned(), "front".to_owned());
    let all = |labels| Awaited::Pods("shop".to_owned(), labels);
    assert_eq!(bench.closed("api", &[all(both.clone())]), "", "not all labels");
    assert_eq!(bench.closed("api", &[all(BTreeMap::new())]), "", "a Service without a selector");
    assert_eq!(bench.closed("api", &[Awaited::Pods("pay".to_owned(), app("web"))]), "", "another namespace");
    let gate = Gate { awaits: vec![pods("api")], holds: Some(both.clone()) };
    bench.record(&named("web"), gate, 1);
    assert_eq!(bench.closed("api", &[all(both)]), "api -> web -> api");
}

#[test]
fn a_gate_whose_pods_run_blocks_only_a_wait_for_its_readiness() {
    let bench = Bench::new();
    let held = |awaits| bench.record(&named("api"), Gate { awaits, holds: None }, 1);
    bench.closed("web", &[pods("api"), Awaited::Object(named("api"))]);
    assert_eq!(held(vec![pods("web")]), "", "the running Pods of api may become ready");
    bench.closed("web", &[Awaited::Ready(named("api"))]);
    assert_eq!(held(vec![pods("web")]), "api -> web -> api");
}

#[test]
fn a_new_term_forgets_the_gates_of_the_last_one() {
    let bench = Bench::new();
    bench.closed("web", &[pods("api")]);
    let gate = || Gate { awaits: vec![pods("web")], holds: Some(app("api")) };
    assert_eq!(bench.record(&named("api"), gate(), 3), "", "web may have opened meanwhile");
    assert_eq!(bench.record(&named("api"), gate(), 3), "");
}

#[test]
fn names_of_other_namespaces_are_left_out_of_the_text() {
    let away = NamespacedName::namespaced("pay", "billing");
    let text = "web -> (in another namespace) -> api -> web";
    assert_eq!(text_of(&[named("web"), away, named("api")]), text);
}

#[test]
fn a_search_ends_however_many_gates_there_are() {
    let bench = Bench::new();
    // Each gate waits for sixteen Services, each of which picks the Pods of all gates.
    let all: Vec<_> = (0..16).map(|_| pods("all")).collect();
    for number in 0..300 {
        let gate = Gate { awaits: all.clone(), holds: Some(app("all")) };
        bench.record(&named(&format!("{number:03}")), gate, 1);
    }
    let search = bench.cycles.graph.lock().search(&named("000"));
    assert!(search.gates.len() <= MAX_VISITED && search.edges.len() <= MAX_COMPARED);
    assert_eq!(search.cycle().unwrap(), [named("000")]);
}

/// Returns a gate that waits for the readiness of these gates.
fn edges(to: &[usize]) -> Gate {
    let awaits = to.iter().map(|to| Awaited::Ready(named(&to.to_string()))).collect();
    Gate { awaits, holds: None }
}

proptest! {
    #[test]
    fn a_search_finds_a_cycle_if_there_is_one(edges_to in vec(vec(0..8_usize, 0..4), 8)) {
        let bench = Bench::new();
        for (number, to) in edges_to.iter().enumerate() {
            bench.record(&named(&number.to_string()), edges(to), 1);
        }
        // Which gate reaches which other one, in one step or more.
        let mut reach = [[false; 8]; 8];
        for (from, to) in edges_to.iter().enumerate() {
            for to in to {
                reach[from][*to] = true;
            }
        }
        for (via, from, to) in (0..8).flat_map(|v| (0..8).flat_map(move |f| (0..8).map(move |t| (v, f, t)))) {
            reach[from][to] |= reach[from][via] && reach[via][to];
        }
        for (number, to) in edges_to.iter().enumerate() {
            let cycle = bench.cycles.closed(&named(&number.to_string()), edges(to), 1);
            prop_assert_eq!(cycle.is_some(), reach[number][number]);
            let Some(cycle) = cycle else { continue };
            let cycle: Vec<usize> = cycle.iter().map(|one| one.name().parse().unwrap()).collect();
            prop_assert_eq!(cycle[0], number);
            for (at, one) in cycle.iter().enumerate() {
                let follower = cycle[(at + 1) % cycle.len()];
                prop_assert!(edges_to[*one].contains(&follower), "{:?}", cycle);
            }
        }
    }

    #[test]
    fn every_gate_that_follows_its_notifications_knows_its_cycle(
        steps in vec((0..6_usize, prop::option::of(vec(0..6_usize, 0..3))), 1..24),
    ) {
        let bench = Bench::new();
        let (mut gates, mut known) = (BTreeMap::new(), BTreeMap::new());
        for (number, to) in steps {
            let first = named(&number.to_string());
            if let Some(to) = to {
                gates.insert(first.clone(), edges(&to));
            } else {
                gates.remove(&first);
                known.remove(&first);
                bench.cycles.opened(&first);
            }
            bench.notified.lock().push(first);
            loop {
                let Some(next) = bench.notified.lock().pop() else { break };
                if let Some(gate) = gates.get(&next) {
                    known.insert(next.clone(), bench.cycles.closed(&next, gate.clone(), 1));
                }
            }
            for (request, gate) in &gates {
                prop_assert_eq!(&known[request], &bench.cycles.closed(request, gate.clone(), 1));
            }
            prop_assert!(bench.notified.lock().is_empty());
        }
    }
}
