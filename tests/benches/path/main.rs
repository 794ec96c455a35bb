//! The whole path of an event, on a real API server: from the socket to the reconcile that reads the object
//! typed.
//!
//! `cargo bench -p mainstay-tests --bench path` starts a control plane, fills it with Pods, and then three
//! times starts this program again as the *subject*: a manager with one controller and four workers that
//! reads every Pod and writes nothing. The figures are the subject's own memory, processor time and
//! latencies; the load runs in this process.
//!
//! `overhead` is the time from the arrival of a change on a raw watch to the reconcile that reads it. The raw
//! watch and the cache have separate connections, so the figure contains the difference of the server's
//! delays to both. `queue` is the part within the process, from the delta to the reconcile.
//!
//! With `MAINSTAY_BENCH=quick` there are a tenth of the Pods and patches, and one run.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

mod load;
#[path = "../../../manager/benches/cache/pods.rs"]
mod pods;
mod subject;
mod watcher;

use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use mainstay_devcluster::DevCluster;
use mainstay_tests::report::figure;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use self::load::Load;

/// The allocator of the program `mainstay`, so that the subject behaves like it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Environment variable that makes a process the subject; its value is the path of the kubeconfig.
const SUBJECT: &str = "MAINSTAY_PATH_KUBECONFIG";

/// The size of the measurement.
#[derive(Clone, Copy)]
struct Form {
    pods: u32,
    patches: u32,
    runs: usize,
}

/// A running process under measurement.
struct Subject {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

fn main() -> anyhow::Result<()> {
    let form = Form::new();
    if let Some(kubeconfig) = std::env::var_os(SUBJECT) {
        return subject::run(Path::new(&kubeconfig), form.pods, form.patches);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let cluster = DevCluster::real().await?;
        let measured = measure(&cluster, form).await;
        cluster.stop().await;
        measured
    })
}

async fn measure(cluster: &DevCluster, form: Form) -> anyhow::Result<()> {
    let load = Load::connect(cluster.kubeconfig_path()).await?;
    load.fill(form.pods).await.context("filling the cluster")?;
    let mut runs: Vec<Vec<(String, f64, String)>> = Vec::new();
    for round in 0..form.runs {
        let mut subject = Subject::start(cluster.kubeconfig_path())?;
        let mut figures = subject.until("ready").await?;
        load.patch(round, form.pods, form.patches).await.context("patching")?;
        subject.go_on().await?;
        figures.extend(subject.until("end").await?);
        println!("run {}: {figures:?}", round + 1);
        runs.push(figures);
    }
    for (at, (name, _, unit)) in runs.first().into_iter().flatten().enumerate() {
        let mut values: Vec<f64> = runs.iter().filter_map(|run| Some(run.get(at)?.1)).collect();
        values.sort_by(f64::total_cmp);
        figure(&format!("path.{name}"), values[values.len() / 2], unit);
    }
    Ok(())
}

// === impl Form ===

impl Form {
    fn new() -> Self {
        if std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick") {
            Self { pods: 2_000, patches: 600, runs: 1 }
        } else {
            Self { pods: 20_000, patches: 6_000, runs: 3 }
        }
    }
}

// === impl Subject ===

impl Subject {
    fn start(kubeconfig: &Path) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .env(SUBJECT, kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().context("the subject has no output")?;
        Ok(Self { process, lines: BufReader::new(stdout).lines() })
    }

    /// Reads figures up to the line `mark`.
    async fn until(&mut self, mark: &str) -> anyhow::Result<Vec<(String, f64, String)>> {
        let mut figures = Vec::new();
        while let Some(line) = self.lines.next_line().await? {
            match line.split(' ').collect::<Vec<_>>()[..] {
                [word] if word == mark => return Ok(figures),
                [name, value, unit] => figures.push((name.to_owned(), value.parse()?, unit.to_owned())),
                _ => anyhow::bail!("unexpected line of the subject: {line:?}"),
            }
        }
        anyhow::bail!("the subject ended before it printed {mark:?}")
    }

    /// Signals the subject that all patches have been answered.
    async fn go_on(&mut self) -> anyhow::Result<()> {
        let stdin = self.process.stdin.as_mut().context("the subject has no input")?;
        Ok(stdin.write_all(b"sent\n").await?)
    }
}
