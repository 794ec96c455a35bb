use tokio::time::advance;

use super::*;

fn jobs(version: &str) -> GroupVersionKind {
    GroupVersionKind::gvk("batch", version, "Job")
}

fn served() -> Served {
    let id = KindId::new("batch", "v1", "Job", "jobs", true);
    HashMap::from([
        (jobs("v1"), Ok(id)),
        (GroupVersionKind::gvk("batch", "v1", "Odd"), Err(Trouble::NotNamespaced)),
    ])
}

/// Returns the next step for the kinds while checks need every kind, and groups as long as none of their
/// kinds is open.
fn next(kinds: &mut Kinds<u8>) -> Result<Step<u8>, Option<Instant>> {
    let is_open = kinds.get(&jobs("v1")).is_some();
    kinds.next(Instant::now(), |_| true, |_| !is_open)
}

fn discovers(kinds: &mut Kinds<u8>) -> bool {
    matches!(next(kinds), Ok(Step::Discover(group)) if group == "batch")
}

fn discovered(kinds: &mut Kinds<u8>, served: Result<Served, Trouble>) -> bool {
    kinds.discovered("batch", served, Instant::now())
}

fn open(kinds: &mut Kinds<u8>) -> Result<u8, Option<Trouble>> {
    kinds.open(&jobs("v1"), Instant::now()).copied()
}

fn opens(kinds: &mut Kinds<u8>) {
    let Ok(Step::Open(kind, id)) = next(kinds) else { panic!("it is served") };
    assert_eq!((&kind, id.plural()), (&jobs("v1"), "jobs"));
    assert_eq!(kinds.opened(&kind, 7), None);
}

/// Returns kinds of which one is open.
fn opened() -> Kinds<u8> {
    let mut kinds = Kinds::default();
    assert_eq!(open(&mut kinds), Err(None));
    assert!(discovers(&mut kinds));
    assert!(discovered(&mut kinds, Ok(served())));
    assert_eq!(open(&mut kinds), Err(None));
    opens(&mut kinds);
    kinds
}

#[tokio::test(start_paused = true)]
async fn a_group_is_discovered_again_until_the_kind_is_served() {
    let mut kinds = Kinds::<u8>::default();
    assert_eq!(open(&mut kinds), Err(None));
    assert!(discovers(&mut kinds), "at once");
    assert!(!discovers(&mut kinds), "once at a time");
    assert!(discovered(&mut kinds, Ok(Served::new())));
    assert_eq!(open(&mut kinds), Err(Some(Trouble::NotServed)));
    advance(RETRY.saturating_sub(Duration::from_millis(1))).await;
    assert!(!discovers(&mut kinds));
    advance(Duration::from_millis(1)).await;
    assert!(discovers(&mut kinds));
    assert!(!discovered(&mut kinds, Ok(Served::new())), "no news");
    assert!(discovered(&mut kinds, Ok(served())));
    assert_eq!(open(&mut kinds), Err(None));
    opens(&mut kinds);
    assert_eq!(open(&mut kinds), Ok(7));
    assert!(matches!(next(&mut kinds), Err(None)));
}

#[tokio::test(start_paused = true)]
async fn versions_cost_no_discovery_of_their_own() {
    let mut kinds = Kinds::<u8>::default();
    let (mut requests, began) = (0, Instant::now());
    for number in 0..1_000 {
        // Two hours, with a check of a new version every seven seconds.
        advance(Duration::from_millis(7_200)).await;
        let _unknown = kinds.open(&jobs(&format!("v{}", number + 2)), Instant::now()).is_err();
        if let Ok(Step::Discover(_)) = next(&mut kinds) {
            requests += 1;
            discovered(&mut kinds, Ok(served()));
        }
    }
    let most = began.elapsed().as_secs() / RETRY.as_secs() + 1;
    assert!(requests <= most, "{requests} requests, expected at most {most}");
    assert_eq!(open(&mut kinds), Err(None));
    opens(&mut kinds);
}

#[tokio::test(start_paused = true)]
async fn versions_that_are_not_served_take_no_room() {
    let mut kinds = opened();
    for number in 0..50_000 {
        let version = jobs(&format!("v1x{number}"));
        assert_eq!(kinds.open(&version, Instant::now()), Err(Some(Trouble::NotServed)));
    }
    assert_eq!((kinds.slots.len(), kinds.groups.len()), (1, 1), "a step walks these");
    let mut undiscovered = Kinds::<u8>::default();
    for number in 0..50_000 {
        let version = jobs(&format!("v1x{number}"));
        assert_eq!(undiscovered.open(&version, Instant::now()), Err(None));
    }
    assert_eq!((undiscovered.slots.len(), undiscovered.groups.len()), (0, 1), "also before the answer");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_has_a_reason() {
    let mut kinds = Kinds::<u8>::default();
    let odd = GroupVersionKind::gvk("batch", "v1", "Odd");
    let unknown = Trouble::Unknown("there is no connection".to_owned());
    for (found, trouble) in [(Ok(served()), Trouble::NotNamespaced), (Err(unknown.clone()), unknown)] {
        assert!(kinds.open(&odd, Instant::now()).is_err());
        discovered(&mut kinds, found);
        assert_eq!(kinds.open(&odd, Instant::now()), Err(Some(trouble)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unneeded_kind_is_closed_after_a_while() {
    let mut kinds = opened();
    let unneeded = |kinds: &mut Kinds<u8>| kinds.next(Instant::now(), |_| false, |_| false);
    let Err(Some(until)) = unneeded(&mut kinds) else { panic!("its time has an end") };
    assert_eq!(until, Instant::now() + LINGER);
    advance(LINGER / 2).await;
    assert!(matches!(next(&mut kinds), Err(None)), "a check needs it again");
    advance(LINGER / 2).await;
    assert!(matches!(unneeded(&mut kinds), Err(Some(_))), "the time begins anew");
    advance(LINGER).await;
    assert!(matches!(unneeded(&mut kinds), Ok(Step::Close(7))));
    assert_eq!(kinds.get(&jobs("v1")), None);
    assert_eq!(kinds.opened(&jobs("v1"), 8), Some(8), "too late");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_not_opened_by_an_old_answer() {
    let mut kinds = opened();
    let _until = kinds.next(Instant::now(), |_| false, |_| false);
    advance(LINGER).await;
    assert!(matches!(kinds.next(Instant::now(), |_| false, |_| false), Ok(Step::Close(7))));
    assert_eq!(open(&mut kinds), Err(None));
    assert!(discovers(&mut kinds), "the answer is too old");
    assert!(discovered(&mut kinds, Ok(Served::new())));
    assert_eq!(open(&mut kinds), Err(Some(Trouble::NotServed)), "its definition is gone");
}

#[tokio::test(start_paused = true)]
async fn an_equal_answer_is_news_to_a_check_that_waits_for_it() {
    let mut kinds = opened();
    let _until = kinds.next(Instant::now(), |_| false, |_| false);
    advance(LINGER).await;
    let _until = kinds.next(Instant::now(), |_| false, |_| false);
    assert_eq!(open(&mut kinds), Err(None));
    assert!(discovers(&mut kinds));
    assert!(discovered(&mut kinds, Ok(served())), "else the check would wait without end");
    assert_eq!(open(&mut kinds), Err(None));
    opens(&mut kinds);
}
