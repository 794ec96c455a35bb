//! Random sequences of requests, which shrink when the servers differ.

use fastrand::Rng;
use futures_util::StreamExt as _;

use super::accepted::Accepted;
use super::pair::Pair;
use super::run;
use super::script::{Scenario, Step};
use super::{AT_ONCE, print};

/// Steps of one sequence; each has a namespace of its own.
const LENGTH: usize = 40;
/// Sequences with a difference after which the run ends.
const ENOUGH: usize = 5;
/// The name by which the list of accepted differences knows random sequences.
const NAME: &str = "random";

/// Kinds, each with values of its spec.
const KINDS: &[(&str, &[&str])] = &[
    ("cm", &["data: {k: v}", "data: {k: w, l: x}", "data: {}", "data: {l: y}, immutable: false"]),
    (
        "w",
        &[
            "spec: {replicas: 1}",
            "spec: {replicas: 2, mode: a}",
            "spec: {replicas: -1}",
            "spec: {tags: [x, y], mode: b}",
            "spec: {ports: [{name: p, port: 1}, {name: q}]}",
            "spec: {ports: [{name: q, port: 2}]}",
            "spec: {bogus: 1, replicas: 3}",
            "spec: {tags: [x, x]}",
        ],
    ),
    ("p", &["spec: {a: 1}", "spec: {a: 2, b: {c: x}}", "status: {phase: x}", "spec: {b: {d: [1, 2]}}"]),
    ("secret", &["stringData: {k: v}", "data: {k: dg==}", "type: Opaque"]),
    (
        "svc",
        &[
            "spec: {clusterIP: None, ports: [{port: 80}]}",
            "spec: {clusterIP: None, ports: [{name: a, port: 80}, {name: b, port: 81}], selector: {x: '1'}}",
        ],
    ),
    (
        "role",
        &[
            "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]",
            "rules: []",
            "rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, list]}]",
        ],
    ),
    (
        "deploy",
        &[
            "spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, \
         spec: {containers: [{name: c, image: i}]}}}",
            "spec: {replicas: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, \
         spec: {containers: [{name: c, image: 'j:1', env: [{name: E, value: f}]}]}}}",
            "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, \
         spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}]}, {name: d, image: i}]}}}",
        ],
    ),
    (
        "lease",
        &["spec: {holderIdentity: me}", "spec: {leaseTransitions: 1}", "spec: {leaseDurationSeconds: 15}"],
    ),
];
const NAMES: &[&str] = &["a", "b", "c"];
const METADATA: &[&str] = &[
    "labels: {x: '1'}",
    "labels: {x: '2', y: z}",
    "annotations: {n: m}",
    "finalizers: [example.com/f]",
    "finalizers: []",
    "labels: null",
    "annotations: {n: o}, labels: {y: null}",
    "ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: o, \
     uid: 11111111-1111-4111-8111-111111111111}]",
];
const SELECTORS: &[&str] = &["x=1", "x!=1", "x+in+(1,2)", "y", "!x", "x=2,y=z"];

/// Runs so many random steps. Returns the number of steps that were run, and the smallest sequences that
/// differ.
pub(crate) async fn run(pair: &Pair, seed: u64, steps: usize, accepted: &Accepted) -> (usize, Vec<String>) {
    let mut random = Rng::with_seed(seed);
    let sequences = std::iter::repeat_with(|| sequence(&mut random, LENGTH)).take(steps.div_ceil(LENGTH));
    let mut runs = futures_util::stream::iter(sequences)
        .map(async |lines| (judge(pair, &lines, accepted).await, lines))
        .buffered(AT_ONCE);
    let (mut done, mut differing) = (0, Vec::new());
    while differing.len() < ENOUGH
        && let Some((report, lines)) = runs.next().await
    {
        done += lines.len();
        differing.extend(report.map(|report| (lines, report)));
    }
    drop(runs);
    let mut found = Vec::new();
    for (lines, report) in differing {
        let lines = shrunk(pair, lines, accepted).await;
        let again = judge(pair, &lines, accepted).await;
        let report = again.unwrap_or_else(|| format!("not seen again:\n{report}"));
        let report = format!("{}\n{report}", lines.join("\n"));
        print(&format!("differential: in the random steps of seed {seed}:\n{report}"));
        found.push(report);
    }
    (done, found)
}

