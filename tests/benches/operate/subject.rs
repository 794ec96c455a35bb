//! The processes under measurement: programs as a user writes them, with everything but an API server.

use std::env;
use std::process::{ExitCode, Stdio};

use mainstay_tests::process::ManagerProcess;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{inspect, overhead};

/// Says to a process which subject it is.
const VARIABLE: &str = "MAINSTAY_OPERATE_SUBJECT";

/// A running subject. Dropping it kills the process.
pub(crate) struct Subject {
    pub(crate) process: ManagerProcess,
    name: &'static str,
    /// Holds its configuration, `manager.yaml`.
    _folder: TempDir,
}

/// Runs a subject to its end if the environment says that this process is one.
pub(crate) fn main() -> Option<ExitCode> {
    let program = match env::var(VARIABLE).ok()?.as_str() {
        inspect::SUBJECT => inspect::program(),
        overhead::SUBJECT => overhead::program(),
        _ => return None,
    };
    Some(program.main())
}

// === impl Subject ===

impl Subject {
    /// Starts the manager of one subject with these controllers' settings, as the file has them, and these variables in its
    /// environment.
    pub(crate) fn start(
        name: &'static str,
        controllers: &Value,
        environment: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        Self::start_at(name, controllers, environment, "info")
    }

    /// As [`Subject::start`], with this level of the log.
    pub(crate) fn start_at(
        name: &'static str,
        controllers: &Value,
        environment: &[(&str, String)],
        level: &str,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let configuration = json!({
            "apiVersion": "config.mainstay.dev/v1alpha1",
            "kind": "ManagerConfiguration",
            "leaderElection": {"enabled": false},
            "health": {"bindAddress": "127.0.0.1:0"},
            "metrics": {"bindAddress": "127.0.0.1:0"},
            "inspect": {"bindAddress": "127.0.0.1:0"},
            "logging": {"level": level},
            "controllers": controllers,
        });
        std::fs::write(folder.path().join("manager.yaml"), configuration.to_string())?;
        // Nobody listens there, and nobody is asked.
        let cluster = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "none",
            "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
            "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "none", "user": {}}],
        });
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.to_string())?;
        let mut command = command(name)?;
        command.args(["run", "--config"]).arg(folder.path()).arg("--kubeconfig").arg(kubeconfig);
        command.envs(environment.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        Ok(Self { process: ManagerProcess::spawn(command), name, _folder: folder })
    }

    /// Returns its program once more, for another of its commands.
    pub(crate) fn command(&self) -> anyhow::Result<Command> {
        command(self.name)
    }

    /// Tells it to stop and waits until it has, in order.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.process.terminate();
        let status = self.process.ended().await;
        anyhow::ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }
}

fn command(name: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.env(VARIABLE, name);
    Ok(command)
}
