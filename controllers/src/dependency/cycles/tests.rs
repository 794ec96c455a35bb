use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Circles, and who was named since this was asked last.
struct Bench {
    cycles: Cycles,
    named: Arc<Mutex<Vec<NamespacedName>>>,
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
        let named = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let named = named.clone();
            move |request| named.lock().push(request)
        };
        Self { cycles: Cycles::new(tell), named }
    }

    /// A gate of this name holds Pods back that carry it, and is closed in term 1.
    fn closed(&self, name: &str, awaits: &[Awaited]) -> String {
        let gate = Gate { awaits: awaits.to_vec(), holds: Some(app(name)) };
        self.ask(&named(name), gate, 1)
    }

    fn ask(&self, request: &NamespacedName, gate: Gate, term: u64) -> String {
        self.cycles.closed(request, gate, term).map(|circle| text_of(&circle)).unwrap_or_default()
    }

    fn named(&self) -> Vec<String> {
        let mut named: Vec<_> =
            self.named.lock().drain(..).map(|request| request.name().to_owned()).collect();
        named.sort();
        named
    }
}

#[test]
fn each_member_is_told_the_circle_from_its_own_side() {
    let bench = Bench::new();
    assert_eq!(bench.closed("web", &[pods("api")]), "");
    assert_eq!(bench.closed("api", &[Awaited::Ready(named("db"))]), "");
    assert_eq!(bench.named(), [""; 0]);
    assert_eq!(bench.closed("db", &[pods("web")]), "db -> web -> api -> db");
    assert_eq!(bench.named(), ["api", "web"], "they have to say so too");
    assert_eq!(bench.closed("web", &[pods("api")]), "web -> api -> db -> web");
    assert_eq!(bench.named(), [""; 0], "which is no news to anybody");
}

#[test]
fn a_circle_ends_with_who_leaves_it_for_everybody_it_was_told_to() {
    for leave in [
        |bench: &Bench| bench.cycles.opened(&named("c")),
        |bench: &Bench| assert_eq!(bench.closed("c", &[]), ""),
    ] {
        // Two that share a member.
        let bench = Bench::new();
        let close = || {
            let a = bench.closed("a", &[pods("b")]);
            let b = bench.closed("b", &[pods("c")]);
            let d = bench.closed("d", &[pods("c")]);
            [a, b, d]
        };
        close();
        assert_eq!(bench.closed("c", &[pods("a"), pods("d")]), "c -> d -> c", "the shorter one");
        assert_eq!(bench.named(), ["a", "b", "d"], "also those of the longer one");
        assert_eq!(close(), ["a -> b -> c -> a", "b -> c -> a -> b", "d -> c -> d"]);
        leave(&bench);
        assert_eq!(bench.named(), ["a", "b", "d"]);
        assert_eq!(close(), [""; 3]);
    }
}

#[test]
fn who_waits_for_itself_is_a_circle() {
    let bench = Bench::new();
    assert_eq!(bench.closed("web", &[pods("web")]), "web -> web");
    assert_eq!(bench.named(), [""; 0], "nobody else is in it");
}

#[test]
fn what_is_open_or_of_other_labels_is_in_no_circle() {
    let bench = Bench::new();
    assert_eq!(bench.closed("web", &[pods("api")]), "", "api is open");
    let mut both = app("web");
    both.insert("tier".to_owned(), "front".to_owned());
    let all = |labels| Awaited::Pods("shop".to_owned(), labels);
    assert_eq!(bench.closed("api", &[all(both.clone())]), "", "not all labels");
    assert_eq!(bench.closed("api", &[all(BTreeMap::new())]), "", "a Service without a selector");
    assert_eq!(bench.closed("api", &[Awaited::Pods("pay".to_owned(), app("web"))]), "", "another namespace");
    let gate = Gate { awaits: vec![pods("api")], holds: Some(both.clone()) };
    bench.ask(&named("web"), gate, 1);
    assert_eq!(bench.closed("api", &[all(both)]), "api -> web -> api");
}

#[test]
fn one_whose_pods_run_keeps_back_only_that_it_is_ready() {
    let bench = Bench::new();
    let held = |awaits| bench.ask(&named("api"), Gate { awaits, holds: None }, 1);
    bench.closed("web", &[pods("api"), Awaited::Object(named("api"))]);
    assert_eq!(held(vec![pods("web")]), "", "web may begin as soon as they answer");
    bench.closed("web", &[Awaited::Ready(named("api"))]);
    assert_eq!(held(vec![pods("web")]), "api -> web -> api");
}

