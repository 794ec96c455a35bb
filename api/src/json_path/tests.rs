use proptest::prelude::*;
use serde_json::{Value, json};

use super::fuzz::select;
use super::*;

fn path(text: &str) -> JsonPath {
    text.parse().unwrap_or_else(|invalid| panic!("{text}: {invalid}"))
}

/// Returns the text of the selected value, if there is one.
fn find(text: &str, object: &Value) -> Result<Option<String>, NotOneValue> {
    let found = path(text).find(object.to_string().as_bytes())?;
    Ok(found.map(|scalar| scalar.text))
}

fn pod() -> Value {
    json!({
        "metadata": {"name": "db", "labels": {"app.kubernetes.io/name": "db", "$a@*": "odd"}},
        "status": {
            "phase": "Running", "replicas": 3, "ready": true, "ratio": 0.5, "reason": null,
            "message": "say \"it's\"\n",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "Initialized", "status": "False"},
            ],
            "ports": [80, 443, 8080],
            "lists": [[1, 2], [3]],
            "owners": [
                {"ref": {"kind": "Job"}, "main": true, "weight": 2}, {"ref": {"kind": "Pod"}, "main": false},
            ],
        },
    })
}

/// Returns a path with these steps as text.
fn written(steps: &[Step]) -> String {
    let field = |name: &String| {
        let escaped =
            name.chars().map(|next| format!("{}{next}", if ".$@*".contains(next) { "\\" } else { "" }));
        format!(".{}", escaped.collect::<String>())
    };
    let step = |step: &Step| match step {
        Step::Field(name) => field(name),
        Step::Index(index) => format!("[{index}]"),
        Step::Filter(Filter { fields, literal }) => {
            let fields: String = fields.iter().map(field).collect();
            let literal = match literal {
                Value::String(text) if text.contains('"') => format!("'{text}'"),
                Value::String(text) => format!("\"{text}\""),
                literal => literal.to_string(),
            };
            format!("[?(@{fields}=={literal})]")
        }
    };
    steps.iter().map(step).collect()
}

