//! The schedule's invariants, whatever happens in whatever order.

use proptest::prelude::*;

use super::*;

/// Target, period, timeout and delay of one want, in small numbers. Target 4 is a name, and of two namespaces.
type AnyWant = (u8, u64, u64, u64);

#[derive(Clone, Debug)]
enum Step {
    Watch(u8, Vec<AnyWant>),
    Start,
    Land(usize),
    Finish(usize, Option<bool>),
    Pass(u64),
    Hurry,
    Reconfigure(u32, usize, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, prop::collection::vec((0..10u8, 1..4u64, 1..4u64, 0..3u64), 0..4)).prop_map(|(a, b)| Step::Watch(a, b)),
        4 => Just(Step::Start),
        4 => (0..8usize, prop::option::of(proptest::bool::ANY)).prop_map(|(a, b)| Step::Finish(a, b)),
        2 => (0..8usize).prop_map(Step::Land),
        2 => (0..5000u64).prop_map(Step::Pass),
        1 => Just(Step::Hurry),
        1 => (1..1000u32, 0..4usize, 1..4u64).prop_map(|(a, b, c)| Step::Reconfigure(a, b, c)),
    ]
}

fn any_want((target, period, timeout, delay): AnyWant) -> Want {
    let host = if target % 5 == 4 { "db".to_owned() } else { format!("10.0.0.{}", target % 5) };
    let address = Address::parse("a", &format!("{host}:80")).unwrap();
    let namespace = if target < 5 { "shop" } else { "pay" };
    Want {
        target: Target::new(namespace, ProbeCheck::Tcp(address.clone())),
        timeout: Duration::from_secs(timeout),
        initial_delay: Duration::from_secs(delay),
        failure_threshold: 2,
        ..want(address, period)
    }
}

fn limits(rate: u32, targets: usize, period: u64) -> Limits {
    Limits {
        in_flight: 3,
        per_second: rate,
        per_second_per_namespace: rate.div_ceil(2),
        per_second_per_address: rate.div_ceil(4),
        targets_per_namespace: targets,
        min_period: Duration::from_secs(period),
    }
}

proptest! {
    #[test]
    fn bookkeeping_holds_after_every_step(steps in prop::collection::vec(any_step(), 1..200)) {
        let mut now = Instant::now();
        let mut schedule = Schedule::new(limits(1000, 3, 1));
        let mut n = 0;
        // Each with whether it has a slot.
        let mut flying: Vec<(schedule::Start, bool)> = Vec::new();
        for step in steps {
            match step {
                Step::Watch(name, wants) => {
                    let wants: Vec<Want> = wants.into_iter().map(any_want).collect();
                    let count = wants.len();
                    schedule.watch(&request(&name.to_string()), wants.clone(), now);
                    prop_assert_eq!(schedule.verdicts(&request(&name.to_string())).len(), count);
                    prop_assert!(schedule.watch(&request(&name.to_string()), wants, now).is_none(), "said again");
                }
                Step::Start => {
                    if let Next::Start(start) = schedule.next(now) {
                        let twice = flying.iter().any(|(f, _)| f.id == start.id && !f.cancel.is_cancelled());
                        prop_assert!(!twice, "two probes of one target in flight");
                        flying.push((start, true));
                    }
                }
                Step::Land(index) if !flying.is_empty() => {
                    let index = index % flying.len();
                    flying[index].1 = false;
                    schedule.land(flying[index].0.id, now);
                }
                Step::Finish(index, result) if !flying.is_empty() => {
                    let (start, _) = flying.swap_remove(index % flying.len());
                    let not_ready = ProbeResult::NotReady { reason: "Timeout", message: String::new() };
                    let result = result.map(|ready| if ready { ProbeResult::Connected } else { not_ready });
                    // A probe without a result is one that was cancelled.
                    let result = if start.cancel.is_cancelled() { None } else { result.or(Some(ProbeResult::Connected)) };
                    let heard = [None, Some(Heard::Answer), Some(Heard::Nothing)][usize::try_from(n % 3).unwrap()];
                    n += 1;
                    let (took, timeout) = (Duration::from_millis(200 * n), start.timeout);
                    schedule.finish(start.id, result.map(|result| Ended { result, heard, took, timeout }), now, 0.3);
                }
                Step::Land(_) | Step::Finish(..) => {}
                Step::Pass(milliseconds) => now += Duration::from_millis(milliseconds),
                Step::Hurry => drop(schedule.hurry(&request("db"), now)),
                Step::Reconfigure(rate, targets, period) => drop(schedule.reconfigure(limits(rate, targets, period), now)),
            }
            schedule.check();
            prop_assert_eq!(schedule.in_flight(), flying.iter().filter(|(_, has_slot)| *has_slot).count());
        }
    }
}
