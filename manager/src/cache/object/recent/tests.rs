use super::*;

/// Holds an object; returns the number of held objects and the sum of their bytes then.
fn hold(lists: &mut Lists, object: Arc<Decoded>, bytes: usize) -> (usize, usize) {
    lists.hold(object, bytes);
    (lists.held.len(), lists.bytes)
}

#[test]
fn the_oldest_object_is_dropped_when_there_are_too_many() {
    let mut lists = Lists::default();
    let first: Arc<Decoded> = Arc::new(0);
    hold(&mut lists, first.clone(), 1);
    for number in 1..HELD {
        hold(&mut lists, Arc::new(number), 1);
    }
    assert_eq!(Arc::strong_count(&first), 2);
    assert_eq!(hold(&mut lists, Arc::new("next"), 1), (HELD, HELD));
    assert_eq!(Arc::strong_count(&first), 1);
}

#[test]
fn a_large_object_displaces_several_and_a_huge_one_none() {
    let mut lists = Lists::default();
    for number in 0..4 {
        hold(&mut lists, Arc::new(number), BYTES / 4);
    }
    assert_eq!(hold(&mut lists, Arc::new("huge"), BYTES + 1), (4, BYTES));
    assert_eq!(hold(&mut lists, Arc::new("large"), BYTES / 2), (3, BYTES));
}
