use super::*;
use crate::key::{NamespacedName, Trigger};

impl<Q: Key> Slots<Q> {
    pub(in crate::queue) fn check(&self) {
        self.index.check(&self.pages);
    }
}

#[test]
fn a_removed_key_leaves_nothing_behind_and_its_slot_is_used_again() {
    let mut slots = Slots::new();
    let name: Arc<str> = "web".into();
    let insert = |slots: &mut Slots<NamespacedName>, key: NamespacedName| {
        slots.insert(slots.hash(&key), key, Cause::bare(Trigger::Generic))
    };
    let number = insert(&mut slots, NamespacedName::cluster(Arc::clone(&name)));
    assert_eq!(slots.find(&NamespacedName::cluster("web")), Some(number));
    slots.remove(number);
    assert_eq!((Arc::strong_count(&name), slots.len()), (1, 0));
    assert_eq!(insert(&mut slots, NamespacedName::cluster("api")), number);
    assert_eq!(slots.find(&NamespacedName::cluster("web")), None);
}

#[test]
fn a_slot_costs_at_most_80_bytes_beyond_its_key() {
    let size = size_of::<Option<Slot<NamespacedName>>>() - size_of::<NamespacedName>();
    assert!(size <= 80, "{size}");
}
