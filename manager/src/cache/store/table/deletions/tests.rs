use super::*;
use crate::cache::tests::fixtures::view;

fn uid(text: &str) -> Uid {
    Uid::new(text)
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn meta(uid: &Uid, version: &ResourceVersion) -> Meta {
    Meta { uid: uid.clone(), resource_version: version.clone(), ..view("a", "", 1).meta().clone() }
}

fn covers(deletions: &Deletions, uid: &Uid, version: &ResourceVersion) -> bool {
    deletions.outdate(&meta(uid, version))
}

fn covers_listed(deletions: &mut Deletions, epoch: u64, uid: &Uid, version: &ResourceVersion) -> bool {
    deletions.outdate_listed(epoch, &meta(uid, version))
}

#[test]
fn versions_up_to_a_deletion_are_covered_and_later_ones_are_not() {
    let mut deletions = Deletions::default();
    deletions.note(&uid("u1"), &version(5), 1);
    deletions.note(&uid("u1"), &version(4), 1);
    assert!(covers(&deletions, &uid("u1"), &version(5)) && covers(&deletions, &uid("u1"), &version(1)));
    assert!(!covers(&deletions, &uid("u1"), &version(6)), "a version that re-entered the selection");
    assert!(!covers(&deletions, &uid("u2"), &version(1)));
    assert!(!covers(&deletions, &uid("u1"), &ResourceVersion::new("opaque")), "its order is unknown");
}

#[test]
fn a_deletion_at_an_unknown_version_covers_all_versions_until_a_later_list() {
    let mut deletions = Deletions::default();
    deletions.note(&uid("u1"), &version(5), 1);
    deletions.note_at_unknown_version(&uid("u1"), 2);
    deletions.note(&uid("u1"), &version(7), 2);
    assert!(
        covers(&deletions, &uid("u1"), &version(9))
            && covers(&deletions, &uid("u1"), &ResourceVersion::new("opaque"))
    );
    assert!(
        covers_listed(&mut deletions, 2, &uid("u1"), &version(9))
            && !covers_listed(&mut deletions, 3, &uid("u1"), &version(9))
    );
    assert!(
        !covers(&deletions, &uid("u1"), &version(9)) && deletions.uids.order.is_empty(),
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
    assert!(covers(&deletions, &uid("u9999"), &version(1)) && !covers(&deletions, &uid("u1"), &version(1)));
}
