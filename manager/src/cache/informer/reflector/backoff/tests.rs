use super::*;

#[test]
fn delays_double_from_the_base_and_stay_below_the_maximum() {
    let mut low = Backoff::default();
    let delays: Vec<f64> = (0..7).map(|_| low.after_error(0.0).as_secs_f64()).collect();
    assert_eq!(delays, [0.8, 1.6, 3.2, 6.4, 12.8, 20.0, 20.0]);
    let mut high = Backoff { errors: u32::MAX - 1, ..Backoff::default() };
    assert!(high.after_error(0.999).max(high.after_error(0.999)) < MAX);
    high.reset();
    assert_eq!(high.after_error(0.0), BASE);
}

#[test]
fn requests_without_a_response_are_retried_every_few_seconds_and_lengthen_no_other_delay() {
    let mut backoff = Backoff::default();
    let delays: Vec<f64> = (0..5).map(|_| backoff.after_no_response(0.0).as_secs_f64()).collect();
    assert_eq!(delays, [0.8, 1.6, 2.0, 2.0, 2.0]);
    backoff.no_responses = u32::MAX;
    assert!(backoff.after_no_response(0.999) < MAX_NO_RESPONSE);
    assert_eq!(backoff.after_error(0.0), BASE);
}
