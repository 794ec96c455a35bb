//! The processes under measurement: programs like those of a user, but without an API server.

use std::env;
use std::process::{ExitCode, Stdio};

use mainstay_tests::process::ManagerProcess;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{inspect, overhead};

/// Environment variable that makes a process a subject; its value is the name of the subject.
const VARIABLE: &str = "MAINSTAY_OPERATE_SUBJECT";

/// A running subject. Dropping it kills the process.
pub(crate) struct Subject {
    pub(crate) process: ManagerProcess,
    name: &'static str,
    /// The folder with the configuration, `manager.yaml`.
    _folder: TempDir,
}

/// Runs a subject to its end if the environment makes this process one.
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
    /// Starts the manager of one subject with these settings of its controllers (the section `controllers` of
    /// the configuration) and these environment variables.
    pub(crate) fn start(
        name: &'static str,
        controllers: &Value,
        environment: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        Self::start_at(name, controllers, environment, "info")
    }

    /// As [`Subject::start`], with this log level.
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
        // Port 1 has no listener; the subject never connects to it.
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

    /// Returns a command that runs the program of this subject again.
    pub(crate) fn command(&self) -> anyhow::Result<Command> {
        command(self.name)
    }

    /// Sends SIGTERM and waits until the process has ended with success.
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
