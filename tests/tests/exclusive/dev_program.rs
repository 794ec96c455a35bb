//! The command `dev` of a program with samples: the story of its controllers, and bad samples.

use std::path::Path;

use mainstay_tests::report::figure;
use mainstay_tests::{Terminal, greetings};
use tokio::process::Command;

use crate::dev::problems;

const WORLD: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
    apiVersion: test.mainstay.dev/v1\nkind: Greeting\nmetadata: {name: world, namespace: shop}\n\
    spec: {name: world}\n";

/// Returns a new folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a written file");
    }
    folder
}

/// Starts `dev` of the program that greets with this word.
fn dev(word: &str, samples: &Path) -> Terminal {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
    command.args(["dev", "--samples"]).arg(samples).env(greetings::VARIABLE, word);
    Terminal::run(command)
}

#[tokio::test]
async fn samples_are_applied_in_order_and_reconciles_are_printed() {
    let samples = folder(&[
        ("b.yml", "---\n# Nothing.\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: last}\n"),
        ("a.yaml", WORLD),
        ("notes.txt", "no sample"),
    ]);
    let mut dev = dev("hello", samples.path());
    for expected in [
        "the cluster is ready; for kubectl: export KUBECONFIG=",
        "the CRD greetings.test.mainstay.dev is installed",
        "applied Namespace shop of ",
        "a.yaml, document 2",
        "applied ConfigMap last of ",
    ] {
        assert!(dev.line_with(expected).await.is_some(), "{:?}", dev.ended().await);
    }
    // In any order, so each is looked for in everything that has been printed.
    let mut seconds = None;
    for expected in [
        "greeter: first reconcile of shop/world",
        "ConfigMap shop/world: created for Greeting world",
        "Greeting shop/world: status greeting=\"hello world\"",
        "Greeting shop/world: Ready=True (Greeted): said hello world",
        "Greeting shop/world: Event Normal Greeted: hello world",
    ] {
        let known = dev.printed().iter().find(|line| line.contains(expected)).cloned();
        let line = match known {
            Some(line) => line,
            None => dev.line_with(expected).await.unwrap_or_else(|| panic!("{:#?}", dev.printed())),
        };
        seconds = seconds.or_else(|| line[1..].split_whitespace().next()?.parse().ok());
    }
    figure("dev.first_reconcile", seconds.expect("the seconds of a line"), "s");
    dev.interrupt();
    let (status, errors) = dev.ended().await;
    assert!(status.success() && problems(&errors).is_empty(), "{status}: {errors}");
}

#[tokio::test]
async fn a_failure_is_printed_once() {
    let samples = folder(&[("a.yaml", WORLD)]);
    let mut dev = dev(greetings::SILENT, samples.path());
    let failed = "greeter: reconcile of shop/world failed: no word to say";
    assert!(dev.line_with(failed).await.is_some(), "{:?}", dev.ended().await);
    dev.interrupt();
    let (status, errors) = dev.ended().await;
    assert!(status.success() && problems(&errors).is_empty(), "{status}: {errors}");
    assert_eq!(dev.printed().iter().filter(|line| line.contains("failed")).count(), 1);
}

#[tokio::test]
async fn bad_samples_are_named_before_anything_starts() {
    let samples = folder(&[
        ("a.yaml", "kind: ConfigMap\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: 3}\n"),
        ("b.yaml", "a: b\n  c: d\n"),
    ]);
    let mut dev = dev("hello", samples.path());
    let (status, errors) = dev.ended().await;
    let place = samples.path().display();
    assert_eq!(status.code(), Some(2), "{errors}");
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!(
        lines[..2],
        [
            format!("error: {place}/a.yaml, document 1: apiVersion is missing"),
            format!("error: {place}/a.yaml, document 2: metadata.name is 3; expected a text"),
        ]
    );
    assert!(lines.len() == 3 && lines[2].starts_with(&format!("error: {place}/b.yaml:2: ")), "{errors}");
    assert_eq!(dev.printed(), [""; 0]);

    let mut dev = self::dev("hello", Path::new("/no/such/folder"));
    let (status, errors) = dev.ended().await;
    assert_eq!(status.code(), Some(2));
    assert_eq!(errors, "error: samples /no/such/folder: No such file or directory (os error 2)\n");
}

#[tokio::test]
async fn refused_samples_are_named_with_the_answer_of_the_server() {
    let samples = folder(&[
        ("a.yaml", &WORLD.replace("{name: world}", "{name: ''}")),
        ("b.yaml", "apiVersion: shop.dev/v1\nkind: Order\nmetadata: {name: one}\n"),
    ]);
    let mut dev = dev("hello", samples.path());
    let (status, errors) = dev.ended().await;
    let place = samples.path().display();
    assert_eq!(status.code(), Some(2), "{errors}");
    let lines: Vec<_> = errors.lines().collect();
    let refused = format!("error: {place}/a.yaml, document 2: Greeting shop/world: ");
    assert!(lines[0].starts_with(&refused) && lines[0].contains("spec.name"), "{errors}");
    let absent = "the API server does not serve Order in shop.dev/v1; install its CRD first";
    assert_eq!(lines[1], format!("error: {place}/b.yaml, document 1: Order one: {absent}"));
}
