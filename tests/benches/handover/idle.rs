//! The cost of two idle replicas: the leader and a standby.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use mainstay_tests::TestCluster;
use mainstay_tests::process::memory;
use mainstay_tests::report::figure;
use tokio::time::{Instant, sleep};

use crate::Form;
use crate::replica::{Replica, Task};

/// Pause before the measurement, for background work such as returning memory to the kernel.
const SETTLE: Duration = Duration::from_secs(10);
/// As a test: how often the kernel may schedule an idle process. The measured rate is a tenth of this.
const RUNS_PER_SECOND: f64 = 100.0;
/// As a test: the most anonymous memory. The code in memory is not held to a bound, because it grows with
/// every library of the tests and is several times as long as optimised code.
const ANONYMOUS_MB: f64 = 20.0;

/// The processor time of a process so far, from `schedstat`, which is exact, while `utime` counts ticks.
struct Used {
    /// By thread: nanoseconds on a processor, and how often the kernel scheduled the thread.
    threads: BTreeMap<String, (u64, u64)>,
    at: Instant,
}

pub(crate) async fn measure(cluster: &TestCluster, form: Form) -> anyhow::Result<()> {
    let leader = Replica::start(cluster, Task::Idle, "idle-leader", &form.changes())?;
    leader.leads().await;
    let standby = Replica::start(cluster, Task::Idle, "idle-standby", &form.changes())?;
    let replicas = [("leader", leader), ("standby", standby)];
    for (_, replica) in &replicas {
        replica.is_warm().await;
    }
    sleep(SETTLE).await;
    let mut before = Vec::new();
    for (_, replica) in &replicas {
        before.push(Used::by(replica.process.id())?);
    }
    sleep(form.idle).await;
    for ((name, replica), before) in replicas.iter().zip(before) {
        let id = replica.process.id();
        let (cpu, runs) = Used::by(id)?.since(&before);
        let (resident, anonymous) = (memory(id, "VmRSS")?, memory(id, "RssAnon")?);
        figure(&format!("idle.{name}_cpu_percent"), cpu * 1e2, "%");
        figure(&format!("idle.{name}_runs_per_s"), runs, "1/s");
        figure(&format!("idle.{name}_rss_mb"), resident, "MB");
        anyhow::ensure!(
            runs < RUNS_PER_SECOND || !form.test,
            "the idle {name} is scheduled {runs} times a second"
        );
        anyhow::ensure!(
            anonymous < ANONYMOUS_MB || !form.test,
            "the idle {name} has {anonymous} MB of anonymous memory"
        );
    }
    for (name, mut replica) in replicas {
        replica.process.terminate();
        let status = replica.process.ended().await;
        anyhow::ensure!(status.success(), "the idle {name} ended with {status}");
    }
    Ok(())
}

// === impl Used ===

impl Used {
    fn by(process: u32) -> anyhow::Result<Self> {
        let mut threads = BTreeMap::new();
        for task in fs::read_dir(PathBuf::from(format!("/proc/{process}/task")))? {
            let task = task?;
            let text = fs::read_to_string(task.path().join("schedstat"))?;
            let mut fields = text.split_ascii_whitespace().map(str::parse);
            let (run, _waited, times) = (fields.next(), fields.next(), fields.next());
            let (run, times) = run.zip(times).context("the kernel keeps no schedstat")?;
            threads.insert(task.file_name().to_string_lossy().into_owned(), (run?, times?));
        }
        Ok(Self { threads, at: Instant::now() })
    }

    /// Returns seconds on a processor and how often the kernel scheduled a thread, both per second since
    /// `before`.
    fn since(&self, before: &Self) -> (f64, f64) {
        let (mut run, mut times) = (Duration::ZERO, 0u32);
        for (thread, (nanos, count)) in &self.threads {
            let (nanos_before, count_before) = before.threads.get(thread).copied().unwrap_or_default();
            run += Duration::from_nanos(nanos.saturating_sub(nanos_before));
            times += u32::try_from(count.saturating_sub(count_before)).unwrap_or(u32::MAX);
        }
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        (run.as_secs_f64() / seconds, f64::from(times) / seconds)
    }
}
