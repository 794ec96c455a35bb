//! A fuzz target: a path parses again to an equal path, and selects the same values as a naive search, in
//! linear time. Tests use the naive search too.

#![expect(clippy::missing_panics_doc, reason = "a finding is a panic")]

use serde_json::Value;

use super::{JsonPath, MAX_STEPS, NotOneValue, Step};

/// Parses the first line as a path and searches the rest, an object, for it.
pub fn json_path(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let (text, object) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return };
    let path = match text.parse::<JsonPath>() {
        Ok(path) => path,
        Err(invalid) => return assert!((1..=text.chars().count() + 1).contains(&invalid.position)),
    };
    assert_eq!(path.to_string().parse().as_ref(), Ok(&path));
    assert!(path.step_count() <= MAX_STEPS);
    let read = path.search(object).bytes_read;
    assert!(read <= 2 * path.step_count() * object.len(), "{read} bytes of {}", object.len());
    let found = path.find(object);
    let Ok(tree) = serde_json::from_slice::<Value>(object) else { return };
    let found = found.map(|found| found.map(|scalar| scalar.text));
    match select(&tree, &path.steps).as_slice() {
        [] => assert_eq!(found, Ok(None)),
        [Value::Object(_)] => assert_eq!(found, Err(NotOneValue::Object)),
        [Value::Array(_)] => assert_eq!(found, Err(NotOneValue::List)),
        [Value::String(text)] => assert_eq!(found.as_ref(), Ok(&Some(text.clone()))),
        // A number may have several forms in JSON.
        [_] => assert!(matches!(found, Ok(Some(_)))),
        _ => assert_eq!(found, Err(NotOneValue::Several)),
    }
}

/// Returns the values that a path selects, by a naive search.
pub(super) fn select<'a>(value: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return if value.is_null() { Vec::new() } else { vec![value] };
    };
    let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let at = |index: u64| usize::try_from(index).unwrap_or(usize::MAX);
    let selected: Vec<&Value> = match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) if *index < 0 => {
            elements.iter().rev().nth(at(index.unsigned_abs() - 1)).into_iter().collect()
        }
        Step::Index(index) => elements.get(at(index.unsigned_abs())).into_iter().collect(),
        Step::Filter(filter) => {
            let is_equal = |element: &&Value| {
                let value = filter.fields.iter().try_fold(*element, |value, name| value.get(name));
                value == Some(&filter.literal)
            };
            elements.iter().filter(is_equal).collect()
        }
    };
    selected.into_iter().flat_map(|value| select(value, rest)).collect()
}
