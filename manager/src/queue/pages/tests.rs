use super::*;

fn pages_in_memory<T>(pages: &Pages<T>) -> usize {
    pages.list.iter().filter(|page| !page.places.is_empty()).count()
}

fn filled(count: u32) -> Pages<u32> {
    let mut pages = Pages::new();
    for number in 0..count {
        assert_eq!(pages.insert(number), number);
    }
    pages
}

#[test]
fn a_free_place_is_used_again_before_a_new_page_is_made() {
    let mut pages = filled(200);
    pages.remove(70);
    pages.remove(70);
    assert_eq!((pages.get(70), pages.len()), (None, 199));
    assert_eq!(pages.insert(7), 70);
    assert_eq!(pages.get(70), Some(&7));
    assert_eq!(pages.insert(8), 200);
}

#[test]
fn empty_pages_are_given_back_but_for_some() {
    let mut pages = filled(64 * 1000);
    for number in 64..64 * 1000 {
        pages.remove(number);
    }
    assert_eq!((pages_in_memory(&pages), pages.len()), (1 + SPARE, 64));
    for number in 0..64 {
        pages.remove(number);
    }
    assert_eq!((pages_in_memory(&pages), pages.end()), (0, 0));
}

#[test]
fn memory_that_is_given_up_is_freed_by_whoever_takes_it() {
    let spare = 64 * u32::try_from(SPARE).unwrap();
    let mut pages = filled(spare + 128);
    for number in 0..spare {
        pages.remove(number);
    }
    assert!(pages.take_emptied().is_none(), "what is empty so far is kept");
    for number in spare..spare + 64 {
        pages.remove(number);
    }
    assert!(matches!(pages.take_emptied(), Some(Emptied::Places { .. })));
    assert!(pages.take_emptied().is_none());
}

#[test]
fn things_keep_their_numbers_while_others_come_and_go() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut pages = Pages::new();
    let mut there = Vec::new();
    for step in 0..50_000_u32 {
        // Mostly up, then mostly down.
        if random.u32(0..100) < if step % 10_000 < 5000 { 80 } else { 20 } {
            there.push((pages.insert(step), step));
        } else if !there.is_empty() {
            let (number, thing) = there.swap_remove(random.usize(0..there.len()));
            assert_eq!(pages.get(number), Some(&thing));
            pages.remove(number);
        }
        assert_eq!(pages.len(), there.len());
    }
    assert!(there.iter().all(|(number, thing)| pages.get(*number) == Some(thing)));
}
