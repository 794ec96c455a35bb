//! kubectl prints the same on the embedded server as on the real one.
//!
//! `commands.txt` has the commands and `record.txt` what they print on the real server, with marks in place
//! of what differs in every run ([`normal`]). The test runs the commands on the embedded server and compares.
//! With `KUBECTL_RECORD=1` it runs them on the real server and writes the record; `KUBECTL_ONLY` is a part of
//! the names of the sections to run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends with the first thing that should not be"
)]

mod normal;
mod script;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainstay_devcluster::{ControlPlane, DevCluster, Options, Progress};
use tokio::process::Command;
use tokio::time::timeout;

use script::Section;

/// Sections that run at the same time.
const AT_ONCE: usize = 4;

/// Longer than any command takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where all sections run: a folder for their files, the folder of kubectl, and the connection.
struct Place {
    folder: PathBuf,
    programs: PathBuf,
    kubeconfig: String,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Prints past the test runner's capture.
fn print(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_prints_the_same_on_both_servers() {
    let kubectl = match ControlPlane::find_kubectl(Progress::default()).await {
        Ok(kubectl) => kubectl,
        Err(error) => {
            assert!(variable("CI").is_none(), "{error}");
            return print(&format!("skipped: {error}"));
        }
    };
    let record = variable("KUBECTL_RECORD").is_some();
    let cluster =
        if record { DevCluster::start_real(Options::default()).await } else { DevCluster::start().await };
    let cluster = cluster.expect("a cluster");
    let place = Place {
        folder: cluster.folder().join("kubectl"),
        programs: kubectl.parent().expect("a folder").to_owned(),
        kubeconfig: std::fs::read_to_string(cluster.kubeconfig_path()).expect("a kubeconfig"),
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl");
    let read = |name: &str| std::fs::read_to_string(here.join(name)).expect("a file of this test");
    let mut sections = script::parse(&read("commands.txt"));
    let only = variable("KUBECTL_ONLY");
    sections.retain(|section| only.as_ref().is_none_or(|part| section.name.contains(part.as_str())));
    let commands: usize = sections.iter().map(|section| section.commands.len()).sum();

    let mut runs =
        futures_util::stream::iter(&sections).map(|section| run(&place, section)).buffered(AT_ONCE);
    let mut printed = Vec::new();
    while let Some(outputs) = runs.next().await {
        printed.push(outputs);
    }
    drop(runs);
    cluster.stop().await;
    if record {
        assert!(only.is_none(), "a record has all sections");
        let text = script::record(&sections, &printed);
        return std::fs::write(here.join("record.txt"), text).expect("the record is written");
    }

    let recorded = script::recorded(&read("record.txt"));
    let (mut reports, mut accepted) = (Vec::new(), 0);
    for (section, outputs) in sections.iter().zip(&printed) {
        let recorded = recorded.get(&section.name).map(Vec::as_slice).unwrap_or_default();
        for (index, (command, output)) in section.commands.iter().zip(outputs).enumerate() {
            let expected = recorded.get(index).filter(|(text, _)| *text == command.text);
            let expected = expected.map(|(_, output)| output.as_str());
            if expected == Some(output) {
                assert!(!command.differs, "{}: no difference any more: {}", section.name, command.text);
            } else if command.differs {
                accepted += 1;
            } else {
                reports.push(report(section, &command.text, output, expected));
            }
        }
    }
    print(&format!("figure kubectl.commands {commands} count"));
    print(&format!("figure kubectl.differences {} count", reports.len() + accepted));
    assert!(reports.is_empty(), "{} commands differ:\n{}", reports.len(), reports.join("\n"));
}

/// Runs the commands of a section in its own namespace and returns what each has printed.
async fn run(place: &Place, section: &Section) -> Vec<String> {
    let home = place.folder.join(&section.name);
    std::fs::create_dir_all(&home).expect("a folder");
    std::fs::write(home.join("kubeconfig"), &place.kubeconfig).expect("a kubeconfig");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", place.programs.display());
    let mut outputs = Vec::new();
    let name = &section.name;
    let create =
        format!("kubectl config set-context --current --namespace={name} && kubectl create namespace {name}");
    for text in std::iter::once(create.as_str()).chain(section.commands.iter().map(|it| it.text.as_str())) {
        let mut command = Command::new("sh");
        command.args(["-c", text]).current_dir(&home).stdin(Stdio::null()).kill_on_drop(true);
        command.env_clear().env("PATH", &path).env("HOME", &home).env("KUBECONFIG", home.join("kubeconfig"));
        // The text of errors of the system, and the order in which `sort` sorts.
        command.env("LC_ALL", "C").env("TMPDIR", &home);
        let output = timeout(PATIENCE, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("{}: {text} does not end", section.name));
        outputs.push(normal::output(&output.expect("a shell")));
    }
    outputs.split_off(1)
}

/// Shows the lines that differ.
fn report(section: &Section, command: &str, output: &str, expected: Option<&str>) -> String {
    let mut report = format!("== {}\n$ {command}", section.name);
    let Some(expected) = expected else { return report + "\n   it is not in the record" };
    let (ours, theirs): (Vec<_>, Vec<_>) = (output.lines().collect(), expected.lines().collect());
    let same = ours.iter().zip(&theirs).take_while(|(ours, theirs)| ours == theirs).count();
    for (mark, lines) in [("embedded", &ours), ("real", &theirs)] {
        for line in lines.iter().skip(same).take(12) {
            let _infallible = write!(report, "\n   {mark:<8} {line}");
        }
    }
    report
}
