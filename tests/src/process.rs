//! A manager in a process of its own, to be signalled and killed as an operating system does; or client-go's
//! elector.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::TestCluster;
use crate::manager::configuration_of;
use crate::manifests::Identity;
use crate::wait::{PATIENCE, until_so};

/// Environment variable that makes the programs of `tests/controlplane` end when their standard input closes.
const END_WITH_STDIN: &str = "MAINSTAY_END_WITH_STDIN";

/// Returns a memory field of a process in megabytes, from `/proc/PID/status`: `VmRSS`, the resident memory,
/// `RssAnon`, the part of it without code and other files, or `VmHWM`, its peak.
pub fn memory(process: u32, field: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: f64 =
        kilobytes.with_context(|| format!("no {field} of process {process}"))?.trim().parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

/// A running `mainstay run`, or another program that logs as it does. Dropping it kills the process.
#[derive(Debug)]
pub struct ManagerProcess {
    child: Child,
    /// Standard input of the process, open for as long as this value lives, for programs that end with it.
    /// Kept apart from `child`, because its `wait` would close it.
    _stdin: Option<ChildStdin>,
    /// Lines of the log of the process so far, in order; each a JSON object if it parses as JSON, else a
    /// string.
    log: Arc<Mutex<Vec<Value>>>,
    lines: watch::Receiver<usize>,
    reader: JoinSet<()>,
}

// === impl ManagerProcess ===

impl ManagerProcess {
    /// Starts a manager process from `binary`, which is `env!("CARGO_BIN_EXE_mainstay-under-test")`, with the
    /// shipped configuration and `changes` laid over it.
    pub fn start(
        binary: &str,
        cluster: &TestCluster,
        identity: &Identity,
        name: &str,
        changes: &Value,
    ) -> Self {
        Self::start_with(binary, cluster, identity, name, changes, &[])
    }

    /// Starts a manager process as [`ManagerProcess::start`] does, with these variables in its environment.
    pub fn start_with(
        binary: &str,
        cluster: &TestCluster,
        identity: &Identity,
        name: &str,
        changes: &Value,
        environment: &[(&str, &str)],
    ) -> Self {
        let config = cluster.scratch(&format!("{name}.yaml"));
        let text = configuration_of(cluster, changes).to_string();
        std::fs::write(&config, text).unwrap_or_else(|error| panic!("{}: {error}", config.display()));
        Self::start_from(binary, identity, &config, environment)
    }

    /// Starts a manager process as [`ManagerProcess::start_with`] does, with an existing configuration: a
    /// file, or a folder with a `manager.yaml`.
    pub fn start_from(
        binary: &str,
        identity: &Identity,
        config: &Path,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(binary);
        command.args(["run", "--config"]).arg(config).arg("--kubeconfig").arg(&identity.kubeconfig);
        command.envs(environment.iter().copied()).stdin(Stdio::null());
        Self::spawn(command)
    }

    /// Starts client-go's elector in a process, with these flags. Returns None, after a printed notice, if it
    /// is not built: the test then returns. In CI that fails the test instead.
    pub fn start_elector(cluster: &TestCluster, flags: &[String]) -> Option<Self> {
        let mut command = Command::new(cluster.elector()?);
        command.args(flags).env(END_WITH_STDIN, "1").stdin(Stdio::piped());
        Some(Self::spawn(command))
    }

    /// Starts any command that logs as a manager does, to standard error.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let stdin = child.stdin.take();
        let Some(stderr) = child.stderr.take() else { panic!("standard error is piped") };
        let log = Arc::new(Mutex::new(Vec::new()));
        let (count, lines) = watch::channel(0);
        let mut reader = JoinSet::new();
        let kept = Arc::clone(&log);
        reader.spawn(async move {
            let mut text = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = text.next_line().await {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                kept.lock().push(line);
                count.send_modify(|count| *count += 1);
            }
        });
        Self { child, _stdin: stdin, log, lines, reader }
    }

    /// Returns the id of the process, to look it up under `/proc`.
    pub fn id(&self) -> u32 {
        self.child.id().unwrap_or_else(|| panic!("the process has ended already"))
    }

    /// Sends SIGTERM to the process.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGKILL to the process.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends a signal to the process; SIGSTOP and SIGCONT freeze and thaw it.
    pub fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let Some(id) = id else { panic!("the process has ended already") };
        kill_process(id, signal).unwrap_or_else(|error| panic!("signal {signal:?}: {error}"));
    }

    /// Waits until the process has ended and its log is read to the end. Returns its exit status.
    pub async fn ended(&mut self) -> ExitStatus {
        match tokio::time::timeout(PATIENCE, self.end()).await {
            Ok(status) => status,
            Err(elapsed) => panic!("the process did not end: {elapsed}; its log: {:#?}", self.log.lock()),
        }
    }

    /// Waits for the end of the process as [`ManagerProcess::ended`] does, without a time limit.
    ///
    /// # Cancel safety
    /// Dropping the future loses no state.
    pub async fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().await;
        while self.reader.join_next().await.is_some() {}
        status.unwrap_or_else(|error| panic!("the exit status of the process is unknown: {error}"))
    }

    /// Returns the lines of the log of the process so far.
    pub fn log(&self) -> Vec<Value> {
        self.log.lock().clone()
    }

    /// Waits for the first line of the log that `accepts` takes, and returns it; lines already written count.
    pub async fn logged(&self, expected: &str, accepts: impl Fn(&Value) -> bool) -> Value {
        self.logged_times(expected, 1, accepts).await
    }

    /// Waits for the `count`th line of the log, from 1, that `accepts` takes, and returns it.
    pub async fn logged_times(
        &self,
        expected: &str,
        count: usize,
        accepts: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut lines = self.lines.clone();
        let found = async {
            loop {
                lines.mark_unchanged();
                if let Some(line) = self.log.lock().iter().filter(|line| accepts(line)).nth(count - 1) {
                    return line.clone();
                }
                let more = lines.changed().await.is_ok();
                assert!(more, "the process ended before it logged {expected}: {:#?}", self.log.lock());
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(line) => line,
            Err(tokio::time::error::Elapsed { .. }) => {
                panic!("waited {PATIENCE:?} for a log line: {expected}; log: {:#?}", self.log.lock())
            }
        }
    }

    /// Returns the address on which the server `probes` or `metrics` of the process listens.
    pub async fn address(&self, server: &str) -> SocketAddr {
        let line =
            self.logged("its addresses", |line| line["msg"] == "serving" && line["server"] == server).await;
        let address = line["address"].as_str().and_then(|address| address.parse().ok());
        address.unwrap_or_else(|| panic!("no address in {line}"))
    }

    /// Returns the present metrics of the process as text.
    pub async fn metrics_text(&self) -> String {
        get(self.address("metrics").await, "/metrics").await.1
    }

    /// Returns whether this manager leads, by its metrics.
    pub async fn is_leader(&self) -> bool {
        is_leading(&self.metrics_text().await)
    }

    /// Waits until this manager leads.
    pub async fn leads(&self) {
        until_so("this process to lead", async || self.is_leader().await).await;
    }
}

/// Sends a GET request for a path to a server on loopback, and returns status and body.
pub async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    assert!(address.ip().is_loopback(), "{address} is not on loopback");
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = match tokio::time::timeout(Duration::from_secs(10), answer).await {
        Ok(Ok(answer)) => answer,
        other => panic!("GET {path} from {address}: {other:?}"),
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {head:?}")), body.to_owned())
}

/// Returns whether a manager with these metrics leads.
pub fn is_leading(metrics: &str) -> bool {
    sample(metrics, r#"leader_election_master_status{name="mainstay"}"#) == Some(1.0)
}

/// Returns the value of one series in metrics text, such as `leader_election_master_status{name="mainstay"}`.
pub fn sample(metrics: &str, series: &str) -> Option<f64> {
    let line =
        metrics.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}
