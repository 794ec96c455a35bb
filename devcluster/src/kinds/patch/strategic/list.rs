//! The lists of a strategic merge patch: merges them by key or by value, and orders them.

use serde_json::Value;

use super::{DIRECTIVE, Fields, SET_ORDER, field, go_map, list_name, merge_fields, unknown_directive};
use super::{PatchError, without_directives};
use crate::kinds::{Form, Merge, Schema, go};

/// The schema of a list.
#[derive(Clone, Copy)]
pub(super) struct Of<'s> {
    items: &'s Schema,
    pub(super) merge: Option<&'s Merge>,
}

impl<'s> Of<'s> {
    /// Returns the schema of the list in the field `name` of an object.
    pub(super) fn field(schema: Option<&'s Schema>, name: &str) -> Result<Self, PatchError> {
        match &field(schema, name)?.form {
            Form::List { items, merge, .. } => Ok(Self { items, merge: merge.as_ref() }),
            _ => Err(PatchError::Internal("expected slice or array type, but got: struct".to_owned())),
        }
    }

    /// Returns the name of the key field; `None` for a list of scalars.
    fn key(&self) -> Option<&'s str> {
        match self.merge {
            Some(Merge::Key(key)) => Some(key),
            _ => None,
        }
    }
}

/// A merged list, with the data to order it.
pub(super) struct Merged {
    pub(super) items: Vec<Value>,
    /// The keys of the object's items by position, used to order the result. The real server merges the list
    /// in place and reads the old keys from the same memory, so deleted items leave space for new ones.
    memory: Vec<Value>,
}

/// Merges the items of a patch into a list. `deletes` removes scalars instead.
pub(super) fn merge(
    of: Of<'_>,
    object: Vec<Value>,
    patch: Vec<Value>,
    deletes: bool,
) -> Result<Merged, PatchError> {
    if object.is_empty() && patch.is_empty() {
        return Ok(Merged { items: object, memory: Vec::new() });
    }
    if !of_maps([&object, &patch])? {
        let memory = object.clone();
        let mut items = object;
        if deletes {
            items.retain(|item| !patch.contains(item));
        } else {
            items.extend(patch.iter().cloned());
            items = scalars_in_order(distinct(items), &patch, &memory);
        }
        return Ok(Merged { items, memory });
    }
    let Some(key) = of.key() else {
        return Err(PatchError::Internal("cannot merge lists without merge key for struct".to_owned()));
    };
    let mut memory: Vec<Value> =
        object.iter().map(|item| item.get(key).cloned().unwrap_or_default()).collect();
    let mut items = object;
    let mut patch_items = Vec::new();
    let mut replace = false;
    for item in patch {
        match item.get(DIRECTIVE) {
            None => patch_items.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                let value = identity(&item, key)?;
                while let Some(index) = position(&items, key, &value) {
                    items.remove(index);
                    // The later items move forward, and the last key stays in the memory.
                    for later in index..items.len() {
                        memory[later] = memory[later + 1].clone();
                    }
                }
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(PatchError::Internal(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            Some(other) => {
                let fields = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(other, &fields));
            }
        }
    }
    if replace {
        items = std::mem::take(&mut patch_items);
    }
    let order = keys(&items, key);
    let patch_order = patch_items.iter().map(|item| identity(item, key)).collect::<Result<Vec<_>, _>>()?;
    for (item, value) in patch_items.into_iter().zip(&patch_order) {
        match (position(&items, key, value), item) {
            (Some(index), Value::Object(patch)) => {
                if let Some(Value::Object(fields)) = items.get_mut(index) {
                    merge_fields(Some(of.items), fields, patch)?;
                }
            }
            (_, item) => {
                if let Some(slot) = memory.get_mut(items.len()) {
                    value.clone_into(slot);
                }
                items.push(item);
            }
        }
    }
    let items = in_order(items, key, &patch_order, &order?)?;
    Ok(Merged { items, memory })
}

/// Applies a `$setElementOrder` directive, together with the patch of the same list if there is one.
pub(super) fn merge_in_order(
    schema: Option<&Schema>,
    object: &mut Fields,
    patch: &mut Fields,
    directive: &str,
    order: Value,
) -> Result<(), PatchError> {
    let not_a_list = |value: &Value| {
        PatchError::Internal(format!("expected a []interface {{}}, but received a {}", go_type(value)))
    };
    let Value::Array(order) = order else { return Err(not_a_list(&order)) };
    let name = list_name(directive, SET_ORDER, "setElementOrder list")?;
    let list = |fields: &Fields| match fields.get(&name) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(not_a_list(other)),
    };
    let (present, patched) = (list(object)?, list(patch)?);
    let of = Of::field(schema, &name)?;
    check_order(patched.as_deref().unwrap_or_default(), &order, of.key())?;
    let both = [present.as_deref().unwrap_or_default(), patched.as_deref().unwrap_or_default()];
    let elements = both.iter().any(|items| !items.is_empty());
    let maps = elements && of_maps(both)?;
    let ids = |items: &[Value]| match of.key() {
        Some(key) if maps => items.iter().map(|item| item.get(key).cloned().unwrap_or_default()).collect(),
        _ => items.to_vec(),
    };
    let (merged, memory) = match (present, patched) {
        (None, None) => return Ok(()),
        (Some(present), None) => (present.clone(), ids(&present)),
        (None, Some(patched)) => (patched.into_iter().filter_map(without_directives).collect(), Vec::new()),
        (Some(present), Some(patched)) if of.merge.is_some() => {
            let merged = merge(of, present, patched, false)?;
            (merged.items, merged.memory)
        }
        (Some(present), Some(patched)) => (patched, ids(&present)),
    };
    patch.remove(&name);
    if !elements {
        return Err(PatchError::Internal("no elements in any of the given slices".to_owned()));
    }
    let items = if let Some(key) = of.key() {
        in_order(merged, key, &keys(&order, key)?, &memory)?
    } else {
        scalars_in_order(merged, &order, &memory)
    };
    object.insert(name, Value::Array(items));
    Ok(())
}

