//! Admission webhooks and policies, and priorities of requests.

use serde_json::{Value, json};

use super::view::View;

pub(super) fn webhooks(configuration: &View<'_>) -> Value {
    json!([configuration.name(), configuration.count("/webhooks"), configuration.age()])
}

pub(super) fn validating(policy: &View<'_>) -> Value {
    json!([policy.name(), policy.count("/spec/validations"), parameters(policy), policy.age()])
}

pub(super) fn mutating(policy: &View<'_>) -> Value {
    json!([policy.name(), policy.count("/spec/mutations"), parameters(policy), policy.age()])
}

fn parameters(policy: &View<'_>) -> String {
    let kind = policy.part("/spec/paramKind");
    if policy.has("/spec/paramKind") {
        format!("{}/{}", kind.text("/apiVersion"), kind.text("/kind"))
    } else {
        "<unset>".to_owned()
    }
}

pub(super) fn binding(binding: &View<'_>) -> Value {
    let reference = binding.part("/spec/paramRef");
    let parameter = match (reference.text("/name"), reference.text_or("/namespace", "*")) {
        ("", _) if reference.has("/selector") => selector(&reference.part("/selector")),
        ("", _) => "<unset>".to_owned(),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    json!([binding.name(), binding.text("/spec/policyName"), parameter, binding.age()])
}

/// Returns a label selector in the form in which Go prints the struct.
fn selector(selector: &View<'_>) -> String {
    let labels = selector.map("/matchLabels").into_iter().flatten();
    let labels: Vec<_> =
        labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let expression = |it: View<'_>| {
        let values = it.texts("/values").join(" ");
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            it.text("/key"),
            it.text("/operator")
        )
    };
    let expressions: Vec<_> = selector.list("/matchExpressions").map(expression).collect();
    let (labels, expressions) = (labels.concat(), expressions.concat());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub(super) fn flow_schema(schema: &View<'_>) -> Value {
    let method = schema.get("/spec/distinguisherMethod/type").and_then(Value::as_str);
    let dangling = schema.condition("/status/conditions", "Dangling");
    json!([
        schema.name(),
        schema.text("/spec/priorityLevelConfiguration/name"),
        schema.number("/spec/matchingPrecedence"),
        method.unwrap_or("<none>"),
        schema.age(),
        dangling.map_or("?", |it| it.text("/status")),
    ])
}

pub(super) fn priority_level(level: &View<'_>) -> Value {
    let limited = level.has("/spec/limited");
    let queues = level.has("/spec/limited/limitResponse/queuing");
    let shown = |has: bool, pointer: &str| if has { json!(level.number(pointer)) } else { json!("<none>") };
    json!([
        level.name(),
        level.text("/spec/type"),
        shown(limited, "/spec/limited/nominalConcurrencyShares"),
        shown(queues, "/spec/limited/limitResponse/queuing/queues"),
        shown(queues, "/spec/limited/limitResponse/queuing/handSize"),
        shown(queues, "/spec/limited/limitResponse/queuing/queueLengthLimit"),
        level.age(),
    ])
}
