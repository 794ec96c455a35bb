use tokio::time::advance;

use super::*;

#[tokio::test(start_paused = true)]
async fn alternating_errors_are_logged_once_a_minute_and_an_absent_kind_at_once() {
    let counts = Counts::new(&[None]);
    let mut logged = Vec::new();
    for round in 0..49_u64 {
        let reason = if round % 2 == 0 { "refused" } else { "closed" };
        if counts.down(0, reason.to_owned(), false) {
            logged.push((round, reason));
        }
        advance(Duration::from_millis(2_500)).await;
    }
    assert_eq!(logged, [(0, "refused"), (25, "closed")]);
    assert!(!counts.down(0, "closed".to_owned(), false), "the same error again");
    assert!(counts.down(0, "403".to_owned(), true), "the kind is absent now");
    assert!(!counts.down(0, "404".to_owned(), true));
    counts.up(0);
    assert!(counts.down(0, "404".to_owned(), false), "a new outage");
}
