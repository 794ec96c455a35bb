use super::*;

/// Adds an object; returns the number of held objects and the sum of their bytes then.
fn hold(all: &mut VecDeque<Known>, object: Arc<Decoded>, bytes: usize) -> (usize, usize) {
    add(all, Weak::new(), TypeId::of::<()>(), object, bytes);
    let held = all.iter().filter(|known| known.held.is_some()).map(|known| known.bytes);
    (held.clone().count(), held.sum())
}

#[test]
fn the_oldest_object_is_dropped_when_there_are_too_many() {
    let mut all = VecDeque::new();
    let first: Arc<Decoded> = Arc::new(0);
    hold(&mut all, first.clone(), 1);
    for number in 1..HELD {
        hold(&mut all, Arc::new(number), 1);
    }
    assert_eq!(Arc::strong_count(&first), 2);
    assert_eq!(hold(&mut all, Arc::new("next"), 1), (HELD, HELD));
    assert_eq!(Arc::strong_count(&first), 1);
}

#[test]
fn a_large_object_displaces_several_and_a_huge_one_none() {
    let mut all = VecDeque::new();
    for number in 0..4 {
        hold(&mut all, Arc::new(number), BYTES / 4);
    }
    assert_eq!(hold(&mut all, Arc::new("huge"), BYTES + 1), (4, BYTES));
    assert_eq!(hold(&mut all, Arc::new("large"), BYTES / 2), (3, BYTES));
}
