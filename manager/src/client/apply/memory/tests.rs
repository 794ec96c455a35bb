use serde_json::json;

use super::*;
use crate::client::Live;
use crate::key::KindId;

/// An object during whose look somebody else begins to write.
struct Meddled<'a>(Live, &'a (dyn Fn() + Sync));

impl Current for Meddled<'_> {
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
fn what_is_forgotten_during_a_look_stays_forgotten() {
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
    assert!(memory.still_stands(&body, Part::Object, &now, 1), "the same at another version");

    memory.remember(&body, Part::Object, &object("7"), 1);
    let forget = || memory.forget(&body.name, Part::Object);
    assert!(!memory.still_stands(&body, Part::Object, &Meddled(now.clone(), &forget), 1));
    assert!(!memory.still_stands(&body, Part::Object, &now, 1), "nor did it come back");
}
