use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn who_waits_is_who_said_so_last(steps in vec((0..4_u8, vec(0..5_u8, 0..4)), 0..40)) {
        let (mut waiters, mut model) = (Waiters::default(), BTreeMap::new());
        for (name, things) in steps {
            let request = NamespacedName::namespaced("shop", name.to_string());
            if things.len() == 3 {
                waiters.forget(&request);
                model.remove(&request);
            } else {
                waiters.set(&request, things.clone());
                model.insert(request, things);
            }
            for thing in 0..5 {
                let waiting: BTreeSet<_> = waiters.of(&thing).into_iter().collect();
                let expected = model.iter().filter(|(_, things)| things.contains(&thing));
                prop_assert_eq!(waiting, expected.map(|(request, _)| request.clone()).collect());
            }
            let things: BTreeSet<_> = model.values().flatten().collect();
            prop_assert_eq!(waiters.by_thing.len(), things.len(), "nothing is kept for nobody");
            let waiting = model.values().filter(|things| !things.is_empty()).count();
            prop_assert_eq!(waiters.by_request.len(), waiting, "nor of those who wait for nothing");
        }
    }
}
