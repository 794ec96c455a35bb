//! Label selectors as text.

#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Returns a label selector as text in the syntax of `kubectl --selector`, sorted by key as apimachinery's
/// `Selector.String` does.
pub(crate) fn text_of(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| (key, format!("{key}={value}")));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let key = &expression.key;
        let mut values = expression.values.clone().unwrap_or_default();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        (key, text)
    });
    let mut parts: Vec<_> = equal.chain(expressions).collect();
    parts.sort();
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}
