//! The list after a condition has been set.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::set_condition;

fn condition(type_: &str, status: &str, reason: &str, second: i64) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: reason.into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::from_second(second).unwrap()),
    }
}

#[test]
fn the_time_changes_with_the_status_only_and_other_conditions_stay() {
    let paused = condition("Paused", "False", "None", 6);
    let mut conditions = vec![condition("Ready", "False", "Starting", 5), paused.clone()];
    set_condition(&mut conditions, condition("Ready", "False", "Slow", 9));
    assert_eq!(conditions, [condition("Ready", "False", "Slow", 5), paused.clone()]);
    set_condition(&mut conditions, condition("Ready", "True", "AllReady", 10));
    set_condition(&mut conditions, condition("Synced", "True", "Read", 11));
    let synced = condition("Synced", "True", "Read", 11);
    assert_eq!(conditions, [condition("Ready", "True", "AllReady", 10), paused, synced]);
}
