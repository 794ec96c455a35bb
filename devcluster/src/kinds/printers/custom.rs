//! The columns of custom resources: values at paths, in the type of the column.

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::json_path::JsonPath;
use super::view::View;
use crate::kinds::custom::{AGE, Column};
use crate::kinds::go;

/// The cells of a custom resource after the name.
#[derive(Debug)]
pub(super) struct CustomCells(Vec<(JsonPath, String)>);

// === impl CustomCells ===

impl CustomCells {
    /// Reads the paths, up to the first one that is malformed.
    pub(super) fn new(columns: &[Column]) -> Self {
        let path = |column: &Column| Some((JsonPath::parse(&column.path)?, column.column_type.clone()));
        Self(columns.iter().map_while(path).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn row(&self, view: &View<'_>) -> Value {
        let cells = self.0.iter().map(|(path, column_type)| {
            let found = path.find(view.object()).ok()?;
            let value = found.into_iter().next()?.into_owned();
            if column_type == "string" { Some(printed(&value)) } else { typed(value, column_type, view) }
        });
        let cells = cells.map(Option::unwrap_or_default);
        std::iter::once(view.name().into()).chain(cells).collect()
    }
}

/// Returns the definition of a column.
pub(super) fn header(column: &Column) -> Value {
    let description = match column.description.as_str() {
        "" => format!("Custom resource definition column (in JSONPath format): {}", column.path),
        description => description.to_owned(),
    };
    super::column(&column.name, &column.column_type, &column.format, &description, column.priority)
}

/// Returns the columns of the subresource `scale` of custom resources.
pub(super) fn scale_columns() -> [Column; 3] {
    let column = |name: &str, column_type: &str, description: &str, path: &str| Column {
        name: name.to_owned(),
        column_type: column_type.to_owned(),
        format: String::new(),
        description: description.to_owned(),
        priority: 0,
        path: path.to_owned(),
    };
    [
        column("Desired", "integer", "Number of desired replicas", ".spec.replicas"),
        column("Available", "integer", "Number of actual replicas", ".status.replicas"),
        column("Age", "date", AGE, ".metadata.creationTimestamp"),
    ]
}

/// Returns a value as text. Objects and lists are JSON in which Go has escaped the characters of HTML.
fn printed(value: &Value) -> Value {
    match value {
        Value::Null => "<no value>".into(),
        Value::Object(_) | Value::Array(_) => {
            let json = value.to_string();
            json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026").into()
        }
        other => go::plain(other).into(),
    }
}

/// Returns a value in the type of its column; `None` if it has another type.
fn typed(value: Value, column_type: &str, view: &View<'_>) -> Option<Value> {
    match (column_type, value) {
        ("integer", Value::Number(number)) => whole(&number).map(Value::from),
        ("number", Value::Number(number)) => Some(match whole(&number) {
            // Go writes a float without a fraction as a whole number.
            Some(whole) if number.as_f64().is_some_and(|float| float.fract() == 0.0) => whole.into(),
            _ => Value::Number(number),
        }),
        ("boolean", value @ Value::Bool(_)) => Some(value),
        ("date", Value::String(text)) => Some(since(&text, view).into()),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "Go truncates the float too")]
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| number.as_f64().map(|float| float as i64))
}

fn since(text: &str, view: &View<'_>) -> String {
    match (text, text.parse::<Timestamp>()) {
        ("" | "null", _) => "<unknown>".to_owned(),
        (_, Ok(time)) => view.ago(time),
        (_, Err(_)) => "<invalid>".to_owned(),
    }
}
