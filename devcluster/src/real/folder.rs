//! The temporary folder of one cluster: removed with it, except for logs that explain a failure.
//!
//! A tiny shell process removes it after the end of its standard input. The kernel closes the other end in
//! every death of this process, so a killed test leaves no folder behind either; the removal needs no
//! destructor.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, ChildStdin, Command};

/// A shell script that removes the folder `$1` after its standard input closes. The programs end on the same
/// signal and may write a last file while it works, hence the ten rounds.
const REMOVER: &str =
    r#"cat >/dev/null; for round in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && exit 0; sleep 0.5; done"#;

/// The temporary folder of one cluster, which a separate process removes when this process ends.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The process that removes the folder, and the other end of its standard input.
    remover: Option<(Child, ChildStdin)>,
}

impl Folder {
    /// Makes the folder of a cluster, closed to other users: it holds keys, and perhaps the data of etcd.
    pub(crate) fn create() -> io::Result<Self> {
        let path = tempfile::Builder::new().prefix("mainstay-devcluster-").tempdir()?.keep();
        let mut child = Command::new("sh")
            .args(["-c", REMOVER, "sh"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C on the terminal must end this process only; the remover outlives it.
            .process_group(0)
            .spawn()?;
        let remover = child.stdin.take().map(|lifeline| (child, lifeline));
        fs::create_dir(path.join("logs"))?;
        Ok(Self { path, remover })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the log file of a program of the cluster.
    pub(crate) fn log(&self, program: &str) -> PathBuf {
        self.path.join("logs").join(format!("{program}.log"))
    }

    /// Copies the logs to a folder that outlives the cluster, and returns that folder.
    pub(crate) fn keep_logs(&self) -> io::Result<PathBuf> {
        let kept = tempfile::Builder::new().prefix("mainstay-devcluster-logs-").tempdir()?.keep();
        for entry in fs::read_dir(self.path.join("logs"))? {
            let entry = entry?;
            fs::copy(entry.path(), kept.join(entry.file_name()))?;
        }
        Ok(kept)
    }

    /// Removes the folder of the cluster now and returns when it is gone.
    pub(crate) async fn remove(self) {
        if let Some((mut child, lifeline)) = self.remover {
            drop(lifeline);
            // A failed removal leaves the folder behind, and there is no better remedy.
            drop(child.wait().await);
        }
    }
}
