//! Runs a command as in a terminal: reads the lines of its standard output, and sends Ctrl-C.

use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

use crate::wait::PATIENCE;

/// A running command in a process group of its own, as a shell would start it. Dropping it kills the command.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Lines of the command's standard output that were read so far.
    printed: Vec<String>,
    /// The task that reads the command's standard error to its end.
    errors: JoinSet<String>,
}

impl Terminal {
    /// Starts the command `binary` with these arguments, and with the environment of the test.
    pub fn start(binary: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary);
        command.args(arguments);
        Self::run(command)
    }

    /// Starts a command.
    pub fn run(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
            panic!("both outputs are piped")
        };
        let mut errors = JoinSet::new();
        errors.spawn(async move {
            let mut text = String::new();
            // Text up to a read error is enough for a failure message.
            drop(stderr.read_to_string(&mut text).await);
            text
        });
        Self { child, lines: BufReader::new(stdout).lines(), printed: Vec::new(), errors }
    }

    /// Returns the process id of the command.
    pub fn id(&self) -> u32 {
        self.child.id().unwrap_or_else(|| panic!("the command has ended: {:#?}", self.printed))
    }

    /// Reads lines of standard output until one contains `text`, and returns that line; None if the command
    /// ends first.
    pub async fn line_with(&mut self, text: &str) -> Option<String> {
        let printed = &mut self.printed;
        let reading = async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                printed.push(line.clone());
                if line.contains(text) {
                    return Some(line);
                }
            }
            None
        };
        let read = tokio::time::timeout(PATIENCE, reading).await;
        read.unwrap_or_else(|_elapsed| {
            panic!("waited {PATIENCE:?} for {text:?}; printed: {:#?}", self.printed)
        })
    }

    /// Returns the lines of the command's standard output that were read so far.
    pub fn printed(&self) -> &[String] {
        &self.printed
    }

    /// Sends SIGINT to the whole process group of the command, as Ctrl-C does.
    pub fn interrupt(&self) {
        let Some(group) = Pid::from_raw(self.id().cast_signed()) else { panic!("no process has number 0") };
        kill_process_group(group, Signal::INT).unwrap_or_else(|error| panic!("SIGINT: {error}"));
    }

    /// Waits for the end of the command, and returns the exit status with all of standard error. Reads
    /// standard output to its end.
    pub async fn ended(&mut self) -> (ExitStatus, String) {
        let ending = async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                self.printed.push(line);
            }
            let errors = self.errors.join_next().await.and_then(Result::ok).unwrap_or_default();
            (self.child.wait().await, errors)
        };
        match tokio::time::timeout(PATIENCE, ending).await {
            Ok((Ok(status), errors)) => (status, errors),
            other => panic!("the command did not end: {other:?}; printed: {:#?}", self.printed),
        }
    }
}
