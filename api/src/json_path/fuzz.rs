//! A fuzz target, and the oracle of tests: a path is read back equal and selects what the plainest search does, in
//! linear time.

#![expect(clippy::missing_panics_doc, reason = "a finding is a panic")]

use serde_json::Value;

use super::{Filter, JsonPath, MAX_CHARACTERS, MAX_STEPS, NotOneValue, Step};

/// Reads the first line as a path and searches the rest for it.
pub fn json_path(data: &[u8]) {
    let (text, object) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &b"{}"[..]),
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let path = match text.parse::<JsonPath>() {
        Ok(path) => path,
        Err(invalid) => return assert!((1..=text.chars().count() + 1).contains(&invalid.position)),
    };
    assert_eq!(path.to_string().parse().as_ref(), Ok(&path));
    // Escapes may make a text longer than the limit, and large numbers are written with exponents, which no path has.
    let is_rounded = |step: &Step| matches!(step, Step::Filter(Filter { literal: Value::Number(number), .. }) if number.is_f64());
    if text.len() < MAX_CHARACTERS / 3 && !path.steps.iter().any(is_rounded) {
        assert_eq!(
            written(&path.steps).parse::<JsonPath>().map(|plain| plain.steps).as_ref(),
            Ok(&path.steps)
        );
    }
    assert!(path.step_count() <= MAX_STEPS && text.chars().count() <= MAX_CHARACTERS);
    let read = path.search(object).bytes_read;
    assert!(read <= 2 * path.step_count() * object.len(), "{read} bytes of {}", object.len());
    let found = path.find(object);
    let Ok(tree) = serde_json::from_slice::<Value>(object) else { return };
    let expected = match select(&tree, &path.steps).as_slice() {
        [] => Ok(None),
        [Value::Object(_)] => Err(NotOneValue::Object),
        [Value::Array(_)] => Err(NotOneValue::List),
        [one] => Ok(Some((*one).clone())),
        _ => Err(NotOneValue::Several),
    };
    let found = found.map(|found| {
        found.map(|scalar| match &expected {
            Ok(Some(Value::String(_))) => scalar.text.into(),
            _ => serde_json::from_str(&scalar.text).unwrap_or_default(),
        })
    });
    assert_eq!(found, expected);
}

/// Returns a text of the steps.
pub(super) fn written(steps: &[Step]) -> String {
    let field = |name: &String| {
        let escaped =
            name.chars().map(|next| format!("{}{next}", if ".$@*".contains(next) { "\\" } else { "" }));
        format!(".{}", escaped.collect::<String>())
    };
    let step = |step: &Step| match step {
        Step::Field(name) => field(name),
        Step::Index(index) => format!("[{index}]"),
        Step::Filter(Filter { fields, literal }) => {
            let fields: String = fields.iter().map(field).collect();
            let literal = match literal {
                Value::String(text) if text.contains('"') => format!("'{text}'"),
                Value::String(text) => format!("\"{text}\""),
                literal => literal.to_string(),
            };
            format!("[?(@{fields}=={literal})]")
        }
    };
    steps.iter().map(step).collect()
}

/// What a path selects, found in the plainest way.
pub(super) fn select<'a>(value: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return if value.is_null() { Vec::new() } else { vec![value] };
    };
    let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let selected: Vec<&Value> = match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) if *index < 0 => {
            let back = usize::try_from(index.unsigned_abs() - 1).unwrap_or(usize::MAX);
            elements.iter().rev().nth(back).into_iter().collect()
        }
        Step::Index(index) => {
            elements.get(usize::try_from(*index).unwrap_or(usize::MAX)).into_iter().collect()
        }
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