async fn judge(pair: &Pair, lines: &[String], accepted: &Accepted) -> Option<String> {
    let steps = lines.iter().map(|line| Step::parse(line)).collect();
    run::judge(pair, &Scenario { name: NAME.to_owned(), steps }, accepted).await
}

/// Removes lines as long as the rest still differs.
async fn shrunk(pair: &Pair, mut lines: Vec<String>, accepted: &Accepted) -> Vec<String> {
    let mut part = lines.len() / 2;
    while part > 0 {
        let mut start = 0;
        while start < lines.len() {
            let mut fewer = lines.clone();
            fewer.drain(start..lines.len().min(start + part));
            if !fewer.is_empty() && judge(pair, &fewer, accepted).await.is_some() {
                lines = fewer;
            } else {
                start += part;
            }
        }
        part /= 2;
    }
    lines
}

fn pick<'t>(random: &mut Rng, texts: &[&'t str]) -> &'t str {
    texts[random.usize(..texts.len())]
}

/// Makes the lines of one sequence. It stays with two kinds, so that steps meet the objects of others.
fn sequence(random: &mut Rng, length: usize) -> Vec<String> {
    let kinds = [KINDS[random.usize(..KINDS.len())], KINDS[random.usize(..KINDS.len())]];
    let mut lines = vec![format!("WATCH first {}?resourceVersion=0&allowWatchBookmarks=true", kinds[0].0)];
    while lines.len() < length {
        let number = lines.len();
        let kind = kinds[usize::from(random.u8(..4) == 0)];
        lines.push(step(random, kind, number));
    }
    lines
}

fn step(random: &mut Rng, (kind, specs): (&str, &[&str]), number: usize) -> String {
    let name = pick(random, NAMES);
    let spec = pick(random, specs);
    let metadata = pick(random, METADATA);
    // An earlier answer, which may be of another object, an error, or nothing.
    let earlier = format!("s{}", random.usize(..=number));
    let latest = format!("{kind}{name}");
    let manager = pick(random, &["one", "two", "three"]);
    let force = pick(random, &["", "&force=true", "&force=true"]);
    let label = format!("-> {latest}");
    let selector = pick(random, SELECTORS);
    match random.u8(..26) {
        0..=4 => format!("POST {kind} {{metadata: {{name: {name}, {metadata}}}, {spec}}} {label}"),
        5 => format!("PUT {kind}/{name} {{metadata: {{name: {name}, {metadata}}}, {spec}}} {label}"),
        6..=7 => format!("PUT {kind}/{name} ${{{latest}}} + {{metadata: {{{metadata}}}, {spec}}} {label}"),
        8..=9 => format!("MERGE {kind}/{name} {{metadata: {{{metadata}}}, {spec}}} {label}"),
        10 => format!("STRATEGIC {kind}/{name} {{metadata: {{{metadata}}}, {spec}}} {label}"),
        11 => format!(
            "JSON {kind}/{name} [{{op: add, path: /metadata/labels, value: {{x: '{number}'}}}}] {label}"
        ),
        12..=15 => format!(
            "APPLY {kind}/{name}?fieldManager={manager}{force} {{metadata: {{{}}}, {spec}}} {label}",
            metadata.replace("null", "{}").replace("y: {}", "y: w"),
        ),
        16 => format!("MERGE {kind}/{name}?dryRun=All {{{spec}}}"),
        17..=18 => format!("DELETE {kind}/{name}"),
        19 => {
            let policy = pick(random, &["Background", "Foreground", "Orphan"]);
            format!(
                "DELETE {kind}/{name} {{kind: DeleteOptions, apiVersion: v1, propagationPolicy: {policy}}}"
            )
        }
        20 => format!(
            "DELETE {kind}/{name} {{kind: DeleteOptions, apiVersion: v1, preconditions: \
             {{resourceVersion: '${{{earlier}.metadata.resourceVersion}}'}}}}"
        ),
        21 => format!("GET {kind}?labelSelector={selector} -> s{number}"),
        22 => format!("GET {kind}?limit=1 -> s{number}"),
        23 => format!("GET {kind}/{name} -> s{number}"),
        24 => format!("MERGE {kind}/{name} {{metadata: {{finalizers: null}}}} {label}"),
        _ => format!(
            "WATCH w{number} {kind}?labelSelector={selector}\
             &resourceVersion=${{{latest}.metadata.resourceVersion}}"
        ),
    }
}
