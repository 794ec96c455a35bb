//! One program of the cluster: started with a lifeline, watched, stopped.
//!
//! # Invariants
//! 1. The programs of tests/controlplane end when their standard input does; its only other end is the
//!    `lifeline` of this value, and the kernel closes it even if this process is killed.
//! 2. Dropping the value kills the program; only `stop` waits until it is gone.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, ChildStdin, Command};

/// Environment variable that makes the programs of tests/controlplane end when their standard input closes;
/// other programs ignore it.
const LIFELINE_VARIABLE: &str = "MAINSTAY_END_WITH_STDIN";

/// A running program of the control plane. It has its own process group, so that a Ctrl-C on the terminal
/// reaches only this process, which decides in which order the programs end.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    _lifeline: Option<ChildStdin>,
}

impl Process {
    /// Starts the program `executable` in `folder`; its output is appended to `log`.
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
            // No setting of the user leaks in: no kubeconfig, no proxy, no settings of kwok in a home folder.
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

    /// Returns the process id while the program runs, else `None`.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the exit status of the program once it has ended, else `None`.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        // An error here hides the status for good; the readiness deadline then ends the wait.
        self.child.try_wait().ok().flatten()
    }

    /// Ends the program and waits until it is gone: SIGTERM first if `grace` is not zero, then SIGKILL.
    pub(crate) async fn stop(mut self, grace: Duration) {
        if !grace.is_zero()
            && let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()))
        {
            // Not reaped yet, so the id is still this child's.
            let sent = rustix::process::kill_process(pid, Signal::TERM);
            if sent.is_ok() && tokio::time::timeout(grace, self.child.wait()).await.is_ok() {
                return;
            }
        }
        drop(self.child.kill().await);
    }
}
