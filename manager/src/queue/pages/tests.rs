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
fn empty_pages_are_freed_except_the_spare_ones() {
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
fn unused_memory_is_left_to_the_caller_to_free() {
    let spare = 64 * u32::try_from(SPARE).unwrap();
    let mut pages = filled(spare + 128);
    for number in 0..spare {
        pages.remove(number);
    }
    assert!(pages.take_unused().is_empty(), "the spare pages keep their memory");
    for number in spare..spare + 64 {
        pages.remove(number);
    }
    let unused = pages.take_unused();
    assert_eq!(unused.iter().map(|page| page.places.len()).collect::<Vec<_>>(), [64]);
    assert!(pages.take_unused().is_empty());
}

#[test]
fn values_keep_their_numbers_while_others_are_inserted_and_removed() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut pages = Pages::new();
    let mut stored = Vec::new();
    for step in 0..50_000_u32 {
        // Mostly up, then mostly down.
        if random.u32(0..100) < if step % 10_000 < 5000 { 80 } else { 20 } {
            stored.push((pages.insert(step), step));
        } else if !stored.is_empty() {
            let (number, value) = stored.swap_remove(random.usize(0..stored.len()));
            assert_eq!(pages.get(number), Some(&value));
            pages.remove(number);
        }
        assert_eq!(pages.len(), stored.len());
    }
    assert!(stored.iter().all(|(number, value)| pages.get(*number) == Some(value)));
}
