//! Indexes from values to slots, so that the cost of a list depends on its result and not on the size of the
//! store.
//!
//! The indexes by namespace and by owner uid always exist. Indexes by label and by function are added on
//! request, at any time; those by function can be removed again. This is plain data under the lock of the
//! store; index functions are called earlier, outside the lock.
//!
//! # Invariants
//! 1. A complete index contains exactly the slots with the value in their stored version; empty buckets are
//!    removed.
//! 2. An incomplete index is updated like a complete one, but not used for reads.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::cache::object::{Meta, Uid};
use crate::cache::store::{IndexFunction, LabelSelector, Number, Select};

/// The index values of one version of an object: one list per index function, in the order of declaration.
pub(crate) type Values = Box<[Box<[Arc<str>]>]>;

/// All indexes of one store.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    /// The slots by namespace. The key of cluster-scoped objects is the empty string.
    namespaces: Buckets<Arc<str>>,
    owners: Buckets<Uid>,
    labels: Vec<LabelIndex>,
    functions: Vec<FunctionIndex>,
}

/// The slots of objects by index value. Empty buckets are removed.
type Buckets<V> = HashMap<V, Bucket>;

/// A set of slot numbers. Most owners have one child and many labels occur once, so a single slot needs no
/// allocation.
#[derive(Debug)]
pub(crate) enum Bucket {
    One(Number),
    Many(BTreeSet<Number>),
}

/// The index of one label key: the slots of the objects by the value of this label.
#[derive(Debug)]
pub(crate) struct LabelIndex {
    key: Box<str>,
    /// Whether the index contains the objects that were stored before the index was added.
    pub(crate) complete: bool,
    /// The slots of all objects that have the label, with any value.
    with_key: Bucket,
    values: Buckets<Arc<str>>,
}

/// The index of one index function: the slots of the objects by the values that the function returns.
#[derive(Debug)]
pub(crate) struct FunctionIndex {
    /// The index function. Identified by its address: several store handles may use the same name.
    function: Arc<IndexFunction>,
    /// Whether the index covers every stored object; before that it is updated and not used for reads.
    pub(crate) complete: bool,
    buckets: Buckets<Arc<str>>,
    /// The index values of the object in each slot, so that a slot can be removed without another call of the
    /// function.
    by_slot: HashMap<Number, Box<[Arc<str>]>>,
}

