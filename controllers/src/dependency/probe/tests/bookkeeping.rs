//! The invariants of the engine, with random steps in random order.

use proptest::prelude::*;

use super::*;

/// Target, period, timeout and delay of one want, as small numbers. Target 4 is a name; targets from 5 on
/// are of another namespace.
type AnyWant = (u8, u64, u64, u64);

#[derive(Clone, Debug)]
enum Step {
    Watch(u8, Vec<AnyWant>),
    Network(u8, Option<Net>),
    Pass(u64),
    ProbeNow,
    Reconfigure(u32, u32, u64),
}

const SLOTS: usize = 3;

fn any_step() -> impl Strategy<Value = Step> {
    let want = (0..10u8, 1..4u64, 1..4u64, 0..3u64);
    let net = prop_oneof![Just(Net::Accept), Just(Net::Silent), Just(Net::Panic)];
    prop_oneof![
        4 => (0..6u8, prop::collection::vec(want, 0..4)).prop_map(|(a, b)| Step::Watch(a, b)),
        2 => (0..5u8, prop::option::of(net)).prop_map(|(a, b)| Step::Network(a, b)),
        8 => (0..5000u64).prop_map(Step::Pass),
        1 => Just(Step::ProbeNow),
        1 => (1..1000u32, 0..4u32, 1..4u64).prop_map(|(a, b, c)| Step::Reconfigure(a, b, c)),
    ]
}

fn host(target: u8) -> String {
    if target % 5 == 4 { "db".to_owned() } else { format!("10.0.0.{}", target % 5) }
}

fn any_want((target, period, timeout, delay): AnyWant) -> Want {
    let address = Address::parse("a", &format!("{}:80", host(target))).unwrap();
    let namespace = if target < 5 { "shop" } else { "pay" };
    Want {
        target: Target::new(namespace, ProbeCheck::Tcp(address.clone())),
        timeout: Duration::from_secs(timeout),
        initial_delay: Duration::from_secs(delay),
        failure_threshold: 2,
        ..want(address, period)
    }
}

fn policy(rate: u32, targets: u32, period: u64) -> ProbePolicy {
    ProbePolicy {
        max_per_second: rate,
        max_per_second_per_namespace: rate.div_ceil(2),
        max_per_second_per_address: rate.div_ceil(4),
        max_targets_per_namespace: targets,
        min_period: mainstay::config::Duration::from_secs(period),
        ..super::any()
    }
}

async fn run(steps: Vec<Step>) {
    let mut bench = Bench::new(SLOTS, policy(1000, 3, 1));
    let watch = |bench: &Bench, name: u8, wants: Vec<Want>| {
        let request = request(&name.to_string());
        let count = wants.len();
        bench.engine.watch(&request, wants);
        assert_eq!(bench.engine.verdicts(&request).len(), count);
    };
    for step in steps {
        match step {
            Step::Watch(name, wants) => {
                let wants: Vec<Want> = wants.into_iter().map(any_want).collect();
                watch(&bench, name, wants.clone());
                drop(bench.notified());
                watch(&bench, name, wants);
                assert_eq!(bench.notified(), Vec::<String>::new(), "a repeated call changes nothing");
            }
            Step::Network(target, net) => {
                let ip = if target == 4 { "10.96.0.7".to_owned() } else { host(target) };
                let address = format!("{ip}:80").parse().unwrap();
                match net {
                    Some(net) => drop(bench.net.hosts.lock().insert(address, net)),
                    None => drop(bench.net.hosts.lock().remove(&address)),
                }
            }
            Step::Pass(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
            Step::ProbeNow => bench.engine.probe_now("shop", "db"),
            Step::Reconfigure(rate, targets, period) => {
                bench.engine.reconfigure(policy(rate, targets, period));
            }
        }
        let probed = bench.engine.shared.targets.lock().check();
        // The tasks of removed entries have to run to drop their probes.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let open = bench.net.open.load(Ordering::Relaxed);
        assert!(
            open <= SLOTS && open <= probed.max(bench.engine.shared.targets.lock().check()),
            "{open} dials"
        );
        assert!(bench.engine.shared.slots.check() <= SLOTS);
    }
    // No target is stuck: once the network answers, all of them are soon ready.
    bench.engine.reconfigure(policy(1000, 1000, 1));
    for target in 0..5 {
        let ip = if target == 4 { "10.96.0.7".to_owned() } else { host(target) };
        bench.set(&format!("{ip}:80"), Net::Accept);
    }
    pass(12.0).await;
    for name in 0..6 {
        let states = bench.states(&name.to_string());
        assert!(states.iter().all(|state| *state == VerdictState::Ready), "{states:?}");
    }
    assert_eq!((bench.net.open.load(Ordering::Relaxed), bench.engine.shared.slots.check()), (0, 0));
    bench.stop.cancel();
    bench.driver.join_next().await.unwrap().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn the_engine_holds_its_invariants_after_every_step(steps in prop::collection::vec(any_step(), 1..100)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(run(steps));
    }
}
