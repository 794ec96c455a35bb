//! One program of the cluster: started with a lifeline, watched, stopped.
//!
//! # Invariants
//! 1. Our programs end when their standard input does; the only other end is the `lifeline` of this value, and
//!    the kernel closes it even if this process is killed.
//! 2. Dropping the value kills the program; only `stop` waits until it is gone.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, ChildStdin, Command};

/// Asks the programs of tests/controlplane to end with their standard input; others ignore it.
const LIFELINE_VARIABLE: &str = "MAINSTAY_END_WITH_STDIN";

/// A running program. The process group is its own, so that a Ctrl-C on the terminal reaches only us and we
/// decide in which order things end.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    _lifeline: Option<ChildStdin>,
}

impl Process {
    /// Starts `executable` in `folder`; its output is appended to `log`.
    pub(crate) fn start(
        name: &'static str,
        executable: &Path,
        arguments: &[OsString],
        folder: &Path,
        log: &PathBuf,
    ) -> io::Result<Self> {
        let output = OpenOptions::new().create(true).append(true).open(log)?;
        let mut child = Command::new(executable)
            .args(arguments)
            .current_dir(folder)
            // Nothing of the user's leaks in: no kubeconfig, no proxy, no settings of kwok in a home folder.
            .env_clear()
            .env("HOME", folder)
            .env("TMPDIR", folder)
            .env(LIFELINE_VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let lifeline = child.stdin.take();
        Ok(Self { name, child, _lifeline: lifeline })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of the process while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns how it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        // An error here means that nobody can tell any more; the readiness deadline then ends the wait.
        self.child.try_wait().ok().flatten()
    }

    /// Ends the program, with a request first if `grace` is not zero, and waits until it is gone.
    pub(crate) async fn stop(mut self, grace: Duration) {
        if !grace.is_zero()
            && let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()))
        {
            // Not reaped yet, so the number is still this child's.
            let asked = rustix::process::kill_process(pid, Signal::TERM);
            if asked.is_ok() && tokio::time::timeout(grace, self.child.wait()).await.is_ok() {
                return;
            }
        }
        drop(self.child.kill().await);
    }
}
