//! The status of a CustomResourceDefinition: its accepted names, and whether it is served.

use serde_json::{Value, json};

use super::{list, text};
use crate::kinds::conditions;
use crate::kinds::custom::structural::strings;
use crate::kinds::errors::quoted;

/// Returns whether the condition `Established` is `True`.
pub fn is_established(definition: &Value) -> bool {
    condition(definition, "Established").is_some_and(|condition| condition["status"] == "True")
}

fn condition<'a>(definition: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = definition.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)
}

/// Returns the status after the requested names were compared with those of the other definitions: with the
/// accepted names and the resulting conditions. `None` if the status does not change. `now` is the time in
/// RFC 3339 form.
pub fn accept_names<'a>(
    definition: &Value,
    others: impl Iterator<Item = &'a Value>,
    now: &str,
) -> Option<Value> {
    let spec = definition.get("spec")?;
    let requested = spec.get("names")?;
    let known = definition.pointer("/status/acceptedNames").cloned().unwrap_or_default();
    if *requested == known {
        return None;
    }
    let (resources, kinds) = used_names(spec, others);
    let mut accepted = known.clone();
    let mut conflict = None;
    for (field, used, reason) in [
        ("plural", &resources, "PluralConflict"),
        ("singular", &resources, "SingularConflict"),
        ("kind", &kinds, "KindConflict"),
        ("listKind", &kinds, "ListKindConflict"),
    ] {
        let name = text(requested, field);
        if name != text(&known, field) && used.contains(&name) {
            conflict = Some((reason, in_use(&name)));
        } else {
            accepted[field] = name.into();
        }
        if field == "singular" {
            conflict = accept_short_names(requested, &known, &resources, &mut accepted).or(conflict);
        }
    }
    match requested.get("categories") {
        Some(categories) => accepted["categories"] = categories.clone(),
        None => drop(accepted.as_object_mut().and_then(|accepted| accepted.remove("categories"))),
    }
    let names = match conflict {
        None => {
            json!({
                "type": "NamesAccepted", "status": "True", "reason": "NoConflicts",
                "message": "no conflicts found",
            })
        }
        Some((reason, message)) => {
            json!({"type": "NamesAccepted", "status": "False", "reason": reason, "message": message})
        }
    };
    let same = |old: &Value| ["status", "reason", "message"].iter().all(|field| old[*field] == names[*field]);
    if accepted == known && condition(definition, "NamesAccepted").is_some_and(same) {
        return None;
    }
    let installing = json!({
        "type": "Established", "status": "False", "reason": "Installing",
        "message": "the initial names have been accepted",
    });
    let waiting = json!({
        "type": "Established", "status": "False", "reason": "NotAccepted",
        "message": "not all names are accepted",
    });
    let established = match condition(definition, "Established") {
        Some(old) if old["status"] == "True" => old.clone(),
        _ if names["status"] == "True" => installing,
        Some(old) => old.clone(),
        None => waiting,
    };
    let mut status = definition.get("status").cloned().unwrap_or_default();
    status["acceptedNames"] = accepted;
    conditions::set(&mut status, names, now);
    conditions::set(&mut status, established, now);
    Some(status)
}

/// Returns the status of a definition that the server starts to serve; `None` if its names are not accepted,
/// or if it is served already. `now` is the time in RFC 3339 form.
pub fn establish(definition: &Value, now: &str) -> Option<Value> {
    let accepted = condition(definition, "NamesAccepted").is_some_and(|names| names["status"] == "True");
    if !accepted || is_established(definition) {
        return None;
    }
    let mut status = definition.get("status").cloned()?;
    let established = json!({
        "type": "Established", "status": "True", "reason": "InitialNamesAccepted",
        "message": "the initial names have been accepted",
    });
    conditions::set(&mut status, established, now);
    Some(status)
}

/// Returns the status of a definition while its objects are deleted. `now` is the time in RFC 3339 form.
pub fn terminate(definition: &Value, now: &str) -> Value {
    let mut status = definition.get("status").cloned().unwrap_or_default();
    let terminating = json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionInProgress",
        "message": "CustomResource deletion is in progress",
    });
    conditions::set(&mut status, terminating, now);
    status
}

