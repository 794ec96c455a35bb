//! For how long a gate has been closed, as far as delays go.

use super::*;

#[test]
fn a_delay_begins_with_the_closing_of_the_gate_and_not_with_a_manager() {
    let minute = Duration::from_mins(1);
    let closed_for = |stage: &Stage| {
        let plan = stage.object.plan().unwrap();
        super::super::closed_for(&stage.object, &plan, at(stage.now))
    };
    for (others, once_open) in [
        (json!({}), Duration::MAX),
        // Nobody looks while it is open: a gate that closes then has just closed.
        (json!({"onLoss": "Ignore", "gates": ["Create", "Update"]}), Duration::ZERO),
    ] {
        let mut stage = Stage::new(wait_for(&["db"], &others), &[]);
        assert_eq!(closed_for(&stage), Duration::ZERO);
        stage.step(1_000, &[unknown()]);
        stage.now = 1_060;
        assert_eq!(closed_for(&stage), minute, "another manager reads it from the status");
        stage.now = 900;
        assert_eq!(closed_for(&stage), Duration::ZERO, "the clock was set back");
        stage.step(1_100, &[ready()]);
        stage = stage.running();
        stage.step(1_200, &[ready()]);
        assert_eq!(closed_for(&stage), once_open, "{others}");
    }
}