#[test]
fn paths_are_accepted_as_kubectl_writes_them() {
    for (text, plain) in [
        ("{.status.phase}", ".status.phase"),
        ("{status.phase}", ".status.phase"),
        (".status.phase", ".status.phase"),
        ("status.phase", ".status.phase"),
        ("{.status['phase']}", ".status.phase"),
        ("{.status.ports[0]}", ".status.ports[0]"),
        ("{.status.ports[-1]}", ".status.ports[-1]"),
        ("{.status.ports[-0]}", ".status.ports[0]"),
        (r"{.metadata.labels.app\.kubernetes\.io/name}", r".metadata.labels.app\.kubernetes\.io/name"),
        (r"{.metadata.labels['app\.kubernetes\.io/name']}", r".metadata.labels.app\.kubernetes\.io/name"),
        (
            r#"{.status.conditions[?(@.type=="Ready")].status }"#,
            r#".status.conditions[?(@.type=="Ready")].status"#,
        ),
        (".a[?( @.b.c == 'd' )]", r#".a[?(@.b.c=="d")]"#),
        (r#".a[?(@=='"')]"#, r#".a[?(@=='"')]"#),
        (".a[?(@.b==-1.5)]", ".a[?(@.b==-1.5)]"),
        (".a[?(@.b==true)][0]", ".a[?(@.b==true)][0]"),
    ] {
        assert_eq!(written(&path(text).steps), plain, "{text}");
        assert_eq!(path(text).to_string(), text, "displays as in the manifest");
    }
}

#[test]
fn other_texts_are_refused_with_position_and_reason() {
    let long = format!(".{}", "a".repeat(MAX_CHARACTERS));
    let deep = ".a".repeat(MAX_STEPS + 1);
    let filters = format!(".a{}", "[?(@.b.c==1)]".repeat(6));
    for (text, expected) in [
        ("", "character 1: expected the name of a field"),
        ("{}", "character 2: expected the name of a field"),
        ("$.status", "character 1: expected the name of a field"),
        ("['a']", "character 1: expected the name of a field"),
        ("{.a", "character 4: expected a dot, a bracket or the closing brace"),
        ("{.a}b", "character 5: expected a dot, a bracket or the end"),
        ("{.a}=b", "character 5: expected the end: the expected value belongs in the field value"),
        (".a=b", "character 3: expected the end: the expected value"),
        (".a b", "character 4: expected a dot, a bracket or the end"),
        (".a\n", "character 3: expected a dot"),
        (".ä.", "character 4: expected the name of a field"),
        ("..a", "character 2: expected the name of a field"),
        (".a..b", "character 3: selects several values"),
        (".a.*", "character 4: selects several values"),
        (".a[*]", "character 4: selects several values"),
        (".a[0:2]", "character 5: selects several values"),
        (".a[0,1]", "character 5: selects several values"),
        (".a[]", "character 4: expected an index such as [0]"),
        (".a[--1]", "character 7: expected an index"),
        (".a[99999999999999999999]", "character 24: expected an index"),
        (
            r#".a["b"]"#,
            "character 4: expected an index such as [0] or [-1], a key such as ['name'] in single quotes",
        ),
        (
            ".a['b.c']",
            "character 6: expected the name of a field; . $ @ and * inside a name need a backslash",
        ),
        (r".a\b", r"character 3: expected the name of a field"),
        (r".a\", r"character 3: expected the name of a field"),
        (".a[?(.b==1)]", "character 6: expected one comparison"),
        (".a[?(@.b)]", "character 9: expected one comparison"),
        (".a[?(@.b!=1)]", "character 9: expected one comparison"),
        (".a[?(@.b==1 && @.c==2)]", "character 13: expected one comparison"),
        (".a[?(@.b==c)]", "character 11: expected one comparison"),
        (".a[?(@.b==1.)]", "character 11: expected one comparison"),
        (".a[?(@.b==1e3)]", "character 11: expected one comparison"),
        (".a[?(@.b==007)]", "character 11: expected one comparison"),
        (".a[?(@.b==null)]", "character 11: expected one comparison"),
        (".a[?(@.b=='c)]", "character 15: expected the closing quote"),
        (r".a[?(@.b=='\'')]", "character 12: expected the closing quote"),
        (long.as_str(), "character 257: expected at most 256 characters"),
        (deep.as_str(), "character 33: expected at most 16 steps"),
        (filters.as_str(), "character 68: expected at most 16 steps, including the fields of filters"),
    ] {
        let refused = text.parse::<JsonPath>().map_err(|invalid| invalid.to_string());
        let refused = refused.expect_err(text);
        assert!(refused.starts_with(expected), "{text}: {refused}");
    }
}

#[test]
fn a_path_finds_the_text_of_one_value() {
    for (text, expected) in [
        (".status.phase", "Running"),
        (".status.replicas", "3"),
        (".status.ready", "true"),
        (".status.ratio", "0.5"),
        (".status.message", "say \"it's\"\n"),
        (r".metadata.labels.app\.kubernetes\.io/name", "db"),
        (r".metadata.labels['\$a\@\*']", "odd"),
        (".status.ports[0]", "80"),
        (".status.ports[-1]", "8080"),
        (".status.ports[-3]", "80"),
        (".status.lists[1][0]", "3"),
        (".status.ports[?(@==443)]", "443"),
        (r#".status.conditions[?(@.type=="Ready")].status"#, "True"),
        (".status.owners[?(@.ref.kind=='Pod')].main", "false"),
        (".status.owners[?(@.main==true)].ref.kind", "Job"),
        (".status.owners[?(@.weight==2)].ref.kind", "Job"),
    ] {
        assert_eq!(find(text, &pod()), Ok(Some(expected.to_owned())), "{text}");
    }
}

#[test]
fn an_absent_value_is_none() {
    for text in [
        ".status.other",
        ".status.phase.other",
        ".status.ports.other",
        ".status.reason",
        ".status.ports[3]",
        ".status.ports[-4]",
        ".status.phase[0]",
        ".status.phase[?(@.a==1)]",
        ".status[?(@.a==1)]",
        r#".status.conditions[?(@.type=="Other")].status"#,
        ".status.owners[?(@.main=='true')].ref.kind",
        ".status.owners[?(@.ref.kind==1)].main",
    ] {
        assert_eq!(find(text, &pod()), Ok(None), "{text}");
    }
    assert_eq!(path(".a").find(b"{\"a\": "), Ok(None), "damaged JSON");
}

#[test]
fn several_values_and_composites_are_refused() {
    let mut object = pod();
    object["status"]["conditions"][1]["type"] = "Ready".into();
    for (text, expected) in [
        (".status", NotOneValue::Object),
        (".status.ports", NotOneValue::List),
        (r#".status.conditions[?(@.type=="Ready")]"#, NotOneValue::Several),
        (r#".status.conditions[?(@.type=="Ready")].status"#, NotOneValue::Several),
    ] {
        assert_eq!(find(text, &object), Err(expected), "{text}");
    }
    object["status"]["conditions"][1].as_object_mut().unwrap().remove("status");
    let one = find(r#".status.conditions[?(@.type=="Ready")].status"#, &object);
    assert_eq!(one, Ok(Some("True".to_owned())), "only one of the selected elements has the field");
}

#[test]
fn a_value_has_the_innermost_observed_generation() {
    let object = json!({
        "spec": {"replicas": 1},
        "status": {
            "observedGeneration": 2, "phase": "Running",
            "conditions": [
                {"type": "A", "status": "True", "observedGeneration": 3}, {"type": "B", "status": "True"},
            ],
        },
    });
    for (text, expected) in [
        (".spec.replicas", None),
        (".status.phase", Some(2)),
        (".status.observedGeneration", Some(2)),
        (".status.conditions[0].status", Some(3)),
        (".status.conditions[?(@.type=='B')].status", Some(2)),
    ] {
        let found = path(text).find(object.to_string().as_bytes()).unwrap().unwrap();
        assert_eq!(found.observed_generation, expected, "{text}");
    }
}

fn names() -> impl Strategy<Value = String> {
    "[ab]|[a-c./$@*ä -]{1,3}".prop_map(|name| name.replace(' ', "x"))
}

fn objects() -> impl Strategy<Value = Value> {
    let leaves = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        "[ab\"\\\\é]{0,2}".prop_map(Value::from),
    ];
    leaves.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::hash_map(names(), inner, 0..5)
                .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let literals = prop_oneof![
        "[ab]{0,2}|[a\"]{1,2}|[a']{1,2}".prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
        Just(json!(0.5)),
        any::<bool>().prop_map(Value::from),
    ];
    let filters = (proptest::collection::vec(names(), 0..2), literals);
    prop_oneof![
        3 => names().prop_map(Step::Field),
        1 => (-3..3_i64).prop_map(Step::Index),
        2 => filters.prop_map(|(fields, literal)| Step::Filter(Filter { fields, literal })),
    ]
}

fn paths() -> impl Strategy<Value = JsonPath> {
    let rest = proptest::collection::vec(steps(), 0..5);
    let steps = (names(), rest).prop_map(|(first, rest)| [vec![Step::Field(first)], rest].concat());
    steps.prop_map(|steps| JsonPath { text: written(&steps), steps })
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-c0-9.*$@\\[\\]{}()?='\"\\\\ äé-]{0,40}") {
        if let Ok(path) = text.parse::<JsonPath>() {
            prop_assert_eq!(path.to_string().parse(), Ok(path.clone()));
            let plain = written(&path.steps).parse::<JsonPath>().map(|path| path.steps);
            prop_assert_eq!(plain, Ok(path.steps));
        }
    }

    #[test]
    fn no_text_of_any_characters_makes_the_parser_panic(text in any::<String>()) {
        let _refused = text.parse::<JsonPath>().is_err();
    }

    #[test]
    fn a_written_path_parses_to_its_steps(path in paths()) {
        prop_assert_eq!(path.to_string().parse(), Ok(path));
    }

    #[test]
    fn a_search_equals_the_naive_one(path in paths(), inner in objects()) {
        let Some(Step::Field(first)) = path.steps.first() else { unreachable!() };
        let object = json!({first: inner});
        let found = path.find(object.to_string().as_bytes());
        let expected = match select(&object, &path.steps).as_slice() {
            [] => Ok(None),
            [Value::Object(_)] => Err(NotOneValue::Object),
            [Value::Array(_)] => Err(NotOneValue::List),
            [Value::String(text)] => Ok(Some(text.clone())),
            [one] => Ok(Some(one.to_string())),
            _ => Err(NotOneValue::Several),
        };
        prop_assert_eq!(found.map(|found| found.map(|scalar| scalar.text)), expected);
    }

    #[test]
    fn a_search_reads_no_more_than_its_steps_times_the_object(
        path in paths(),
        inner in objects(),
        times in 1..50_usize,
    ) {
        let Some(Step::Field(first)) = path.steps.first() else { unreachable!() };
        let object = json!({first: vec![inner.clone(); times], "b": inner}).to_string();
        let read = path.search(object.as_bytes()).bytes_read;
        let most = 2 * path.step_count() * object.len();
        prop_assert!(read <= most, "{read} bytes, expected at most {most}");
    }
}

#[test]
fn the_longest_searches_of_a_large_object_are_linear() {
    let object = |elements: usize| {
        let element = json!({"a": {"a": {"a": [0, 1, 2], "k": "v"}}});
        json!({"a": vec![element; elements]}).to_string()
    };
    let filters = ".a[?(@.a.a.k=='v')].a.a[-1][?(@.a.a.k=='v')][?(@.a==0)]";
    for text in [filters, ".a[-1].a.a.a[-1]", ".a[?(@.a.a.a.a.a.a.a.a.a.a.a.a.a==0)]"] {
        let read = |elements| {
            let object = object(elements);
            let read = path(text).search(object.as_bytes()).bytes_read;
            assert!(read <= 2 * MAX_STEPS * object.len(), "{text}: {read} of {}", object.len());
            read
        };
        let (small, large) = (read(100), read(10_000));
        assert!(large <= 101 * small, "{text}: {small} bytes of 100 elements, {large} of 10,000");
    }
}
