use super::*;

impl Slots {
    /// Panics at the first invariant of the slots that does not hold. Returns the number of held slots.
    pub(in crate::dependency::probe) fn check(&self) -> usize {
        let state = self.state.lock();
        let held: usize = state.held.iter().sum();
        assert_eq!(usize::try_from(self.in_flight.get()), Ok(held));
        for class in 0..CLASSES {
            let of_namespaces: usize = state.namespaces.values().map(|namespace| namespace.held[class]).sum();
            assert_eq!(state.held[class], of_namespaces);
            let together: usize = state.held[class..].iter().sum();
            assert!(together <= state.limits[class], "class {class} and those after it");
        }
        for (name, namespace) in &state.namespaces {
            let times = state.order.iter().filter(|other| *other == name).count();
            assert_eq!(times, usize::from(namespace.is_in_order), "{name} in the order");
            assert!(
                namespace.is_in_order || namespace.waiting.iter().all(VecDeque::is_empty),
                "{name} is left out"
            );
        }
        held
    }
}
