use super::*;

#[test]
fn waits_double_from_the_base_and_stay_below_the_maximum() {
    let mut low = Backoff::default();
    let waits: Vec<f64> = (0..7).map(|_| low.after_answer(0.0).as_secs_f64()).collect();
    assert_eq!(waits, [0.8, 1.6, 3.2, 6.4, 12.8, 20.0, 20.0]);
    let mut high = Backoff { answers: u32::MAX - 1, ..Backoff::default() };
    assert!(high.after_answer(0.999).max(high.after_answer(0.999)) < MAX);
    high.reset();
    assert_eq!(high.after_answer(0.0), BASE);
}

#[test]
fn who_does_not_answer_is_asked_every_few_seconds_and_begins_anew_once_it_does() {
    let mut backoff = Backoff::default();
    let waits: Vec<f64> = (0..5).map(|_| backoff.after_silence(0.0).as_secs_f64()).collect();
    assert_eq!(waits, [0.8, 1.6, 2.0, 2.0, 2.0]);
    backoff.silences = u32::MAX;
    assert!(backoff.after_silence(0.999) < MAX_UNANSWERED);
    assert_eq!(backoff.after_answer(0.0), BASE);
}
