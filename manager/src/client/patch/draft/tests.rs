use std::borrow::Cow;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource as _;
use kube::core::DynamicObject;
use serde::Deserialize;

use super::*;
use crate::client::Live;
use crate::client::owner::set_controller_reference;

fn web() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

fn stored(kind: &KindId, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(),
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
    });
    merge(&mut object, more);
    object
}

fn live(object: &Value) -> Live {
    Live::read(object.to_string().into()).unwrap()
}

fn drafted<K: Serialize + DeserializeOwned>(
    kind: &KindId,
    part: Part,
    object: Option<&Value>,
    edit: impl FnOnce(&mut K) -> EditResult,
) -> Result<Draft, WriteError> {
    let target = EditTarget { kind, name: &web(), part, what: "edit" };
    target.draft(object.map(live).as_ref(), None, edit)
}

/// Returns the patch of an edit of this object; `Null` if the edit changes no field.
fn patch_of<K: Serialize + DeserializeOwned>(
    kind: &KindId,
    part: Part,
    object: &Value,
    edit: impl FnOnce(&mut K) -> EditResult,
) -> Value {
    match drafted(kind, part, Some(object), edit).unwrap() {
        Draft::Patch { patch, .. } => patch,
        Draft::Unchanged => Value::Null,
        Draft::Create(_) => panic!("it exists"),
    }
}

fn edit_of_map(edit: impl FnOnce(&mut ConfigMap) -> EditResult) -> Result<Draft, WriteError> {
    let kind = KindId::of::<ConfigMap>();
    drafted(&kind, Part::Object, Some(&stored(&kind, &json!({"data": {"a": "1"}}))), edit)
}

