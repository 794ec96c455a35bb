//! Which slots a selection can be found in, so that a list costs its result and not the store.
//!
//! Namespace and owner uid are always there; labels and functions are added when somebody asks, at any time, and functions
//! go again. Plain data under the lock of the store: what a function answers for a version is computed before, outside.
//!
//! # Invariants
//! 1. A complete index has exactly the slots whose version has the value; an empty bucket is removed.
//! 2. An incomplete index is kept up like the others and not read.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::cache::object::meta::{Meta, Uid};
use crate::cache::store::function::Function;
use crate::cache::store::select::{LabelSelector, Select};
use crate::cache::store::slots::Number;

/// What index functions answered for one version: one row of values per function, in the order of declaration.
pub(in crate::cache) type Values = Box<[Box<[Arc<str>]>]>;

/// All indexes of one store.
#[derive(Debug, Default)]
pub(in crate::cache) struct Indexes {
    /// The empty name is for cluster-scoped objects.
    namespaces: Buckets<Arc<str>>,
    owners: Buckets<Uid>,
    labels: Vec<LabelIndex>,
    functions: Vec<FunctionIndex>,
}

/// Slots by value. Empty ones are removed.
type Buckets<V> = HashMap<V, Bucket>;

/// A set of slots. Most owners have one child and many labels one bearer, so one slot needs no allocation.
#[derive(Debug)]
pub(in crate::cache) enum Bucket {
    One(Number),
    Many(BTreeSet<Number>),
}

#[derive(Debug)]
struct LabelIndex {
    key: Box<str>,
    /// Whether the objects that were there before the index are in it.
    complete: bool,
    /// Who has the label at all.
    bearers: Bucket,
    values: Buckets<Arc<str>>,
}

#[derive(Debug)]
pub(in crate::cache) struct FunctionIndex {
    /// Told apart by its address: different handles may use one name.
    function: Arc<Function>,
    /// As in [`LabelIndex`].
    complete: bool,
    buckets: Buckets<Arc<str>>,
    /// What the function answered, so that a slot can be taken out again without asking it.
    answers: HashMap<Number, Box<[Arc<str>]>>,
}

/// Where to look for what a selection picks.
#[derive(Debug)]
pub(in crate::cache) enum Plan<'t> {
    /// In every slot.
    Everything,
    /// Among those of one value, or of one label.
    Bucket(&'t Bucket),
    /// Among those of any of several values, or of none.
    Buckets(Vec<&'t Bucket>),
}

// === impl Indexes ===

impl Indexes {
    pub(in crate::cache) fn insert(&mut self, number: Number, meta: &Meta, values: Values) {
        add(&mut self.namespaces, meta.namespace().unwrap_or_default(), number);
        for owner in meta.owners.iter() {
            add(&mut self.owners, &owner.uid, number);
        }
        for index in &mut self.labels {
            index.insert(number, meta);
        }
        self.answer(number, values);
    }

    pub(in crate::cache) fn remove(&mut self, number: Number, meta: &Meta) {
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

    /// Another version of what lies in the slot. Most changes touch no index, and cost none.
    pub(in crate::cache) fn replace(&mut self, number: Number, old: &Meta, new: &Meta, values: Values) {
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
        self.answer(number, values);
    }

    fn answer(&mut self, number: Number, values: Values) {
        for (index, values) in self.functions.iter_mut().zip(values) {
            index.put(number, values);
        }
    }

    /// Starts an index, behind those there are; false if there is one by this very function.
    pub(in crate::cache) fn add_function(&mut self, function: &Arc<Function>) -> bool {
        let fresh = self.of(function).is_none();
        if fresh {
            let (function, buckets, answers) = (Arc::clone(function), HashMap::new(), HashMap::new());
            self.functions.push(FunctionIndex { function, complete: false, buckets, answers });
        }
        fresh
    }

    /// Takes an index out, for the caller to drop: it may be large, and its function is of a user.
    pub(in crate::cache) fn remove_function(&mut self, function: &Arc<Function>) -> Option<FunctionIndex> {
        let at = self.functions.iter().position(|index| Arc::ptr_eq(&index.function, function))?;
        Some(self.functions.remove(at))
    }

    /// Puts in an object that was there before the index, unless a later version has come by itself.
    pub(in crate::cache) fn fill_function(
        &mut self,
        function: &Arc<Function>,
        number: Number,
        values: Box<[Arc<str>]>,
    ) {
        if let Some(index) = self.of_mut(function).filter(|index| !index.answers.contains_key(&number)) {
            index.put(number, values);
        }
    }

    fn of(&self, function: &Arc<Function>) -> Option<&FunctionIndex> {
        self.functions.iter().find(|index| Arc::ptr_eq(&index.function, function))
    }

    fn of_mut(&mut self, function: &Arc<Function>) -> Option<&mut FunctionIndex> {
        self.functions.iter_mut().find(|index| Arc::ptr_eq(&index.function, function))
    }

    /// Starts an index; false if there is one of the label.
    pub(in crate::cache) fn add_label(&mut self, key: &str) -> bool {
        let fresh = !self.labels.iter().any(|index| *index.key == *key);
        if fresh {
            let (bearers, values) = (Bucket::Many(BTreeSet::new()), HashMap::new());
            self.labels.push(LabelIndex { key: key.into(), complete: false, bearers, values });
        }
        fresh
    }

    pub(in crate::cache) fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|index| &*index.key)
    }

    pub(in crate::cache) fn fill_label(&mut self, key: &str, number: Number, meta: &Meta) {
        if let Some(index) = self.labels.iter_mut().find(|index| *index.key == *key) {
            index.insert(number, meta);
        }
    }

    pub(in crate::cache) fn complete_label(&mut self, key: &str) {
        for index in self.labels.iter_mut().filter(|index| *index.key == *key) {
            index.complete = true;
        }
    }

    pub(in crate::cache) fn complete_function(&mut self, function: &Arc<Function>) {
        if let Some(index) = self.of_mut(function) {
            index.complete = true;
        }
    }

    /// Returns whether a function index can be read.
    pub(in crate::cache) fn answers(&self, function: &Arc<Function>) -> bool {
        self.of(function).is_some_and(|index| index.complete)
    }

    /// Returns whether a function has this value for what lies in a slot.
    pub(in crate::cache) fn has(&self, function: &Arc<Function>, value: &str, number: Number) -> bool {
        let answer = self.of(function).and_then(|index| index.answers.get(&number));
        answer.is_some_and(|values| values.iter().any(|one| **one == *value))
    }

    pub(in crate::cache) fn in_namespace(&self, namespace: &str) -> Option<&Bucket> {
        self.namespaces.get(namespace)
    }

    /// Picks the narrowest of what can answer a selection.
    pub(in crate::cache) fn plan(&self, select: &Select) -> Plan<'_> {
        let namespace = select.namespace.as_deref().map(|name| Plan::of(self.namespaces.get(name)));
        let owner = select.owner.as_ref().map(|uid| Plan::of(self.owners.get(uid)));
        let functions = select.functions.iter().filter_map(|wanted| {
            let index = self.of(wanted.function.as_ref()?).filter(|index| index.complete)?;
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
            let buckets = values.iter().filter_map(|value| self.values.get(value.as_str()));
            return Some(Plan::several(buckets.collect()));
        }
        selector.needed().any(|key| *key == *self.key).then_some(Plan::Bucket(&self.bearers))
    }

    fn insert(&mut self, number: Number, meta: &Meta) {
        if let Some(value) = meta.labels.get(&self.key) {
            self.bearers.insert(number);
            add(&mut self.values, value, number);
        }
    }

    fn remove(&mut self, number: Number, meta: &Meta) {
        if let Some(value) = meta.labels.get(&self.key) {
            self.bearers.remove(number);
            take(&mut self.values, value, number);
        }
    }
}

