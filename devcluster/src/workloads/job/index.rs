//! The indexes of the Pods of a Job in the mode `Indexed`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::workloads::object::Object as _;

/// The annotation and the label of a Pod with its index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The environment variable with the index.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Longest start of a generated name, as in kube-apiserver.
const LONGEST_BASE: usize = 58;

/// Parses indexes in the form `1,3-5,7`; those that are not below `completions` are left out.
pub(super) fn parse(text: &str, completions: usize) -> BTreeSet<usize> {
    let ranges = text.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse::<usize>().ok()?.min(completions.checked_sub(1)?))
    });
    ranges.flatten().collect()
}

/// Formats indexes for the status.
pub(super) fn format(indexes: &BTreeSet<usize>) -> String {
    let mut text = String::new();
    let mut indexes = indexes.iter().copied().peekable();
    while let Some(first) = indexes.next() {
        let mut last = first;
        while let Some(next) = indexes.next_if_eq(&(last + 1)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to memory does not fail.
        _ = match last - first {
            0 => write!(text, "{comma}{first}"),
            1 => write!(text, "{comma}{first},{last}"),
            _ => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

/// Returns the index of a Pod.
pub(super) fn of(pod: &Value) -> Option<usize> {
    pod.annotation(INDEX)?.parse().ok()
}

/// Gives a new Pod its index.
pub(super) fn set(pod: &mut Value, job: &str, index: usize) {
    let text = index.to_string();
    for field in ["annotations", "labels"] {
        pod["metadata"][field][INDEX] = text.as_str().into();
    }
    let mut end = job.len().min(LONGEST_BASE.saturating_sub(text.len() + 2));
    while !job.is_char_boundary(end) {
        end -= 1;
    }
    pod["metadata"]["generateName"] = format!("{}-{text}-", job.get(..end).unwrap_or_default()).into();
    pod["spec"]["hostname"] = format!("{job}-{text}").into();
    let source = json!({"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}});
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let variables = container.entry("env").or_insert_with(|| json!([]));
            let Some(variables) = variables.as_array_mut() else { continue };
            if !variables.iter().any(|variable| variable["name"] == VARIABLE) {
                variables.push(json!({"name": VARIABLE, "valueFrom": source}));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_ranges() {
        for text in ["", "0", "0,1", "1,3-5,7", "0-9"] {
            assert_eq!(format(&parse(text, 10)), text);
        }
        assert_eq!(format(&parse("1,3-9,12", 5)), "1,3,4");
    }
}
