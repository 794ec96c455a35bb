use serde_json::json;

use super::*;
use crate::client::Live;
use crate::key::KindId;

/// An object that runs a callback while its JSON is read.
struct WithCallback<'a>(Live, &'a (dyn Fn() + Sync));

impl Current for WithCallback<'_> {
    fn uid(&self) -> Cow<'_, str> {
        self.0.uid()
    }

    fn resource_version(&self) -> Cow<'_, str> {
        self.0.resource_version()
    }

    fn json(&self) -> Bytes {
        (self.1)();
        self.0.json()
    }
}

#[test]
fn an_entry_forgotten_during_a_comparison_is_not_restored() {
    let object = |version: &str| {
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": version});
        json!({"metadata": metadata, "data": {"a": "1"}})
    };
    let kind = KindId::new("", "v1", "ConfigMap", "configmaps", true);
    let body = json!({"metadata": {"name": "web", "namespace": "shop"}, "data": {"a": "1"}});
    let body = Body::of(&kind, &body, "apply").unwrap();
    let memory = Memory::new();
    let now = Live::read(object("8").to_string().into()).unwrap();
    memory.remember(&body, Part::Object, &object("7"), 1);
    assert!(memory.is_applied(&body, Part::Object, &now, 1), "another version with the same content");

    memory.remember(&body, Part::Object, &object("7"), 1);
    let forget = || memory.forget(&body.name, Part::Object);
    assert!(!memory.is_applied(&body, Part::Object, &WithCallback(now.clone(), &forget), 1));
    assert!(!memory.is_applied(&body, Part::Object, &now, 1), "the entry must stay forgotten");
}