// === impl FunctionIndex ===

impl FunctionIndex {
    fn put(&mut self, number: Number, values: Box<[Arc<str>]>) {
        if self.answers.get(&number).is_some_and(|old| *old == values) {
            return;
        }
        self.remove(number);
        for value in &values {
            add(&mut self.buckets, value, number);
        }
        // Also without values: it says that the version has been asked about.
        self.answers.insert(number, values);
    }

    fn remove(&mut self, number: Number) {
        for value in self.answers.remove(&number).unwrap_or_default() {
            take(&mut self.buckets, &value, number);
        }
    }
}

// === impl Plan ===

impl<'t> Plan<'t> {
    fn of(bucket: Option<&'t Bucket>) -> Self {
        bucket.map_or(Self::Buckets(Vec::new()), Self::Bucket)
    }

    fn several(buckets: Vec<&'t Bucket>) -> Self {
        if let [bucket] = buckets.as_slice() { Self::Bucket(bucket) } else { Self::Buckets(buckets) }
    }

    /// Returns how many slots it looks at.
    pub(in crate::cache) fn len(&self) -> usize {
        match self {
            Self::Everything => usize::MAX,
            Self::Bucket(bucket) => bucket.len(),
            Self::Buckets(buckets) => buckets.iter().map(|bucket| bucket.len()).sum(),
        }
    }
}

/// Returns the first `count` numbers from `first` on in any of the buckets, rising and each once.
pub(in crate::cache) fn merged(buckets: &[&Bucket], first: Number, count: usize) -> Vec<Number> {
    let mut numbers: Vec<Number> = buckets.iter().flat_map(|bucket| bucket.from(first).take(count)).collect();
    // A selector may name a value twice.
    numbers.sort_unstable();
    numbers.dedup();
    numbers.truncate(count);
    numbers
}

// === impl Bucket ===

impl Bucket {
    pub(in crate::cache) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(numbers) => numbers.len(),
        }
    }

    /// Goes through the numbers from `first` on, rising.
    pub(in crate::cache) fn from(&self, first: Number) -> impl Iterator<Item = Number> {
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

    /// Returns whether nothing is left.
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
