//! Scenarios with an answer that is changed on purpose: the comparison must notice each.

use serde_json::{Value, json};

use super::compare::{self, Difference};
use super::normal;
use super::pair::Pair;
use super::run;
use super::script;

/// A change of a transcript.
type Spoil = (&'static str, fn(&mut Value));

/// The number of changes.
pub(crate) const COUNT: usize = SPOILS.len();

/// The scenario that is spoilt.
const SCENARIO: &str = r"
== spoilt
POST cm {metadata: {name: a, labels: {x: '1'}}, data: {k: v}} -> a
WATCH all cm?resourceVersion=${a.metadata.resourceVersion}
APPLY cm/b?fieldManager=one {data: {k: '1'}}
APPLY cm/b?fieldManager=two {data: {k: '2'}}
MERGE cm/a {data: {k: w}}
GET cm
POST cm {metadata: {name: a}}
POST w {metadata: {name: bad}, spec: {replicas: -1, mode: z}}
POST w {metadata: {name: warned}, spec: {bogus: 1}}
DELETE cm/a
";

const SPOILS: &[Spoil] = &[
    ("another status", |it| answer(it, "001")["status"] = json!(200)),
    ("another reason", |it| answer(it, "007")["body"]["reason"] = json!("Conflict")),
    ("another value of a field", |it| answer(it, "005")["body"]["data"]["k"] = json!("v")),
    ("a conflict's owner", |it| {
        answer(it, "004")["body"]["details"]["causes"][0]["message"] = json!("conflict with \"three\"");
    }),
    ("an owned field is lost", |it| {
        answer(it, "003")["body"]["metadata"]["managedFields"][0]["fieldsV1"] = json!({});
    }),
    ("a cause is lost", |it| {
        if let Some(causes) = answer(it, "008")["body"]["details"]["causes"].as_array_mut() {
            causes.pop();
        }
    }),
    ("a warning is lost", |it| answer(it, "009")["warnings"] = json!([])),
    ("items of a list are swapped", |it| {
        if let Some(items) = answer(it, "006")["body"]["items"].as_array_mut() {
            items.swap(0, 1);
        }
    }),
    ("an event is lost", |it| drop(events(it).pop())),
    ("events are swapped", |it| events(it).swap(0, 1)),
    ("an event has another type", |it| events(it)[1]["type"] = json!("ADDED")),
    ("a write keeps the resourceVersion", |it| {
        let before = answer(it, "001")["body"]["metadata"]["resourceVersion"].clone();
        answer(it, "005")["body"]["metadata"]["resourceVersion"] = before;
    }),
    ("a list is older than its items", |it| {
        answer(it, "006")["body"]["metadata"]["resourceVersion"] = json!("1");
    }),
    ("a uid changes", |it| {
        answer(it, "005")["body"]["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    }),
];

fn answer<'v>(transcript: &'v mut Value, number: &str) -> &'v mut Value {
    let answers = transcript.as_object_mut().expect("a transcript");
    let (_, answer) = answers.iter_mut().find(|(key, _)| key.starts_with(number)).expect("an answer");
    answer
}

fn events(transcript: &mut Value) -> &mut Vec<Value> {
    transcript["watch all"].as_array_mut().expect("events")
}

/// Returns the changes that the comparison does not notice.
pub(crate) async fn unnoticed(pair: &Pair) -> Vec<&'static str> {
    let [scenario] = script::parse(SCENARIO).try_into().expect("one scenario");
    pair.namespace("spoilt").await;
    let (embedded, real) = run::transcripts(pair, &scenario, "spoilt").await;
    let real = normal::normalised(real);
    let against = |ours: Value| -> Vec<String> {
        let found: Vec<Difference> = compare::compare(&normal::normalised(ours), &real);
        found.iter().map(ToString::to_string).collect()
    };
    let honest = against(embedded.clone());
    let unnoticed = SPOILS.iter().filter(|(_, spoil)| {
        let mut changed = embedded.clone();
        spoil(&mut changed);
        against(changed).iter().all(|difference| honest.contains(difference))
    });
    unnoticed.map(|(name, _)| *name).collect()
}
