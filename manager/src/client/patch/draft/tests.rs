use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource as _;
use kube::core::DynamicObject;
use proptest::prelude::*;
use serde::{Deserialize, Deserializer};

use super::super::carry::tests::known;
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

/// Returns the patch that an edit of this object comes to; `Null` if none.
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

/// What a server does with a merge patch: the pseudo-code of RFC 7386.
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
fn an_object_that_is_not_there_is_created_as_the_edit_leaves_it() {
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

/// A resource with a field that must be there.
#[derive(Debug, Serialize, Deserialize)]
struct Strict {
    #[serde(flatten)]
    rest: Map<String, Value>,
    size: u8,
}

#[test]
fn a_type_that_needs_more_than_a_name_begins_with_what_it_is_given() {
    let widget = KindId::new("example.com", "v1", "Widget", "widgets", true);
    let error = drafted(&widget, Part::Object, None, |_: &mut Strict| Ok(())).err().unwrap().to_string();
    assert!(error.contains("more than a name; give Patcher::starting_from: missing field `size`"), "{error}");

    let target = EditTarget { kind: &widget, name: &web(), part: Part::Object, what: "create" };
    let start = || Strict { rest: Map::new(), size: 3 };
    let draft = target.draft(None::<&Live>, Some(&start), |strict| {
        strict.size += 1;
        Ok(())
    });
    let Ok(Draft::Create(body)) = draft else { panic!("it is not there") };
    assert_eq!((&body.value["size"], &body.value["metadata"]["name"]), (&json!(4), &json!("web")));
}

#[test]
fn an_edit_may_not_make_it_another_object() {
    let check = |edit: fn(&mut ConfigMap), expected: &str| {
        let edited = edit_of_map(|map| {
            edit(map);
            Ok(())
        });
        let error = edited.err().unwrap().to_string();
        assert!(error.contains(expected), "{error} should say {expected}");
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
    assert!(matches!(renamed, Err(WriteError::Malformed { .. })), "nor one that is not there yet");
}

#[test]
fn an_edit_of_something_else_than_asked_for_is_refused() {
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
fn an_edit_that_fails_comes_to_nothing() {
    let edited = edit_of_map(|map| {
        map.data = None;
        Err("no idea".into())
    });
    let error = edited.err().unwrap();
    assert_eq!(error.to_string(), "edit was not sent: the function that edits it failed");
    assert_eq!(error.source().unwrap().to_string(), "no idea");
}

#[test]
fn the_status_and_the_rest_are_written_apart() {
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

/// What a cache has of an object.
struct Cached(Live, Extent);

impl Current for Cached {
    fn uid(&self) -> Cow<'_, str> {
        self.0.uid()
    }

    fn resource_version(&self) -> std::borrow::Cow<'_, str> {
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
fn what_was_not_read_is_not_edited() {
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
fn what_a_transform_has_changed_is_not_edited() {
    let kind = KindId::of::<Deployment>();
    let target = EditTarget { kind: &kind, name: &web(), part: Part::Object, what: "edit" };
    // The transform has left out the environment: a patch would replace the list, and it would be gone at the
    // server too.
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
    assert!(finalized.is_err(), "nor are lists of the metadata");
    let same = target.draft(Some(&read), None, |_: &mut Deployment| Ok(()));
    assert!(matches!(same, Ok(Draft::Unchanged)));
}

#[test]
fn managed_fields_are_the_servers_business() {
    let kind = KindId::of::<ConfigMap>();
    let object = stored(&kind, &json!({"metadata": {"managedFields": [{"manager": "kubectl"}]}}));
    let patch = patch_of(&kind, Part::Object, &object, |map: &mut ConfigMap| {
        assert_eq!(map.metadata.managed_fields, None, "as a cache shows it");
        Ok(())
    });
    assert_eq!(patch, Value::Null);
}

/// A type that knows all members but those whose name begins with `x`.
#[derive(Debug, Serialize)]
struct Known(Value);

impl<'de> Deserialize<'de> for Known {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(known(&value)))
    }
}

/// Panics unless all that the type does not know, in what both have outside of lists, is the same in both.
fn assert_unknown_kept(before: &Value, after: &Value, path: &str) {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return };
    for (key, value) in before {
        let path = format!("{path}.{key}");
        match after.get(key) {
            now if key.starts_with('x') => assert_eq!(now, Some(value), "at {path}"),
            Some(now) => assert_unknown_kept(value, now, &path),
            None => {}
        }
    }
}

/// Gives all that the type does not know a number of its own.
fn numbered(value: &mut Value, next: &mut u64) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if key.starts_with('x') {
                    *next += 1;
                    *value = json!(next);
                } else {
                    numbered(value, next);
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| numbered(element, next)),
        _ => {}
    }
}

