//! For random edits: the patch makes the edit, and no unknown member is lost or moved.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Deserializer};

use super::*;
use crate::client::patch::carry::tests::known;

/// A type that has all members except those with a name that begins with `x`, the unknown members.
#[derive(Debug, Serialize)]
struct Known(Value);

impl<'de> Deserialize<'de> for Known {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(known(&value)))
    }
}

/// Panics unless the unknown members of both documents, outside of lists, are equal.
fn assert_unknown_kept(before: &Value, after: &Value, path: &str) {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return };
    for (key, value) in before {
        let path = format!("{path}.{key}");
        match after.get(key) {
            now if key.starts_with('x') => assert_eq!(now, Some(value), "at {path}"),
            Some(now) => assert_unknown_kept(value, now, &path),
            None => {}
        }
    }
}

/// Sets each unknown member to a different number.
fn numbered(value: &mut Value, next: &mut u64) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if key.starts_with('x') {
                    *next += 1;
                    *value = json!(next);
                } else {
                    numbered(value, next);
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| numbered(element, next)),
        _ => {}
    }
}

/// Finds each number and the list elements around it, outermost first, each with its list.
fn numbers<'a>(
    value: &'a Value,
    within: &mut Vec<(&'a Value, &'a [Value])>,
    found: &mut BTreeMap<u64, Vec<(&'a Value, &'a [Value])>>,
) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_u64().filter(|_| key.starts_with('x')) {
                    Some(number) => drop(found.insert(number, within.clone())),
                    None => numbers(value, within, found),
                }
            }
        }
        Value::Array(elements) => {
            for element in elements {
                within.push((element, elements));
                numbers(element, within, found);
                within.pop();
            }
        }
        _ => {}
    }
}

/// Panics if an unknown member has moved to another element of a list.
fn assert_unknown_not_moved(before: &Value, after: &Value) {
    let (mut of_before, mut of_after) = (BTreeMap::new(), BTreeMap::new());
    numbers(before, &mut Vec::new(), &mut of_before);
    numbers(after, &mut Vec::new(), &mut of_after);
    let names = |element: &Value| ["name", "type"].map(|member| element.get(member).cloned());
    for (number, now) in of_after {
        for ((old, old_list), (new, new_list)) in of_before[&number].iter().zip(now) {
            let (old, new) = (known(old), known(new));
            assert_eq!(names(&old), names(&new), "{number} moved from {old} to {new}");
            let is_shared = old_list.iter().filter(|other| names(other) == names(&old)).count() > 1;
            if is_shared && old.get("name").is_some() && old_list.len() != new_list.len() {
                assert_eq!(old, new, "{number} moved to an element of the same names");
            }
        }
    }
}

/// Generates documents with few different names, so that two of them have much in common.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![(0..4_u8).prop_map(Value::from), "[ab]{0,2}".prop_map(Value::from)];
    let tree = leaf.prop_recursive(4, 32, 5, |inner| {
        let name = prop::sample::select(vec!["a", "b", "c", "name", "type", "x1", "x2"]);
        prop_oneof![
            3 => prop::collection::btree_map(name.prop_map(str::to_owned), inner.clone(), 0..5)
                .prop_map(|members| members.into_iter().collect()),
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    });
    prop::collection::btree_map("[abcx]".prop_map(String::from), tree, 0..5)
        .prop_map(|members| members.into_iter().collect())
}

/// Edits one document towards another: some members and elements are kept, some changed, some removed.
fn blend(one: &Value, other: &Value, random: &mut fastrand::Rng) -> Value {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            let blended = keys.filter_map(|key| match (one.get(key), other.get(key)) {
                (Some(mine), Some(theirs)) => Some((key.clone(), blend(mine, theirs, random))),
                (mine, theirs) => {
                    let value = mine.or(theirs).filter(|_| random.u8(..3) > 0)?;
                    Some((key.clone(), value.clone()))
                }
            });
            blended.collect()
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut blended: Vec<_> = one.iter().filter(|_| random.u8(..3) > 0).cloned().collect();
            for (element, theirs) in blended.iter_mut().zip(other) {
                *element = blend(element, theirs, random);
            }
            blended.extend(other.iter().filter(|_| random.bool()).cloned());
            if random.bool() {
                random.shuffle(&mut blended);
            }
            Value::from(blended)
        }
        (one, other) => if random.bool() { one } else { other }.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_patch_turns_the_stored_object_into_the_edited_one(
        one in documents(), other in documents(), seed in any::<u64>(),
    ) {
        let kind = KindId::of::<ConfigMap>();
        let mut raw = stored(&kind, &one);
        numbered(&mut raw, &mut 0);
        let wanted = stored(&kind, &blend(&known(&one), &known(&other), &mut fastrand::Rng::with_seed(seed)));
        let patch = patch_of(&kind, Part::Object, &raw, |object: &mut Known| {
            object.0 = wanted.clone();
            Ok(())
        });
        let mut after = raw.clone();
        if patch.is_null() {
            prop_assert_eq!(known(&raw), wanted, "a change needs a patch");
        } else {
            prop_assert_ne!(known(&raw), wanted.clone(), "without a change there is no patch");
            merge(&mut after, &patch);
            prop_assert_eq!(known(&after), wanted);
        }
        assert_unknown_kept(&raw, &after, "");
        assert_unknown_not_moved(&raw, &after);
    }
}