/// Returns the names that other definitions of the group use: names of resources, and names of kinds.
fn used_names<'a>(spec: &Value, others: impl Iterator<Item = &'a Value>) -> (Vec<String>, Vec<String>) {
    let (mut resources, mut kinds) = (Vec::new(), Vec::new());
    for other in others.filter(|other| other.pointer("/spec/group") == spec.get("group")) {
        let Some(names) = other.pointer("/status/acceptedNames") else { continue };
        resources.extend([text(names, "plural"), text(names, "singular")]);
        resources.extend(strings(names, "shortNames"));
        kinds.extend([text(names, "kind"), text(names, "listKind")]);
    }
    (resources, kinds)
}

fn accept_short_names(
    requested: &Value,
    known: &Value,
    used: &[String],
    accepted: &mut Value,
) -> Option<(&'static str, String)> {
    if requested.get("shortNames") == known.get("shortNames") {
        return None;
    }
    let own = strings(known, "shortNames");
    let names = list(requested, "shortNames").filter_map(Value::as_str);
    let errors: Vec<String> = names
        .filter(|name| !own.iter().any(|own| own == name) && used.iter().any(|used| used == name))
        .map(in_use)
        .collect();
    match errors.as_slice() {
        [] => {
            match requested.get("shortNames") {
                Some(names) => accepted["shortNames"] = names.clone(),
                None => drop(accepted.as_object_mut().and_then(|accepted| accepted.remove("shortNames"))),
            }
            None
        }
        [one] => Some(("ShortNamesConflict", one.clone())),
        several => Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
    }
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", quoted(name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{accept_names, establish, is_established, terminate};

    const NOW: &str = "2024-01-01T00:00:00Z";

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({
            "spec": {"group": "example.com", "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"), "shortNames": short,
            }},
            "status": {"storedVersions": ["v1"], "acceptedNames": {"plural": "", "kind": ""}},
        })
    }

    fn reasons(status: &Value) -> Vec<(String, String, String)> {
        let text = |value: &'static str| move |c: &Value| c[value].as_str().unwrap().to_owned();
        let (name, state, reason) = (text("type"), text("status"), text("reason"));
        status["conditions"].as_array().unwrap().iter().map(|c| (name(c), state(c), reason(c))).collect()
    }

    fn expected(conditions: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        conditions.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect()
    }

    #[test]
    fn a_definition_is_accepted_and_then_established() {
        let mut definition = definition("widgets", "Widget", &["wd"]);
        definition["status"] = accept_names(&definition, std::iter::empty(), NOW).unwrap();
        assert_eq!(definition["status"]["acceptedNames"], definition["spec"]["names"]);
        assert_eq!(
            reasons(&definition["status"]),
            expected(&[("NamesAccepted", "True", "NoConflicts"), ("Established", "False", "Installing")])
        );
        assert_eq!(accept_names(&definition, std::iter::empty(), NOW), None);
        definition["status"] = establish(&definition, "2024-01-01T00:00:01Z").unwrap();
        assert!(is_established(&definition));
        assert_eq!(definition["status"]["conditions"][1]["lastTransitionTime"], "2024-01-01T00:00:01Z");
        assert_eq!(definition["status"]["conditions"][0]["lastTransitionTime"], NOW);
        assert_eq!(establish(&definition, NOW), None);
        assert_eq!(
            reasons(&terminate(&definition, NOW)).split_off(2),
            expected(&[("Terminating", "True", "InstanceDeletionInProgress")])
        );
    }

    #[test]
    fn names_of_another_definition_are_refused() {
        let mut first = definition("widgets", "Widget", &["wd", "w"]);
        first["status"] = accept_names(&first, std::iter::empty(), NOW).unwrap();
        for (second, reason, message) in [
            (definition("widgets", "Other", &[]), "PluralConflict", "\"widgets\" is already in use"),
            (definition("gadgets", "Gadget", &["wd"]), "ShortNamesConflict", "\"wd\" is already in use"),
            (
                definition("gadgets", "Gadget", &["wd", "w"]),
                "ShortNamesConflict",
                "[\"wd\" is already in use, \"w\" is already in use]",
            ),
            (definition("gadgets", "WidgetList", &[]), "KindConflict", "\"WidgetList\" is already in use"),
        ] {
            let status = accept_names(&second, [&first].into_iter(), NOW).unwrap();
            assert_eq!(
                reasons(&status),
                expected(&[("NamesAccepted", "False", reason), ("Established", "False", "NotAccepted")])
            );
            assert_eq!(status["conditions"][0]["message"], message);
            assert_eq!(establish(&json!({"status": status}), NOW), None);
        }
    }
}
