use tokio::time::advance;

use super::*;

#[tokio::test(start_paused = true)]
async fn reasons_that_take_turns_are_told_once_a_minute_and_that_a_kind_is_gone_at_once() {
    let counts = Counts::new(&[None]);
    let mut told = Vec::new();
    for round in 0..49_u64 {
        let reason = if round % 2 == 0 { "refused" } else { "closed" };
        if counts.down(0, reason.to_owned(), false) {
            told.push((round, reason));
        }
        advance(Duration::from_millis(2_500)).await;
    }
    assert_eq!(told, [(0, "refused"), (25, "closed")]);
    assert!(!counts.down(0, "closed".to_owned(), false), "it goes on");
    assert!(counts.down(0, "403".to_owned(), true), "that is for somebody to act");
    assert!(!counts.down(0, "404".to_owned(), true));
    counts.up(0);
    assert!(counts.down(0, "404".to_owned(), false), "another outage");
}
