//! Texts that several kinds share: selectors, labels, containers, and lists that end after three items.

use serde_json::{Map, Value};

use super::view::View;

/// The description of the column with the name.
pub(super) const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, \
                               although some resources may allow a client to request the generation of an \
                               appropriate name automatically. Name is primarily intended for creation \
                               idempotence and configuration definition. Cannot be updated. More info: \
                               https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// The most items of a list that a cell shows.
const SHOWN: usize = 3;

/// Returns `text`, or `<none>` in place of an empty one.
pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// Returns labels as `a=b,c=d`, or `<none>`.
pub(super) fn labels(labels: Option<&Map<String, Value>>) -> String {
    let pair = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
    or_none(labels.into_iter().flatten().map(pair).collect::<Vec<_>>().join(","))
}

/// Returns a label selector in the syntax of queries, sorted by key; `None` if it selects everything or, as
/// one that is missing does, nothing.
pub(super) fn selector(selector: &View<'_>) -> Option<String> {
    let mut requirements: Vec<(String, String)> = Vec::new();
    for (key, value) in selector.map("/matchLabels").into_iter().flatten() {
        requirements.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector.list("/matchExpressions") {
        let key = expression.text("/key");
        let mut values = expression.texts("/values");
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression.text("/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        requirements.push((key.to_owned(), text));
    }
    requirements.sort_by(|a, b| a.0.cmp(&b.0));
    let texts: Vec<_> = requirements.into_iter().map(|(_, text)| text).collect();
    Some(texts.join(",")).filter(|text| !text.is_empty())
}

/// Returns a label selector, or `<none>`.
pub(super) fn selector_or_none(of: &View<'_>) -> String {
    or_none(selector(of).unwrap_or_default())
}

/// Returns the names and the images of the containers in a pod template.
pub(super) fn containers(template: &View<'_>) -> (String, String) {
    let join = |field: &str| {
        let texts = template.list("/spec/containers").map(|container| container.text(field));
        texts.collect::<Vec<_>>().join(",")
    };
    (join("/name"), join("/image"))
}

/// Returns the first items of a list and the number of the others; `<unset>` for an empty list.
pub(super) fn first(items: &[String]) -> String {
    let shown: Vec<_> = items.iter().take(SHOWN).map(String::as_str).collect();
    let shown = shown.join(",");
    match items.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} + {more} more..."),
        _ if shown.is_empty() => "<unset>".to_owned(),
        _ => shown,
    }
}
