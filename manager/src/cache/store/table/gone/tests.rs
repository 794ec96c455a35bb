use super::*;

fn uid(text: &str) -> Uid {
    Uid::new(text)
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

#[test]
fn what_was_before_a_deletion_is_known_and_what_came_after_is_not() {
    let mut gone = Gone::default();
    gone.note(&uid("u1"), &version(5), 1);
    gone.note(&uid("u1"), &version(4), 1);
    assert!(gone.had(&uid("u1"), &version(5)) && gone.had(&uid("u1"), &version(1)));
    assert!(!gone.had(&uid("u1"), &version(6)), "it entered the selection again");
    assert!(!gone.had(&uid("u2"), &version(1)));
    assert!(!gone.had(&uid("u1"), &ResourceVersion::new("opaque")), "nothing is known about its order");
}

#[test]
fn a_deletion_at_a_version_nobody_knows_ends_them_all_but_for_a_list_that_began_later() {
    let mut gone = Gone::default();
    gone.note(&uid("u1"), &version(5), 1);
    gone.note_for_good(&uid("u1"), 2);
    gone.note(&uid("u1"), &version(7), 2);
    assert!(gone.had(&uid("u1"), &version(9)) && gone.had(&uid("u1"), &ResourceVersion::new("opaque")));
    assert!(
        gone.had_before_list(2, &uid("u1"), &version(9)) && !gone.had_before_list(3, &uid("u1"), &version(9))
    );
    assert!(!gone.had(&uid("u1"), &version(9)) && gone.uids.order.is_empty(), "it is there after all");
}

#[test]
fn however_many_go_only_the_last_are_remembered() {
    let mut gone = Gone::default();
    for number in 0..10_000_u64 {
        gone.note(&uid(&format!("u{number}")), &version(number), 1);
    }
    assert_eq!((gone.uids.order.len(), gone.uids.reached.len()), (REMEMBERED, REMEMBERED));
    assert!(gone.had(&uid("u9999"), &version(1)) && !gone.had(&uid("u1"), &version(1)));
}