/// Checks that the items of a patch are in the order of the directive.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let deletes = |item: &Value| item.get(DIRECTIVE).is_some_and(|directive| directive == "delete");
    let mut rest = order.iter().peekable();
    for item in patch.iter().filter(|item| !deletes(item)) {
        let mut found = false;
        while let Some(ordered) = rest.peek().filter(|_| !found) {
            if item.get(DIRECTIVE).is_some() {
                // This is a directive, not an item. After the end of the order it still counts as a mismatch.
                found = true;
                continue;
            }
            found = match key {
                Some(key) => identity(item, key)? == identity(ordered, key)?,
                None => item == *ordered,
            };
            rest.next();
        }
        if !found {
            let text = |items: &[Value]| go::plain(&Value::Array(items.to_vec()));
            return Err(PatchError::Internal(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                text(patch),
                text(order)
            )));
        }
    }
    Ok(())
}

/// Orders items: items of the patch follow its order, and the others stay between them in the order `order`.
fn in_order(
    items: Vec<Value>,
    key: &str,
    patch_order: &[Value],
    order: &[Value],
) -> Result<Vec<Value>, PatchError> {
    let with_keys = items.into_iter().map(|item| Ok((identity(&item, key)?, item)));
    let with_keys = with_keys.collect::<Result<Vec<_>, PatchError>>()?;
    let (mut from_patch, mut others): (Vec<_>, Vec<_>) =
        with_keys.into_iter().partition(|(value, _)| patch_order.contains(value));
    sort_by(&mut from_patch, patch_order, |(value, _)| value);
    sort_by(&mut others, order, |(value, _)| value);
    let both = interleave(others, from_patch, order, |(value, _)| value);
    Ok(both.into_iter().map(|(_, item)| item).collect())
}

/// Orders scalars like [`in_order`].
fn scalars_in_order(items: Vec<Value>, patch_order: &[Value], order: &[Value]) -> Vec<Value> {
    let (mut from_patch, mut others): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| patch_order.contains(item));
    sort_by(&mut from_patch, patch_order, |item| item);
    sort_by(&mut others, order, |item| item);
    interleave(others, from_patch, order, |item| item)
}

/// Sorts items by their position in `order`. An item without a position moves in front of the item before it.
/// A sort of the library cannot do this, so this is an insertion sort.
fn sort_by<T>(items: &mut [T], order: &[Value], id: impl Fn(&T) -> &Value) {
    let place = |item: &T| order.iter().position(|value| value == id(item));
    for end in 1..items.len() {
        for index in (1..=end).rev() {
            let less = match (place(&items[index]), place(&items[index - 1])) {
                (Some(this), Some(before)) => this < before,
                _ => true,
            };
            if !less {
                break;
            }
            items.swap(index, index - 1);
        }
    }
}

/// Merges two ordered lists. An item of `left` comes first only if it is before the item of `right` in
/// `order`.
fn interleave<T>(left: Vec<T>, right: Vec<T>, order: &[Value], id: impl Fn(&T) -> &Value) -> Vec<T> {
    let place = |item: &T| order.iter().position(|value| value == id(item));
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    let mut both = Vec::new();
    loop {
        let left_first = match (left.peek(), right.peek()) {
            (Some(left), Some(right)) => matches!((place(left), place(right)), (Some(l), Some(r)) if l < r),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return both,
        };
        both.extend(if left_first { left.next() } else { right.next() });
    }
}

/// Removes repeated scalars. The last item moves to the position of a removed one.
fn distinct(mut items: Vec<Value>) -> Vec<Value> {
    let mut first = 0;
    while first < items.len() {
        let mut other = first + 1;
        while other < items.len() {
            if items[first] == items[other] {
                items.swap_remove(other);
            } else {
                other += 1;
            }
        }
        first += 1;
    }
    items
}

/// Returns whether the lists contain objects. Lists with items of different types are an error.
fn of_maps(lists: [&[Value]; 2]) -> Result<bool, PatchError> {
    let mut items = lists.iter().copied().flatten();
    let first = items.next().unwrap_or(&Value::Null);
    if first.is_array() {
        return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned()));
    }
    if items.any(|item| go_type(item) != go_type(first)) {
        let lists: Vec<_> = lists.iter().map(|list| Value::Array(list.to_vec())).collect();
        let text = go::plain(&Value::Array(lists));
        return Err(PatchError::Internal(format!("list element types are not identical: {text}")));
    }
    Ok(first.is_object())
}

fn keys(items: &[Value], key: &str) -> Result<Vec<Value>, PatchError> {
    items.iter().map(|item| identity(item, key)).collect()
}

/// Returns the value of an item's key field.
fn identity(item: &Value, key: &str) -> Result<Value, PatchError> {
    let Value::Object(fields) = item else {
        return Err(PatchError::Internal(format!(
            "expected a map[string]interface {{}}, but received a {}",
            go_type(item)
        )));
    };
    fields.get(key).cloned().ok_or_else(|| {
        PatchError::Internal(format!("map: {} does not contain declared merge key: {key}", go_map(fields)))
    })
}

fn position(items: &[Value], key: &str, value: &Value) -> Option<usize> {
    items.iter().position(|item| item.get(key) == Some(value))
}

/// Returns the Go type of a value after decoding, as Go's `%s` prints it.
fn go_type(value: &Value) -> &'static str {
    if value.is_null() { "%!s(<nil>)" } else { go::type_name(value) }
}
