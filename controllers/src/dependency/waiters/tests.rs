use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_last_list_of_each_request_counts(steps in vec((0..4_u8, vec(0..5_u8, 0..4)), 0..40)) {
        let (mut waiters, mut model) = (Waiters::default(), BTreeMap::new());
        for (name, subjects) in steps {
            let request = NamespacedName::namespaced("shop", name.to_string());
            if subjects.len() == 3 {
                waiters.forget(&request);
                model.remove(&request);
            } else {
                waiters.set(&request, subjects.clone());
                model.insert(request, subjects);
            }
            for subject in 0..5 {
                let waiting: BTreeSet<_> = waiters.of(&subject).into_iter().collect();
                let expected = model.iter().filter(|(_, subjects)| subjects.contains(&subject));
                prop_assert_eq!(waiting, expected.map(|(request, _)| request.clone()).collect());
            }
            let subjects: BTreeSet<_> = model.values().flatten().collect();
            prop_assert_eq!(waiters.by_subject.len(), subjects.len(), "a subject without waiters is removed");
            let waiting = model.values().filter(|subjects| !subjects.is_empty()).count();
            prop_assert_eq!(waiters.by_request.len(), waiting, "a request without subjects is removed");
        }
    }
}
