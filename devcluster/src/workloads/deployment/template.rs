//! The identity of a Pod template: when two are the same, and the hash in names and labels.

use serde_json::Value;

use crate::workloads::object::without_empty;

/// The label that distinguishes the Pods of the ReplicaSets of a Deployment.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// The letters of hashes: neither vowels nor digits that look like them, so that no words appear.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Whether two templates are the same but for their hash label.
pub(super) fn are_equal(a: &Value, b: &Value) -> bool {
    normal(a) == normal(b)
}

/// Returns the hash of a template, of up to ten letters.
///
/// Like that of kube-controller-manager it is FNV-1a of 32 bits, written in the same alphabet. It is taken
/// over the template as JSON with sorted keys and not over Go's dump of its memory, so the letters differ.
pub(super) fn hash(template: &Value, collisions: Option<i64>) -> String {
    let mut hash = Fnv(0x811c_9dc5);
    hash.value(&normal(template));
    if let Some(collisions) = collisions {
        hash.bytes(&collisions.to_le_bytes());
    }
    let digits = hash.0.to_string();
    digits
        .bytes()
        .filter_map(|digit| ALPHABET.get(usize::from(digit) % ALPHABET.len()))
        .map(|c| char::from(*c))
        .collect()
}

fn normal(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    without_empty(&template)
}

struct Fnv(u32);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    /// Takes in a value as JSON, independently of the order in which maps keep their keys.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let mut keys: Vec<_> = fields.iter().collect();
                keys.sort_by_key(|(key, _)| *key);
                self.bytes(b"{");
                for (key, value) in keys {
                    self.bytes(key.as_bytes());
                    self.bytes(b":");
                    self.value(value);
                }
                self.bytes(b"}");
            }
            Value::Array(items) => {
                self.bytes(b"[");
                for item in items {
                    self.value(item);
                    self.bytes(b",");
                }
                self.bytes(b"]");
            }
            scalar => self.bytes(scalar.to_string().as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hash_is_stable_and_ignores_itself() {
        let template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a"}]}});
        let mut labelled = template.clone();
        labelled["metadata"]["labels"][HASH_LABEL] = "x".into();
        labelled["metadata"]["creationTimestamp"] = Value::Null;
        assert!(are_equal(&template, &labelled));
        assert_eq!(hash(&template, None), hash(&labelled, None));
        assert_ne!(hash(&template, None), hash(&template, Some(1)));
        assert!(hash(&template, None).bytes().all(|letter| ALPHABET.contains(&letter)));
    }
}
