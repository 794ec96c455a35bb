use super::*;

#[test]
fn the_end_of_a_log_is_quoted() {
    assert_eq!(last_lines(b"1\n2\n3\n4\n5\n6\n7\n"), "3\n4\n5\n6\n7");
    assert_eq!(last_lines(b"only"), "only");
    assert_eq!(last_lines(b""), "");
}

#[test]
fn only_a_condition_with_status_true_succeeds() {
    let object = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True"}, {"type": "Busy", "status": "False"},
    ]}})
    .to_string();
    assert!(condition(object.as_bytes(), "Ready").is_ok());
    assert!(condition(object.as_bytes(), "Busy").is_err(), "false is not true");
    assert!(condition(object.as_bytes(), "Other").is_err(), "absent is not true");
    assert!(condition(b"{}", "Ready").is_err(), "a new object has no status");
}
