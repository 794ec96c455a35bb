//! Compares the scanner with a simple parser of the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Value as Tree, json};

use super::*;
use crate::cache::tests::fixtures::config_map;

/// A JSON value; an object is a list of members, so that a name may be repeated.
#[derive(Clone, Debug)]
enum Node {
    Leaf(Tree),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// The fields of an object as read from the parsed tree.
#[derive(Debug, PartialEq)]
struct Naive {
    request: NamespacedName,
    uid: String,
    version: String,
    generation: Option<i64>,
    labels: BTreeMap<String, String>,
    owners: Vec<(String, bool)>,
    finalizers: Vec<String>,
    deleting: bool,
    annotated: bool,
    has_status: bool,
    body: Tree,
}

// === impl Node ===

impl Node {
    /// Writes JSON with random white space and unnecessary escapes.
    fn write(&self, random: &mut fastrand::Rng, out: &mut String) {
        let space = |random: &mut fastrand::Rng| ["", "", "", "", " ", "\n\t"][random.usize(..6)];
        match self {
            Self::Leaf(Tree::String(text)) => quote(text, random, out),
            Self::Leaf(leaf) => out.push_str(&leaf.to_string()),
            Self::List(nodes) => {
                out.push('[');
                for (at, node) in nodes.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    node.write(random, out);
                    out.push_str(space(random));
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (key, node)) in members.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    out.push_str(space(random));
                    quote(key, random, out);
                    out.push_str(space(random));
                    out.push(':');
                    out.push_str(space(random));
                    node.write(random, out);
                    out.push_str(space(random));
                }
                out.push('}');
            }
        }
    }

    /// Whether a matching name is repeated among the members.
    fn repeats(&self, matters: impl Fn(&str) -> bool) -> bool {
        let Self::Object(members) = self else { return false };
        let repeated = |at: usize| members[..at].iter().any(|(earlier, _)| *earlier == members[at].0);
        (0..members.len()).any(|at| matters(&members[at].0) && repeated(at))
    }

    fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(key, _)| key == name).map(|(_, node)| node)
    }
}

fn quote(text: &str, random: &mut fastrand::Rng, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        if c >= ' ' && !matches!(c, '"' | '\\') && random.u8(..20) > 0 {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        }
    }
    out.push('"');
}

/// Reads the same fields as the scanner; `None` if a field is missing or of another type.
fn naive(raw: &str) -> Option<Naive> {
    let mut tree: Tree = serde_json::from_str(raw).ok()?;
    let text = |value: &Tree| match value {
        Tree::Null => Some(None),
        value => value.as_str().map(|text| Some(text.to_owned())),
    };
    if text(&tree["kind"])?.is_some_and(|kind| kind != "ConfigMap") {
        return None;
    }
    tree["kind"] = json!("ConfigMap");
    tree["apiVersion"] = json!("v1");
    let meta = tree["metadata"].as_object_mut()?;
    meta.remove("managedFields");
    let meta = meta.clone();
    let get = |name: &str| meta.get(name).unwrap_or(&Tree::Null);
    let texts = |name: &str| match get(name) {
        Tree::Null => Some(BTreeMap::new()),
        value => {
            let pairs = value.as_object()?.iter();
            pairs.map(|(key, value)| Some((key.clone(), text(value)?.unwrap_or_default()))).collect()
        }
    };
    let owner = |owner: &Tree| {
        let named = ["uid", "apiVersion", "kind", "name"].iter().all(|field| owner[*field].is_string());
        let controller = owner.get("controller").map_or(Some(false), Tree::as_bool)?;
        named.then(|| (owner["uid"].as_str().unwrap_or_default().to_owned(), controller))
    };
    let list = |name: &str| match get(name) {
        Tree::Null => Some(Vec::new()),
        value => value.as_array().cloned(),
    };
    Some(Naive {
        request: NamespacedName::new(text(get("namespace"))?.as_deref(), &text(get("name"))??),
        uid: text(get("uid"))??,
        version: text(get("resourceVersion"))??,
        generation: if get("generation").is_null() { None } else { Some(get("generation").as_i64()?) },
        labels: texts("labels")?,
        owners: list("ownerReferences")?.iter().map(owner).collect::<Option<_>>()?,
        finalizers: list("finalizers")?.iter().map(|one| text(one)?).collect::<Option<_>>()?,
        deleting: !get("deletionTimestamp").is_null(),
        annotated: !get("annotations").is_null(),
        has_status: !tree["status"].is_null(),
        body: tree,
    })
}