/// Applies a merge patch as a server does: the pseudo-code of RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let members = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            members.remove(key);
        } else {
            merge(members.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[test]
fn a_patch_names_what_changed_and_the_version_it_is_for() {
    let kind = KindId::of::<ConfigMap>();
    let object = stored(&kind, &json!({"data": {"a": "1", "b": "2"}, "metadata": {"labels": {"l": "1"}}}));
    let patch = patch_of(&kind, Part::Object, &object, |map: &mut ConfigMap| {
        let data = map.data.get_or_insert_default();
        data.remove("a");
        data.insert("c".to_owned(), "3".to_owned());
        Ok(())
    });
    let version = json!({"uid": "u1", "resourceVersion": "7"});
    assert_eq!(patch, json!({"metadata": version, "data": {"a": null, "c": "3"}}));
    assert_eq!(patch_of(&kind, Part::Object, &object, |_: &mut ConfigMap| Ok(())), Value::Null);
}

#[test]
fn a_field_newer_than_the_type_survives_a_change_beside_it() {
    let kind = KindId::of::<Deployment>();
    let containers = json!([{"name": "web", "image": "nginx:1", "rocket": {"fuel": 3}}, {"name": "log"}]);
    let object = stored(
        &kind,
        &json!({"spec": {"selector": {}, "boosters": 2, "template": {"spec": {"containers": containers}}}}),
    );
    let patch = patch_of(&kind, Part::Object, &object, |deployment: &mut Deployment| {
        let spec = deployment.spec.template.spec.as_mut().ok_or("no spec")?;
        spec.containers[0].image = Some("nginx:2".to_owned());
        Ok(())
    });
    let changed = json!([{"name": "web", "image": "nginx:2", "rocket": {"fuel": 3}}, {"name": "log"}]);
    assert_eq!(patch["spec"], json!({"template": {"spec": {"containers": changed}}}));
}

#[test]
fn a_missing_object_is_created_as_the_edit_leaves_it() {
    let create = |draft: Draft| match draft {
        Draft::Create(body) => body.value,
        _ => panic!("it is not there"),
    };
    let kind = KindId::of::<ConfigMap>();
    let owner = stored(&kind, &json!({"metadata": {"name": "owner", "uid": "o"}}));
    let owner: ConfigMap = serde_json::from_value(owner).unwrap();
    let draft = drafted(&kind, Part::Object, None, |map: &mut ConfigMap| {
        map.data.get_or_insert_default().insert("a".to_owned(), "1".to_owned());
        set_controller_reference(map.meta_mut(), owner.meta(), &kind)?;
        Ok(())
    });
    let body = create(draft.unwrap());
    assert_eq!((&body["kind"], &body["data"]), (&json!("ConfigMap"), &json!({"a": "1"})));
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "o");
    assert_eq!((&body["metadata"]["namespace"], &body["metadata"]["name"]), (&json!("shop"), &json!("web")));

    let widget = KindId::new("example.com", "v1", "Widget", "widgets", true);
    let draft = drafted(&widget, Part::Object, None, |object: &mut DynamicObject| {
        object.data["spec"] = json!({"size": 3});
        Ok(())
    });
    assert_eq!(create(draft.unwrap())["spec"], json!({"size": 3}), "a kind known only at run time");
}

/// A resource with a required field.
#[derive(Debug, Serialize, Deserialize)]
struct Strict {
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
    size: u8,
}

#[test]
fn a_type_with_required_fields_needs_an_initial_object() {
    let widget = KindId::new("example.com", "v1", "Widget", "widgets", true);
    let error = drafted(&widget, Part::Object, None, |_: &mut Strict| Ok(())).err().unwrap().to_string();
    assert!(error.contains("more than a name; give Patcher::starting_from: missing field `size`"), "{error}");

    let target = EditTarget { kind: &widget, name: &web(), part: Part::Object, what: "create" };
    let start = || Strict { rest: serde_json::Map::new(), size: 3 };
    let draft = target.draft(None::<&Live>, Some(&start), |strict| {
        strict.size += 1;
        Ok(())
    });
    let Ok(Draft::Create(body)) = draft else { panic!("it is not there") };
    assert_eq!((&body.value["size"], &body.value["metadata"]["name"]), (&json!(4), &json!("web")));
}

#[test]
fn an_edit_may_not_change_the_identity_of_its_object() {
    let check = |edit: fn(&mut ConfigMap), expected: &str| {
        let edited = edit_of_map(|map| {
            edit(map);
            Ok(())
        });
        let error = edited.err().unwrap().to_string();
        assert!(error.contains(expected), "{error} should contain {expected}");
    };
    check(
        |map| map.metadata.name = Some("api".to_owned()),
        "changed metadata.name from \"web\" to \"api\", which",
    );
    check(|map| map.metadata.namespace = None, "changed metadata.namespace from \"shop\" to unset");
    check(|map| map.metadata.uid = Some("u2".to_owned()), "changed metadata.uid");
    check(|map| map.metadata.resource_version = None, "changed metadata.resourceVersion");
    check(
        |map| {
            let name = map.metadata.name.clone();
            let namespace = map.metadata.namespace.clone();
            *map = ConfigMap::default();
            (map.metadata.name, map.metadata.namespace) = (name, namespace);
        },
        "changed metadata.uid from \"u1\" to unset, which would make it another object or version",
    );
    let kind = KindId::of::<ConfigMap>();
    let other_kind =
        drafted(&kind, Part::Object, Some(&stored(&kind, &json!({}))), |map: &mut DynamicObject| {
            map.types.as_mut().ok_or("no type")?.kind = "Secret".to_owned();
            Ok(())
        });
    let error = other_kind.err().unwrap().to_string();
    assert!(error.contains("changed kind from \"ConfigMap\" to \"Secret\""), "{error}");
    let renamed = drafted(&kind, Part::Object, None, |map: &mut ConfigMap| {
        map.metadata.name = Some("api".to_owned());
        Ok(())
    });
    assert!(matches!(renamed, Err(WriteError::Malformed { .. })), "a new object cannot be renamed either");
}

#[test]
fn an_edit_of_another_object_or_kind_is_refused() {
    let kind = KindId::of::<ConfigMap>();
    let elsewhere = stored(&kind, &json!({"metadata": {"name": "api"}}));
    let error = drafted(&kind, Part::Object, Some(&elsewhere), |_: &mut ConfigMap| Ok(())).err().unwrap();
    assert_eq!(error.to_string(), "edit was not sent: the object that was read is shop/api");
    let secret = stored(&kind, &json!({"kind": "Secret"}));
    let error = drafted(&kind, Part::Object, Some(&secret), |_: &mut ConfigMap| Ok(())).err().unwrap();
    assert!(error.to_string().contains("its kind is \"Secret\""), "{error}");
    let odd = stored(&kind, &json!({"data": 7}));
    let error = drafted(&kind, Part::Object, Some(&odd), |_: &mut ConfigMap| Ok(())).err().unwrap();
    assert!(matches!(error, WriteError::Unreadable { .. }), "{error}");
}

#[test]
fn a_failed_edit_makes_no_request() {
    let edited = edit_of_map(|map| {
        map.data = None;
        Err("no idea".into())
    });
    let error = edited.err().unwrap();
    assert_eq!(error.to_string(), "edit was not sent: the function that edits it failed");
    assert_eq!(error.source().unwrap().to_string(), "no idea");
}

#[test]
fn the_status_and_the_other_fields_are_written_separately() {
    let kind = KindId::of::<Deployment>();
    let object = stored(&kind, &json!({"spec": {"selector": {}, "template": {}}, "status": {"rockets": 1}}));
    let set_status = |deployment: &mut Deployment| {
        deployment.status.get_or_insert_default().replicas = Some(2);
        Ok(())
    };
    let pause = |deployment: &mut Deployment| {
        deployment.spec.paused = Some(true);
        Ok(())
    };
    let patch = patch_of(&kind, Part::Status, &object, set_status);
    assert_eq!(patch, json!({"metadata": {"uid": "u1", "resourceVersion": "7"}, "status": {"replicas": 2}}));
    let error = drafted(&kind, Part::Status, Some(&object), pause).err().unwrap().to_string();
    assert!(error.contains("the edit changed spec, but ensure_status writes only the status"), "{error}");
    for current in [Some(&object), None] {
        let error = drafted(&kind, Part::Object, current, set_status).err().unwrap().to_string();
        assert!(error.contains("the edit changed the status, which ensure does not write"), "{error}");
    }
}

/// An object of which a cache holds this extent.
struct Cached(Live, Extent);

impl Current for Cached {
    fn uid(&self) -> Cow<'_, str> {
        self.0.uid()
    }

    fn resource_version(&self) -> Cow<'_, str> {
        self.0.resource_version()
    }

    fn json(&self) -> bytes::Bytes {
        self.0.json()
    }

    fn extent(&self) -> Extent {
        self.1
    }
}

