use super::*;

const LONG: Duration = Duration::from_hours(1);

#[test]
fn a_candidate_may_not_write_until_extended() {
    let fence = Fence::closed();
    assert!(!fence.is_open());
    fence.extend(BootInstant::now() + LONG);
    assert!(fence.is_open() && fence.pass().admits());
}

#[test]
fn a_fence_with_an_end_in_the_past_is_closed() {
    let fence = Fence::closed();
    fence.extend(BootInstant::from_boot(Duration::from_nanos(1)));
    assert!(!fence.is_open());
}

#[test]
fn a_pass_of_an_ended_term_stays_invalid_after_reopening() {
    let fence = Fence::open();
    let old = fence.pass();
    assert!(old.admits());
    fence.close();
    fence.extend(BootInstant::now() + LONG);
    assert!(!old.admits(), "the old term has ended");
    assert!(fence.pass().admits(), "a new pass is valid for the new term");
}

#[tokio::test]
async fn closing_wakes_waiting_passes() {
    let fence = Fence::open();
    let pass = fence.pass();
    let waiting = tokio::task::JoinSet::from_iter([pass.revoked()]);
    fence.close();
    waiting.join_all().await;
}