/// The slots of a store that a list has to visit.
#[derive(Debug)]
pub(crate) enum Plan<'t> {
    /// The list visits all slots of the store.
    Everything,
    /// The list visits the slots of one index value or of one label key.
    Bucket(&'t Bucket),
    /// The list visits the slots of any of several index values; of none if the vector is empty.
    Buckets(Vec<&'t Bucket>),
}

// === impl Indexes ===

impl Indexes {
    pub(crate) fn insert(&mut self, number: Number, meta: &Meta, values: Values) {
        add(&mut self.namespaces, meta.namespace().unwrap_or_default(), number);
        for owner in meta.owners.iter() {
            add(&mut self.owners, &owner.uid, number);
        }
        for index in &mut self.labels {
            index.insert(number, meta);
        }
        self.set_values(number, values);
    }

    pub(crate) fn remove(&mut self, number: Number, meta: &Meta) {
        take(&mut self.namespaces, meta.namespace().unwrap_or_default(), number);
        for owner in meta.owners.iter() {
            take(&mut self.owners, &owner.uid, number);
        }
        for index in &mut self.labels {
            index.remove(number, meta);
        }
        for index in &mut self.functions {
            index.remove(number);
        }
    }

    /// Updates the indexes for a new version of the object in slot `number`. Most changes affect no index and
    /// cost no update.
    pub(crate) fn replace(&mut self, number: Number, old: &Meta, new: &Meta, values: Values) {
        if old.owners != new.owners {
            for owner in old.owners.iter() {
                take(&mut self.owners, &owner.uid, number);
            }
            for owner in new.owners.iter() {
                add(&mut self.owners, &owner.uid, number);
            }
        }
        for index in &mut self.labels {
            if old.labels.get(&index.key) != new.labels.get(&index.key) {
                index.remove(number, old);
                index.insert(number, new);
            }
        }
        self.set_values(number, values);
    }

    fn set_values(&mut self, number: Number, values: Values) {
        for (index, values) in self.functions.iter_mut().zip(values) {
            index.put(number, values);
        }
    }

    /// Adds an empty index by function behind the existing ones; returns false if there is one of this
    /// function.
    pub(crate) fn add_function(&mut self, function: &Arc<IndexFunction>) -> bool {
        let fresh = self.function(function).is_none();
        if fresh {
            let (function, buckets, by_slot) = (Arc::clone(function), HashMap::new(), HashMap::new());
            self.functions.push(FunctionIndex { function, complete: false, buckets, by_slot });
        }
        fresh
    }

    /// Removes the index of a function and returns it: the caller drops it outside the lock, because it may
    /// be large and contains user code.
    pub(crate) fn remove_function(&mut self, function: &Arc<IndexFunction>) -> Option<FunctionIndex> {
        let at = self.functions.iter().position(|index| Arc::ptr_eq(&index.function, function))?;
        Some(self.functions.remove(at))
    }

    fn function(&self, function: &Arc<IndexFunction>) -> Option<&FunctionIndex> {
        self.functions.iter().find(|index| Arc::ptr_eq(&index.function, function))
    }

    pub(crate) fn function_mut(&mut self, function: &Arc<IndexFunction>) -> Option<&mut FunctionIndex> {
        self.functions.iter_mut().find(|index| Arc::ptr_eq(&index.function, function))
    }

    /// Adds an empty index of a label key; returns false if there is one of this key.
    pub(crate) fn add_label(&mut self, key: &str) -> bool {
        let fresh = self.label_mut(key).is_none();
        if fresh {
            let (with_key, values) = (Bucket::Many(BTreeSet::new()), HashMap::new());
            self.labels.push(LabelIndex { key: key.into(), complete: false, with_key, values });
        }
        fresh
    }

    pub(crate) fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|index| &*index.key)
    }

    pub(crate) fn label_mut(&mut self, key: &str) -> Option<&mut LabelIndex> {
        self.labels.iter_mut().find(|index| *index.key == *key)
    }

    /// Returns whether the index of a function covers every stored object, so that reads may use it.
    pub(crate) fn is_complete(&self, function: &Arc<IndexFunction>) -> bool {
        self.function(function).is_some_and(|index| index.complete)
    }

    /// Returns whether the index values of the object in slot `number`, for this function, include `value`.
    pub(crate) fn has(&self, function: &Arc<IndexFunction>, value: &str, number: Number) -> bool {
        let answer = self.function(function).and_then(|index| index.by_slot.get(&number));
        answer.is_some_and(|values| values.iter().any(|one| **one == *value))
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Option<&Bucket> {
        self.namespaces.get(namespace)
    }

    /// Returns the slots to visit for a selection, from the narrowest index that covers it.
    pub(crate) fn plan(&self, select: &Select) -> Plan<'_> {
        let namespace = select.namespace.as_deref().map(|name| Plan::of(self.namespaces.get(name)));
        let owner = select.owner.as_ref().map(|uid| Plan::of(self.owners.get(uid)));
        let functions = select.functions.iter().filter_map(|wanted| {
            let index = self.function(wanted.function.as_ref()?).filter(|index| index.complete)?;
            Some(Plan::of(index.buckets.get(&wanted.value)))
        });
        let labels = self.labels.iter().filter(|index| index.complete);
        let labels = labels.filter_map(|index| index.plan(&select.labels));
        let all = namespace.into_iter().chain(owner).chain(functions).chain(labels);
        all.min_by_key(Plan::len).unwrap_or(Plan::Everything)
    }
}

// === impl LabelIndex ===