fn scanned(raw: &str) -> Result<Naive, ScanError> {
    let (meta, body) =
        Scan::open(raw.as_bytes())?.finish(&StoreContext::new(config_map(), usize::MAX), Projection::Full)?;
    Ok(Naive {
        uid: meta.uid.to_string(),
        version: meta.resource_version.to_string(),
        generation: meta.generation,
        labels: meta.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        owners: meta.owners.iter().map(|owner| (owner.uid.to_string(), owner.controller)).collect(),
        finalizers: meta.finalizers.iter().map(ToString::to_string).collect(),
        deleting: meta.deleting,
        annotated: meta.annotations_hash != 0,
        has_status: meta.status_hash != 0,
        body: serde_json::from_slice(&body).expect("the body is JSON"),
        request: meta.request,
    })
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z/.-]{1,12}",
        "\\PC{0,9}",
        Just("quote \" backslash \\ line \n bell \u{7}".to_owned()),
        Just("\u{1f600} \u{e9} mainstay.dev".to_owned()),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Tree::from),
        any::<i64>().prop_map(Tree::from),
        any::<f32>().prop_map(|number| json!(f64::from(number))),
        word().prop_map(Tree::from),
    ];
    leaf.prop_map(Node::Leaf).prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Node::List),
            proptest::collection::vec((word(), inner), 0..4).prop_map(Node::Object),
        ]
    })
}

fn leaf(text: impl Into<Tree>) -> Node {
    Node::Leaf(text.into())
}

fn texts() -> impl Strategy<Value = Node> {
    proptest::collection::vec((word(), word().prop_map(leaf)), 0..5).prop_map(Node::Object)
}

fn owners() -> impl Strategy<Value = Node> {
    let owner = (word(), word(), proptest::option::of(any::<bool>())).prop_map(|(uid, name, controller)| {
        let mut members = vec![
            ("uid".to_owned(), leaf(uid)),
            ("apiVersion".to_owned(), leaf("v1")),
            ("kind".to_owned(), leaf("Node")),
            ("name".to_owned(), leaf(name)),
        ];
        members.extend(controller.map(|set| ("controller".to_owned(), leaf(set))));
        Node::Object(members)
    });
    list_of(owner)
}

fn list_of(items: impl Strategy<Value = Node>) -> impl Strategy<Value = Node> {
    proptest::collection::vec(items, 0..3).prop_map(Node::List)
}

/// A member of `metadata`, mostly of the right type.
fn field() -> impl Strategy<Value = (String, Node)> {
    let named = |name: &'static str| Just(name.to_owned());
    prop_oneof![
        3 => (named("labels"), texts()),
        3 => (named("annotations"), texts()),
        3 => (named("ownerReferences"), owners()),
        3 => (named("managedFields"), list_of(node())),
        2 => (named("finalizers"), list_of(word().prop_map(leaf))),
        2 => (named("generation"), any::<i64>().prop_map(leaf)),
        2 => (named("deletionTimestamp"), word().prop_map(leaf)),
        2 => (named("creationTimestamp"), node()),
        1 => (prop_oneof![named("labels"), named("name"), named("generation"), named("finalizers")], node()),
        1 => (word(), node()),
    ]
}

