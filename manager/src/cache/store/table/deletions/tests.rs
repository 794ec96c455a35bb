use super::*;

fn uid(text: &str) -> Uid {
    Uid::new(text)
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

#[test]
fn versions_up_to_a_deletion_are_covered_and_later_ones_are_not() {
    let mut deletions = Deletions::default();
    deletions.note(&uid("u1"), &version(5), 1);
    deletions.note(&uid("u1"), &version(4), 1);
    assert!(deletions.covers(&uid("u1"), &version(5)) && deletions.covers(&uid("u1"), &version(1)));
    assert!(!deletions.covers(&uid("u1"), &version(6)), "a version that re-entered the selection");
    assert!(!deletions.covers(&uid("u2"), &version(1)));
    assert!(!deletions.covers(&uid("u1"), &ResourceVersion::new("opaque")), "its order is unknown");
}

#[test]
fn a_deletion_at_an_unknown_version_covers_all_versions_until_a_later_list() {
    let mut deletions = Deletions::default();
    deletions.note(&uid("u1"), &version(5), 1);
    deletions.note_at_unknown_version(&uid("u1"), 2);
    deletions.note(&uid("u1"), &version(7), 2);
    assert!(
        deletions.covers(&uid("u1"), &version(9))
            && deletions.covers(&uid("u1"), &ResourceVersion::new("opaque"))
    );
    assert!(
        deletions.covers_listed(2, &uid("u1"), &version(9))
            && !deletions.covers_listed(3, &uid("u1"), &version(9))
    );
    assert!(
        !deletions.covers(&uid("u1"), &version(9)) && deletions.uids.order.is_empty(),
        "forgotten for a later list"
    );
}

#[test]
fn only_the_latest_deletions_are_remembered() {
    let mut deletions = Deletions::default();
    for number in 0..10_000_u64 {
        deletions.note(&uid(&format!("u{number}")), &version(number), 1);
    }
    assert_eq!((deletions.uids.order.len(), deletions.uids.reached.len()), (REMEMBERED, REMEMBERED));
    assert!(deletions.covers(&uid("u9999"), &version(1)) && !deletions.covers(&uid("u1"), &version(1)));
}