/// Finds each number and the elements of lists that it stands in, outermost first, each with its list.
fn numbers<'a>(
    value: &'a Value,
    within: &mut Vec<(&'a Value, &'a [Value])>,
    found: &mut BTreeMap<u64, Vec<(&'a Value, &'a [Value])>>,
) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_u64().filter(|_| key.starts_with('x')) {
                    Some(number) => drop(found.insert(number, within.clone())),
                    None => numbers(value, within, found),
                }
            }
        }
        Value::Array(elements) => {
            for element in elements {
                within.push((element, elements));
                numbers(element, within, found);
                within.pop();
            }
        }
        _ => {}
    }
}

/// Panics if something that the type does not know has come to stand in another element of a list.
fn assert_unknown_not_moved(before: &Value, after: &Value) {
    let (mut of_before, mut of_after) = (BTreeMap::new(), BTreeMap::new());
    numbers(before, &mut Vec::new(), &mut of_before);
    numbers(after, &mut Vec::new(), &mut of_after);
    let names = |element: &Value| ["name", "type"].map(|member| element.get(member).cloned());
    for (number, now) in of_after {
        for ((old, old_list), (new, new_list)) in of_before[&number].iter().zip(now) {
            let (old, new) = (known(old), known(new));
            assert_eq!(names(&old), names(&new), "{number} moved from {old} to {new}");
            let is_shared = old_list.iter().filter(|other| names(other) == names(&old)).count() > 1;
            if is_shared && old.get("name").is_some() && old_list.len() != new_list.len() {
                assert_eq!(old, new, "{number} came to stand in one that shares its names");
            }
        }
    }
}

/// Documents of a few names, so that two of them have much in common.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![(0..4_u8).prop_map(Value::from), "[ab]{0,2}".prop_map(Value::from)];
    let tree = leaf.prop_recursive(4, 32, 5, |inner| {
        let name = prop::sample::select(vec!["a", "b", "c", "name", "type", "x1", "x2"]);
        prop_oneof![
            3 => prop::collection::btree_map(name.prop_map(str::to_owned), inner.clone(), 0..5)
                .prop_map(|members| members.into_iter().collect()),
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    });
    prop::collection::btree_map("[abcx]".prop_map(String::from), tree, 0..5)
        .prop_map(|members| members.into_iter().collect())
}

/// Edits one document towards another: of each member and element some are kept, some changed, some taken
/// away.
fn blend(one: &Value, other: &Value, random: &mut fastrand::Rng) -> Value {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            let blended = keys.filter_map(|key| match (one.get(key), other.get(key)) {
                (Some(mine), Some(theirs)) => Some((key.clone(), blend(mine, theirs, random))),
                (mine, theirs) => {
                    let value = mine.or(theirs).filter(|_| random.u8(..3) > 0)?;
                    Some((key.clone(), value.clone()))
                }
            });
            blended.collect()
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut blended: Vec<_> = one.iter().filter(|_| random.u8(..3) > 0).cloned().collect();
            for (element, theirs) in blended.iter_mut().zip(other) {
                *element = blend(element, theirs, random);
            }
            blended.extend(other.iter().filter(|_| random.bool()).cloned());
            if random.bool() {
                random.shuffle(&mut blended);
            }
            Value::from(blended)
        }
        (one, other) => if random.bool() { one } else { other }.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_patch_makes_the_stored_object_what_the_edit_made_of_it(
        one in documents(), other in documents(), seed in any::<u64>(),
    ) {
        let kind = KindId::of::<ConfigMap>();
        let mut raw = stored(&kind, &one);
        numbered(&mut raw, &mut 0);
        let wanted = stored(&kind, &blend(&known(&one), &known(&other), &mut fastrand::Rng::with_seed(seed)));
        let patch = patch_of(&kind, Part::Object, &raw, |object: &mut Known| {
            object.0 = wanted.clone();
            Ok(())
        });
        let mut after = raw.clone();
        if patch.is_null() {
            prop_assert_eq!(known(&raw), wanted, "only what changes nothing is not sent");
        } else {
            prop_assert_ne!(known(&raw), wanted.clone(), "what changes nothing is not sent");
            merge(&mut after, &patch);
            prop_assert_eq!(known(&after), wanted);
        }
        assert_unknown_kept(&raw, &after, "");
        assert_unknown_not_moved(&raw, &after);
    }
}
