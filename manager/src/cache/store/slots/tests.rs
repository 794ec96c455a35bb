use super::*;
use crate::cache::tests::fixtures::{request, view};

fn names(slots: &Slots, first: Number) -> Vec<&str> {
    slots.from(first).map(|(_, slot)| slot.view.meta().name()).collect()
}

#[test]
fn a_shrinking_store_frees_memory_and_reuses_the_lowest_slots_first() {
    let mut slots = Slots::default();
    for at in 0..768 {
        slots.insert(view(&format!("o{at}"), "u", 5));
    }
    for at in 256..768 {
        let (number, _) = slots.lookup(&request(&format!("o{at}"))).unwrap();
        slots.remove(number).unwrap();
    }
    assert_eq!((slots.len(), names(&slots, 255)), (256, vec!["o255"]));
    assert_eq!(slots.by_number.capacity(), 256);
    assert_eq!(slots.insert(view("late", "u", 5)), 256);
    assert_eq!(names(&slots, 256), ["late"]);
    assert!(slots.lookup(&request("o300")).is_none());
}
