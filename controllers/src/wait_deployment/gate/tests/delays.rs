//! How long a gate has been closed, for the initial delays of checks.

use super::*;

#[test]
fn a_delay_counts_from_the_closing_of_the_gate_and_not_from_the_start_of_a_manager() {
    let minute = Duration::from_mins(1);
    let closed_for = |scenario: &Scenario| {
        let plan = scenario.object.plan().unwrap();
        super::super::closed_for(&scenario.object, &plan, at(scenario.now))
    };
    for (others, once_open) in [
        (json!({}), Duration::MAX),
        // Dependencies are not checked while the gate is open, so a gate that closes later closes now.
        (json!({"onLoss": "Ignore", "gates": ["Create", "Update"]}), Duration::ZERO),
    ] {
        let mut scenario = Scenario::new(wait_for(&["db"], &others), &[]);
        assert_eq!(closed_for(&scenario), Duration::ZERO);
        scenario.step(1_000, &[unknown()]);
        scenario.now = 1_060;
        assert_eq!(closed_for(&scenario), minute, "another manager reads the time from the status");
        scenario.now = 900;
        assert_eq!(closed_for(&scenario), Duration::ZERO, "the clock was set back");
        scenario.step(1_100, &[ready()]);
        scenario = scenario.running();
        scenario.step(1_200, &[ready()]);
        assert_eq!(closed_for(&scenario), once_open, "{others}");
    }
}
