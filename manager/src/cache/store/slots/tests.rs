use super::*;
use crate::cache::tests::fixtures::{request, view};

fn names(slots: &Slots, first: Number) -> Vec<&str> {
    slots.from(first).map(|(_, slot)| slot.view.meta().name()).collect()
}

#[test]
fn a_shrinking_store_frees_pages_and_reuses_the_lowest_slots_first() {
    let mut slots = Slots::default();
    for at in 0..3 * PAGE as u64 {
        slots.insert(view(&format!("o{at}"), "u", 5));
    }
    for at in PAGE as u64..3 * PAGE as u64 {
        let number = slots.find(&request(&format!("o{at}"))).unwrap();
        slots.remove(number).unwrap();
    }
    let page = u32::try_from(PAGE).unwrap();
    assert_eq!((slots.len(), names(&slots, page - 1)), (PAGE, vec!["o255"]));
    assert!(slots.pages[1..].iter().all(|page| page.slots.capacity() == 0));
    assert_eq!(slots.insert(view("late", "u", 5)), page);
    assert_eq!(names(&slots, page), ["late"]);
    assert_eq!(slots.find(&request("o300")), None);
}
