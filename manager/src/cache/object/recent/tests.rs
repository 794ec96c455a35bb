use super::*;

/// Holds an object and returns how many are held then, and of how many bytes.
fn hold(lists: &mut Lists, object: Arc<Decoded>, bytes: usize) -> (usize, usize) {
    lists.hold(object, bytes);
    (lists.held.len(), lists.bytes)
}

#[test]
fn the_oldest_goes_when_there_are_too_many() {
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
fn a_large_object_takes_the_place_of_many_and_a_huge_one_of_none() {
    let mut lists = Lists::default();
    for number in 0..4 {
        hold(&mut lists, Arc::new(number), BYTES / 4);
    }
    assert_eq!(hold(&mut lists, Arc::new("huge"), BYTES + 1), (4, BYTES));
    assert_eq!(hold(&mut lists, Arc::new("large"), BYTES / 2), (3, BYTES));
}