#[test]
fn a_term_begins_without_what_an_earlier_one_knew() {
    let bench = Bench::new();
    bench.closed("web", &[pods("api")]);
    let gate = || Gate { awaits: vec![pods("web")], holds: Some(app("api")) };
    assert_eq!(bench.ask(&named("api"), gate(), 3), "", "web may have opened meanwhile");
    assert_eq!(bench.ask(&named("api"), gate(), 3), "");
}

#[test]
fn those_of_other_namespaces_have_no_names() {
    let away = NamespacedName::namespaced("pay", "billing");
    let text = "web -> (in another namespace) -> api -> web";
    assert_eq!(text_of(&[named("web"), away, named("api")]), text);
}

#[test]
fn a_search_ends_however_many_gates_there_are() {
    let bench = Bench::new();
    // Each waits for sixteen Services that pick all of them.
    let all: Vec<_> = (0..16).map(|_| pods("all")).collect();
    for number in 0..300 {
        let gate = Gate { awaits: all.clone(), holds: Some(app("all")) };
        bench.ask(&named(&format!("{number:03}")), gate, 1);
    }
    let reached = bench.cycles.graph.lock().search(&named("000"));
    assert!(reached.gates.len() <= MAX_VISITED && reached.ways.len() <= MAX_COMPARED);
    assert_eq!(reached.circle().unwrap(), [named("000")]);
}

/// Gates are numbers, and wait for others being ready.
fn edges(to: &[usize]) -> Gate {
    let awaits = to.iter().map(|to| Awaited::Ready(named(&to.to_string()))).collect();
    Gate { awaits, holds: None }
}

proptest! {
    #[test]
    fn a_circle_is_one_and_found_if_there_is_one(ways in vec(vec(0..8_usize, 0..4), 8)) {
        let bench = Bench::new();
        for (number, to) in ways.iter().enumerate() {
            bench.ask(&named(&number.to_string()), edges(to), 1);
        }
        // Reachable in one step or more.
        let mut reach = [[false; 8]; 8];
        for (from, to) in ways.iter().enumerate() {
            for to in to {
                reach[from][*to] = true;
            }
        }
        for (via, from, to) in (0..8).flat_map(|v| (0..8).flat_map(move |f| (0..8).map(move |t| (v, f, t)))) {
            reach[from][to] |= reach[from][via] && reach[via][to];
        }
        for (number, to) in ways.iter().enumerate() {
            let circle = bench.cycles.closed(&named(&number.to_string()), edges(to), 1);
            prop_assert_eq!(circle.is_some(), reach[number][number]);
            let Some(circle) = circle else { continue };
            let circle: Vec<usize> = circle.iter().map(|one| one.name().parse().unwrap()).collect();
            prop_assert_eq!(circle[0], number);
            for (at, one) in circle.iter().enumerate() {
                let follower = circle[(at + 1) % circle.len()];
                prop_assert!(ways[*one].contains(&follower), "{:?}", circle);
            }
        }
    }

    #[test]
    fn whoever_asks_when_named_knows_its_circle(
        steps in vec((0..6_usize, prop::option::of(vec(0..6_usize, 0..3))), 1..24),
    ) {
        let bench = Bench::new();
        let (mut gates, mut told) = (BTreeMap::new(), BTreeMap::new());
        for (number, to) in steps {
            let first = named(&number.to_string());
            if let Some(to) = to {
                gates.insert(first.clone(), edges(&to));
            } else {
                gates.remove(&first);
                told.remove(&first);
                bench.cycles.opened(&first);
            }
            bench.named.lock().push(first);
            loop {
                let Some(next) = bench.named.lock().pop() else { break };
                if let Some(gate) = gates.get(&next) {
                    told.insert(next.clone(), bench.cycles.closed(&next, gate.clone(), 1));
                }
            }
            for (request, gate) in &gates {
                prop_assert_eq!(&told[request], &bench.cycles.closed(request, gate.clone(), 1));
            }
            prop_assert!(bench.named.lock().is_empty());
        }
    }
}