impl LabelIndex {
    fn plan(&self, selector: &LabelSelector) -> Option<Plan<'_>> {
        if let Some(values) = selector.values_of(&self.key) {
            let buckets: Vec<_> = values.iter().filter_map(|value| self.values.get(value.as_str())).collect();
            return Some(if let [one] = buckets[..] { Plan::Bucket(one) } else { Plan::Buckets(buckets) });
        }
        selector.needed().any(|key| *key == *self.key).then_some(Plan::Bucket(&self.with_key))
    }

    pub(crate) fn insert(&mut self, number: Number, meta: &Meta) {
        if let Some(value) = meta.labels.get(&self.key) {
            self.with_key.insert(number);
            add(&mut self.values, value, number);
        }
    }

    fn remove(&mut self, number: Number, meta: &Meta) {
        if let Some(value) = meta.labels.get(&self.key) {
            self.with_key.remove(number);
            take(&mut self.values, value, number);
        }
    }
}

// === impl FunctionIndex ===

impl FunctionIndex {
    /// Adds the index values of an object that was stored before the index was added, unless a later version
    /// of it has been added already.
    pub(crate) fn fill(&mut self, number: Number, values: Box<[Arc<str>]>) {
        if !self.by_slot.contains_key(&number) {
            self.put(number, values);
        }
    }

    fn put(&mut self, number: Number, values: Box<[Arc<str>]>) {
        if self.by_slot.get(&number).is_some_and(|old| *old == values) {
            return;
        }
        self.remove(number);
        for value in &values {
            add(&mut self.buckets, value, number);
        }
        // Also without values: the entry marks the slot as evaluated.
        self.by_slot.insert(number, values);
    }

    fn remove(&mut self, number: Number) {
        for value in self.by_slot.remove(&number).unwrap_or_default() {
            take(&mut self.buckets, &value, number);
        }
    }
}

// === impl Plan ===

impl<'t> Plan<'t> {
    fn of(bucket: Option<&'t Bucket>) -> Self {
        bucket.map_or(Self::Buckets(Vec::new()), Self::Bucket)
    }

    /// Returns the number of slots that the list visits; [`usize::MAX`] for all slots.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Everything => usize::MAX,
            Self::Bucket(bucket) => bucket.len(),
            Self::Buckets(buckets) => buckets.iter().map(|bucket| bucket.len()).sum(),
        }
    }
}

/// Returns the first `count` slot numbers from `first` on in any of the buckets, ascending and without
/// duplicates.
pub(crate) fn merged(buckets: &[&Bucket], first: Number, count: usize) -> Vec<Number> {
    let mut numbers: Vec<Number> = buckets.iter().flat_map(|bucket| bucket.from(first).take(count)).collect();
    // A selector may list a value twice.
    numbers.sort_unstable();
    numbers.dedup();
    numbers.truncate(count);
    numbers
}

// === impl Bucket ===

impl Bucket {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(numbers) => numbers.len(),
        }
    }

    /// Iterates over the slot numbers in the bucket from `first` on, ascending.
    pub(crate) fn from(&self, first: Number) -> impl Iterator<Item = Number> {
        let (one, many) = match self {
            Self::One(number) => (Some(*number).filter(|number| *number >= first), None),
            Self::Many(numbers) => (None, Some(numbers.range(first..).copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn insert(&mut self, number: Number) {
        match self {
            Self::One(one) if *one == number => {}
            Self::One(one) => *self = Self::Many(BTreeSet::from([*one, number])),
            Self::Many(numbers) => {
                numbers.insert(number);
            }
        }
    }

    /// Removes a slot number from the bucket; returns whether the bucket is empty then.
    fn remove(&mut self, number: Number) -> bool {
        match self {
            Self::One(one) => *one == number,
            Self::Many(numbers) => {
                numbers.remove(&number);
                numbers.is_empty()
            }
        }
    }
}

fn add<V, Q>(buckets: &mut Buckets<V>, value: &Q, number: Number)
where
    V: Hash + Eq + Borrow<Q> + for<'q> From<&'q Q>,
    Q: Hash + Eq + ?Sized,
{
    match buckets.get_mut(value) {
        Some(bucket) => bucket.insert(number),
        None => {
            buckets.insert(value.into(), Bucket::One(number));
        }
    }
}

fn take<V, Q>(buckets: &mut Buckets<V>, value: &Q, number: Number)
where
    V: Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    if buckets.get_mut(value).is_some_and(|bucket| bucket.remove(number)) {
        buckets.remove(value);
    }
}

#[cfg(test)]
mod tests;
