//! The clients that are programs of their own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use mainstay_devcluster::DevCluster;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::super::variable;
use super::order::Order;
use super::report::Report;
use super::state::Objects;
use super::{ASSETS, NAMESPACE};

pub(crate) const NAMES: [&str; 3] = ["informers", "sample-controller", "builtins"];

/// The program with the controllers of the real cluster.
const CONTROLLERS: &str = "kube-controller-manager";

/// Their checks of lists fail: their clients set the kind either of events or of items.
const UNCHECKED: [&str; 2] = ["sample-controller", CONTROLLERS];

/// How long a program may take for its end.
const PATIENCE: Duration = Duration::from_mins(1);

/// The running programs.
pub(crate) struct Programs {
    folder: PathBuf,
    kubeconfig: PathBuf,
    running: Vec<(&'static str, Child)>,
}

// === impl Programs ===

impl Programs {
    /// Starts the programs; `controlled` adds the controllers of the real cluster.
    pub(crate) fn start(cluster: &DevCluster, kubeconfig: &Path, controlled: bool) -> Self {
        let folder = cluster.folder().join("clients");
        // Where controller-runtime looks for the certificate of its webhooks.
        let certificates = folder.join("k8s-webhook-server/serving-certs");
        fs::create_dir_all(&certificates).expect("a folder");
        let webhooks = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        fs::write(certificates.join("tls.crt"), webhooks.cert.pem()).expect("a file");
        fs::write(certificates.join("tls.key"), webhooks.signing_key.serialize_pem()).expect("a file");
        let (kubeconfig, running) = (kubeconfig.to_owned(), Vec::new());
        let mut programs = Self { folder, kubeconfig, running };
        let names = NAMES.into_iter().chain(controlled.then_some(CONTROLLERS));
        programs.running = names.map(|name| (name, programs.spawn(name))).collect();
        programs
    }

    fn spawn(&self, name: &str) -> Child {
        let folder = self.folder.as_path();
        let flag = format!("-kubeconfig={}", self.kubeconfig.display());
        let flags = match name {
            "informers" => vec![flag, format!("-namespace={NAMESPACE}"), "-selector=tier=a".to_owned()],
            "sample-controller" => vec![flag],
            CONTROLLERS => vec![
                format!("-{flag}"),
                format!("--cert-dir={}", folder.display()),
                "--leader-elect=false".to_owned(),
                "--controllers=deployment-controller,replicaset-controller,job-controller,\
                 garbage-collector-controller"
                    .to_owned(),
            ],
            _ => Vec::new(),
        };
        let file = |kind: &str| File::create(folder.join(format!("{name}.{kind}"))).expect("a file");
        let assets = PathBuf::from(variable(ASSETS).expect("the folder of the programs"));
        let child = Command::new(assets.join(name))
            .args(flags)
            .env_clear()
            .envs([("HOME", folder), ("TMPDIR", folder), ("KUBECONFIG", &self.kubeconfig)])
            .env("KUBE_WATCHLIST_INCONSISTENCY_DETECTOR", (!UNCHECKED.contains(&name)).to_string())
            .stdin(Stdio::piped())
            .stdout(file("out"))
            .stderr(file("err"))
            .kill_on_drop(true)
            .spawn();
        child.expect("a program")
    }

    /// Starts the controllers of the real cluster again, if they run. After a list that hides a deletion and
    /// a creation under the same name, the garbage collector would keep the dependents of the deleted object.
    pub(crate) async fn restart_controllers(&mut self) {
        if let Some(index) = self.running.iter().position(|(name, _)| *name == CONTROLLERS) {
            self.running[index].1.kill().await.expect("the end");
            self.running[index].1 = self.spawn(CONTROLLERS);
        }
    }

    /// Ends the programs and checks what they printed.
    pub(crate) async fn end(self, objects: &Objects, report: &mut Report) {
        for (name, mut child) in self.running {
            if name == CONTROLLERS {
                // It logs each conflict that it resolves. Only the final objects count.
                if let Some(status) = child.try_wait().expect("a status") {
                    report.problems.push(format!("{name}: {status}"));
                }
                child.kill().await.expect("the end");
                continue;
            }
            if name == "informers" {
                drop(child.stdin.take());
            } else {
                let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
                kill_process(id.expect("a program that runs"), Signal::TERM).expect("a signal");
            }
            let status = timeout(PATIENCE, child.wait()).await.expect("an end in time").expect("a status");
            let log = fs::read_to_string(self.folder.join(format!("{name}.err"))).expect("a log");
            if !status.success() {
                report.problems.push(format!("{name}: {status}\n{log}"));
            }
            if log.contains("data consistency check for ") == UNCHECKED.contains(&name) {
                report
                    .problems
                    .push(format!("{name}: it must check its lists, unless it is one of {UNCHECKED:?}"));
            }
            report.errors(name, log.lines().filter(|line| is_error(line)));
        }
        let output = fs::read_to_string(self.folder.join("informers.out")).expect("the output");
        check_informers(&output, objects, report);
    }
}

/// Whether this is an error in the format of klog or zap, or a panic.
fn is_error(line: &str) -> bool {
    let klog = line.starts_with(['E', 'F']) && line[1..].starts_with(|next: char| next.is_ascii_digit());
    klog || line.starts_with("panic") || line.contains(r#""level":"error""#)
}

/// Checks the events and the caches of `informers`.
fn check_informers(output: &str, objects: &Objects, report: &mut Report) {
    let mut seen: BTreeMap<String, (Order, BTreeMap<String, Value>)> = BTreeMap::new();
    for line in output.lines() {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let plural = text("kind");
        let (order, cached) = seen.entry(plural.clone()).or_default();
        if line["stored"].is_null() {
            order.saw(&text("event"), &text("name"), &text("version"));
        } else {
            let mut object = line["stored"].take();
            let fields = object.as_object_mut().expect("an object");
            fields.remove("apiVersion");
            fields.remove("kind");
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            cached.insert(format!("{plural}/{name}"), object);
        }
    }
    for plural in ["configmaps", "pods", "deployments", "foos"] {
        let (order, cached) = seen.remove(plural).unwrap_or_default();
        let mut objects = objects.clone();
        if plural == "deployments" {
            objects.retain(|_, object| object["metadata"]["labels"]["tier"] == "a");
        }
        report.cache("informers", plural, &order, &cached, &objects);
    }
}