/// An object, mostly a valid one.
fn object() -> impl Strategy<Value = Node> {
    let metadata = (word(), proptest::option::of(word()), proptest::collection::vec(field(), 0..6)).prop_map(
        |(name, namespace, fields)| {
            let mut members = vec![
                ("name".to_owned(), leaf(name)),
                ("uid".to_owned(), leaf("0c4f8b52-2b0c-4a5e-9d5b-1f0a3a3e9b11")),
                ("resourceVersion".to_owned(), leaf("77")),
            ];
            members.extend(namespace.map(|namespace| ("namespace".to_owned(), leaf(namespace))));
            members.extend(fields);
            members
        },
    );
    let metadata =
        (metadata.prop_shuffle()).prop_map(|members| ("metadata".to_owned(), Node::Object(members)));
    let rest = prop_oneof![
        3 => (Just("data".to_owned()), node()),
        3 => (Just("status".to_owned()), node()),
        2 => (Just("kind".to_owned()), Just(leaf("ConfigMap"))),
        2 => (Just("apiVersion".to_owned()), word().prop_map(leaf)),
        1 => (word(), node()),
    ];
    (metadata, proptest::collection::vec(rest, 0..5))
        .prop_map(|(metadata, mut rest)| {
            rest.push(metadata);
            rest
        })
        .prop_shuffle()
        .prop_map(Node::Object)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_scan_agrees_with_a_tree_of_the_same_bytes(object in object(), seed in any::<u64>()) {
        let mut raw = String::new();
        object.write(&mut fastrand::Rng::with_seed(seed), &mut raw);
        let metadata = object.get("metadata").expect("every object has metadata");
        let read = |name: &str| Metadata::default().field(name).is_some();
        let twice = object.repeats(|_| true)
            || metadata.repeats(read)
            || metadata.get("labels").is_some_and(|labels| labels.repeats(|_| true));
        match (scanned(&raw), naive(&raw)) {
            (Ok(scanned), Some(naive)) => {
                prop_assert!(!twice, "a name is repeated in {}", raw);
                prop_assert_eq!(scanned, naive, "{}", raw);
            }
            (Err(ScanError::Duplicate(_)), _) => prop_assert!(twice, "no name is repeated in {}", raw),
            (Err(error), Some(_)) => prop_assert!(twice, "{error}: {}", raw),
            (Ok(_), None) => prop_assert!(false, "accepted by the scanner only: {}", raw),
            (Err(_), None) => {}
        }
    }

    #[test]
    fn damaged_bytes_are_read_like_a_tree_or_refused(
        object in object(),
        seed in any::<u64>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut raw = String::new();
        object.write(&mut fastrand::Rng::with_seed(seed), &mut raw);
        let mut raw = raw.into_bytes();
        for (at, byte) in damage {
            let at = at.index(raw.len());
            raw[at] = byte;
        }
        raw.truncate(cut.map_or(raw.len(), |cut| cut.index(raw.len())));
        // Neither may panic, and only JSON is accepted.
        PartialIdentity::of(&raw);
        if Scan::open(&raw[..]).is_ok() {
            let read = serde_json::from_slice::<Tree>(&raw);
            let range = |error: &serde_json::Error| error.to_string().starts_with("number out of range");
            prop_assert!(read.as_ref().map_or_else(range, |_| true), "{:?}", read);
        }
    }
}

#[test]
fn a_repeated_member_is_refused_and_named() {
    let refused = |raw: &str| scanned(raw).unwrap_err().to_string();
    let whole = |extra: &str, labels: &str, more: &str| {
        let identity = r#""name":"a","uid":"u","resourceVersion":"1""#;
        format!(r#"{{"metadata":{{{identity},"labels":{{{labels}}}{extra}}}{more}}}"#)
    };
    assert!(scanned(&whole("", "", "")).is_ok());
    assert_eq!(refused(&whole(r#","name":"b""#, "", "")), "it has two members named metadata.name");
    assert_eq!(
        refused(&whole("", r#""x":"1","\u0078":"2""#, "")),
        "it has two members named metadata.labels.x"
    );
    assert_eq!(refused(&whole("", "", r#","spec":1,"sp\u0065c":2"#)), "it has two members named spec");
    let many: Vec<String> = (0..40).map(|at| format!(r#","m{}":1"#, at % 39)).collect();
    assert_eq!(refused(&whole("", "", &many.concat())), "it has two members named m0");
}

#[test]
fn a_truncated_object_is_identified_as_far_as_readable() {
    let raw = br#"{"kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","uid":"u"},"data":{"x":"#;
    assert!(Scan::open(&raw[..]).is_err());
    assert_eq!(PartialIdentity::of(raw).request.unwrap().to_string(), "shop/a");
    assert_eq!(PartialIdentity::of(&raw[..raw.len() - 48]).request, None, "not the name of another object");
}

#[test]
fn managed_fields_are_removed_with_one_comma_at_any_position() {
    for fields in [
        r#""managedFields":[{"a":"}"}],"name":"a","uid":"u","resourceVersion":"1""#,
        r#""name":"a","managedFields":[{"a":"}"}] , "uid":"u","resourceVersion":"1""#,
        r#""name":"a","uid":"u","resourceVersion":"1" , "managedFields":[] "#,
    ] {
        let body = scanned(&format!(r#"{{"metadata":{{{fields}}}}}"#)).unwrap().body;
        assert_eq!(body["metadata"], json!({"name": "a", "uid": "u", "resourceVersion": "1"}), "{fields}");
    }
}
