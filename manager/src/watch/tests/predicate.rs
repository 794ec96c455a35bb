//! The table of predicates against events.

use serde_json::json;

use super::{base, delta, with};
use crate::cache::tests::fixtures::view_of;
use crate::cache::{Delta, LabelSelector};
use crate::watch::{
    AnnotationsChanged, DeletionRequested, FinalizersChanged, GenerationChanged, LabelsChanged, Predicate,
    ResourceVersionChanged, Verdict,
};

/// The verdict on each event in one letter: Admit, Drop or `-` for indifferent.
fn row(predicate: &impl Predicate) -> String {
    let old = view_of(&base());
    let changed = [
        with("/status/ready", json!(1)),
        with("/metadata/generation", json!(2)),
        with("/metadata/labels", json!({"app": "api"})),
        with("/metadata/annotations", json!({"note": "x"})),
        with("/metadata/finalizers", json!(["a/b"])),
        with("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ]
    .map(|object| view_of(&object));
    let mut deltas = vec![delta(None, Some(&old)), delta(Some(&old), None)];
    deltas.push(Delta { resync: true, ..delta(Some(&old), Some(&old)) });
    deltas.extend(changed.iter().map(|new| delta(Some(&old), Some(new))));
    let letter = |delta: &Delta<'_>| match predicate.verdict(delta) {
        Verdict::Admit => 'A',
        Verdict::Drop => 'D',
        Verdict::Indifferent => '-',
    };
    deltas.iter().map(letter).collect()
}

#[test]
fn each_predicate_drops_what_it_is_there_to_drop_and_nothing_else() {
    let selector = |text: &str| text.parse::<LabelSelector>().expect("a selector");
    let own = |delta: &Delta<'_>| delta.new.is_some();
    let table = [
        (
            "create delete resync, then updates of: status generation labels annotations finalizers deletion",
            String::new(),
        ),
        ("generation", row(&GenerationChanged)),
        ("labels", row(&LabelsChanged)),
        ("annotations", row(&AnnotationsChanged)),
        ("finalizers", row(&FinalizersChanged)),
        ("deletion", row(&DeletionRequested)),
        ("resource version", row(&ResourceVersionChanged)),
        ("selector app=web, also of what leaves it", row(&selector("app=web"))),
        ("selector app=api, also of what enters it", row(&selector("app=api"))),
        ("own function", row(&own)),
        ("generation and labels", row(&GenerationChanged.and(LabelsChanged))),
        ("generation or labels", row(&GenerationChanged.or(LabelsChanged))),
        ("not generation", row(&GenerationChanged.not())),
        ("not (generation or own)", row(&GenerationChanged.or(own).not())),
        ("selector and not resource version", row(&selector("app=web").and(ResourceVersionChanged.not()))),
    ];
    let table: Vec<String> = table.iter().map(|(what, row)| format!("{row:9} {what}")).collect();
    assert_eq!(
        table,
        [
            "          create delete resync, then updates of: status generation labels annotations \
             finalizers deletion",
            "---DADDDD generation",
            "---DDADDD labels",
            "---DDDADD annotations",
            "---DDDDAD finalizers",
            "---DDDDDA deletion",
            "--DAAAAAA resource version",
            "AAAAAAAAA selector app=web, also of what leaves it",
            "DDDDDADDD selector app=api, also of what enters it",
            "ADAAAAAAA own function",
            "---DDDDDD generation and labels",
            "---DAADDD generation or labels",
            "---ADAAAA not generation",
            "D-DDDDDDD not (generation or own)",
            "--ADDDDDD selector and not resource version",
        ]
    );
}

#[test]
fn a_kind_without_generations_is_none_of_the_generation_predicates_business() {
    let [old, new] = [0, 1].map(|ready| {
        let mut object = with("/status/ready", json!(ready));
        object["metadata"].as_object_mut().expect("metadata").remove("generation");
        view_of(&object)
    });
    assert_eq!(GenerationChanged.verdict(&delta(Some(&old), Some(&new))), Verdict::Indifferent);
}