#[test]
fn fields_that_were_not_read_cannot_be_edited() {
    let kind = KindId::of::<ConfigMap>();
    let target = EditTarget { kind: &kind, name: &web(), part: Part::Object, what: "edit" };
    let read = Cached(live(&stored(&kind, &json!({}))), Extent::Metadata);
    let labelled = target.draft(Some(&read), None, |map: &mut ConfigMap| {
        map.metadata.labels.get_or_insert_default().insert("a".to_owned(), "1".to_owned());
        Ok(())
    });
    let Ok(Draft::Patch { patch, .. }) = labelled else { panic!("the metadata was read") };
    assert_eq!(patch["metadata"]["labels"], json!({"a": "1"}));
    let filled = target.draft(Some(&read), None, |map: &mut ConfigMap| {
        map.data.get_or_insert_default().insert("a".to_owned(), "1".to_owned());
        Ok(())
    });
    let error = filled.err().unwrap().to_string();
    assert!(error.contains("the edit changed data, and only the metadata was read"), "{error}");
}

#[test]
fn a_finalizer_is_added_to_a_large_object_only_if_its_finalizers_were_read() {
    let kind = KindId::of::<ConfigMap>();
    let target = EditTarget { kind: &kind, name: &web(), part: Part::Object, what: "edit" };
    let finalized = |bare| {
        let read = Cached(live(&stored(&kind, &json!({}))), Extent::TooLarge { size: 300_000, bare });
        target.draft(Some(&read), None, |map: &mut ConfigMap| {
            map.metadata.finalizers.get_or_insert_default().push("x/y".to_owned());
            Ok(())
        })
    };
    assert!(matches!(finalized(false), Ok(Draft::Patch { .. })));
    let error = finalized(true).err().unwrap().to_string();
    assert!(
        error.contains("the edit changed metadata, and the object is longer than cache.maxObjectBytes"),
        "{error}"
    );
}

#[test]
fn an_object_changed_by_a_transform_cannot_be_edited() {
    let kind = KindId::of::<Deployment>();
    let target = EditTarget { kind: &kind, name: &web(), part: Part::Object, what: "edit" };
    // The transform has removed `env`: a patch would replace the list and remove it from the stored object
    // too.
    let template = json!({"spec": {"containers": [{"name": "web", "image": "nginx:1"}]}});
    let object = stored(&kind, &json!({"spec": {"selector": {}, "template": template}}));
    let read = Cached(live(&object), Extent::Changed);
    let error = target.draft(Some(&read), None, |deployment: &mut Deployment| {
        let spec = deployment.spec.template.spec.as_mut().ok_or("no spec")?;
        spec.containers[0].image = Some("nginx:2".to_owned());
        Ok(())
    });
    let error = error.err().unwrap().to_string();
    assert!(error.contains("the edit changed spec, and the cache's transform has changed"), "{error}");
    let finalized = target.draft(Some(&read), None, |deployment: &mut Deployment| {
        deployment.metadata.finalizers.get_or_insert_default().push("x/y".to_owned());
        Ok(())
    });
    assert!(finalized.is_err(), "lists of the metadata cannot be edited either");
    let same = target.draft(Some(&read), None, |_: &mut Deployment| Ok(()));
    assert!(matches!(same, Ok(Draft::Unchanged)));
}

#[test]
fn an_edit_sees_no_managed_fields() {
    let kind = KindId::of::<ConfigMap>();
    let object = stored(&kind, &json!({"metadata": {"managedFields": [{"manager": "kubectl"}]}}));
    let patch = patch_of(&kind, Part::Object, &object, |map: &mut ConfigMap| {
        assert_eq!(map.metadata.managed_fields, None, "as in the cache");
        Ok(())
    });
    assert_eq!(patch, Value::Null);
}

mod properties;
