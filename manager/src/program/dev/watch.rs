//! `dev --watch`: this process keeps the cluster and runs the manager as a child process, which is rebuilt
//! and restarted after each save.
//!
//! The child is the command `dev` with the same arguments and the variables below, so it applies definitions
//! and samples as they are now; objects in the cluster stay. It ends when its standard input is closed: also
//! if this process is killed.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use futures_util::future::OptionFuture;
use jiff::Timestamp;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::build::Build;
use super::server::Interrupts;
use super::sources::{self, Sources};
use super::story::Story;
use crate::reconcile::BoxError;

/// The environment variable with the kubeconfig for the child process.
const CLUSTER: &str = "MAINSTAY_DEV_CLUSTER";
/// The environment variable with the milliseconds since the start of the command.
const ELAPSED: &str = "MAINSTAY_DEV_ELAPSED";

/// Longest wait for the end of a child: longer than the default of `shutdown.gracePeriod`.
const END: Duration = Duration::from_secs(40);

/// The part that the parent of a child process decides.
#[derive(Debug)]
pub(super) struct Parent {
    /// The kubeconfig of the cluster.
    pub(super) cluster: PathBuf,
    /// Time since the start of the command.
    pub(super) elapsed: Duration,
}

/// A running manager.
struct Running {
    process: Child,
    /// Closed to end the process in order.
    stdin: Option<ChildStdin>,
}

/// Keeps the manager running on the cluster of this kubeconfig, until Ctrl-C. A change of the package, of the
/// packages that it was built from, or in `others` replaces the manager.
pub(super) async fn run(
    build: &Build,
    others: impl IntoIterator<Item = PathBuf>,
    kubeconfig: &Path,
    story: &Story,
    interrupts: &mut Interrupts,
) -> Result<(), BoxError> {
    let mut sources = Sources::default();
    let began = wall_clock();
    for path in sources::of_package(build.package()).chain(others) {
        sources.add(&path, began).await;
    }
    let mut child: Option<Running> = None;
    let ended = loop {
        story.print("building the program");
        let (began, started) = (wall_clock(), Instant::now());
        // Biased: after an interrupt the result does not matter.
        let result = tokio::select! {
            biased;
            () = interrupts.requested() => break Ok(()),
            result = build.run() => match result {
                Ok(result) => result,
                Err(problem) => break Err(problem),
            },
        };
        for path in &result.sources {
            sources.add(path, began).await;
        }
        if let Some(executable) = result.executable {
            story.print(format_args!("built in {:.1} s", started.elapsed().as_secs_f64()));
            stop(child.take(), story).await?;
            child = Some(start(&executable, kubeconfig, story)?);
        } else {
            let running = if child.is_some() { "the manager before it runs on" } else { "no manager runs" };
            story.print(format_args!("the build failed; {running}; save a file to build again"));
        }
        let interrupted = loop {
            // Biased: an interrupt ends the child as well, and comes before a save.
            tokio::select! {
                biased;
                () = interrupts.requested() => break true,
                Some(status) = OptionFuture::from(child.as_mut().map(|child| child.process.wait())) => {
                    child = None;
                    story.print(describe_end(status?));
                }
                () = sources.changed() => break false,
            }
        };
        if interrupted {
            break Ok(());
        }
    };
    stop(child, story).await?;
    ended
}

/// Returns the decisions of the parent if this process is a child of `dev --watch`.
pub(super) fn parent() -> Option<Parent> {
    let cluster = env::var_os(CLUSTER)?.into();
    let elapsed = env::var(ELAPSED).ok().and_then(|millis| millis.parse().ok());
    Some(Parent { cluster, elapsed: Duration::from_millis(elapsed.unwrap_or_default()) })
}

/// Cancels the token when the parent of this process closes its standard input, or ends.
pub(super) fn end_with_parent(end: CancellationToken) {
    // Reading may block for ever, so no task of the runtime may do it.
    std::thread::spawn(move || {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        end.cancel();
    });
}

fn start(executable: &Path, kubeconfig: &Path, story: &Story) -> Result<Running, BoxError> {
    let process = Command::new(executable)
        .args(env::args_os().skip(1))
        .env(CLUSTER, kubeconfig)
        .env(ELAPSED, story.elapsed().as_millis().to_string())
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut process = process.map_err(|error| format!("{}: {error}", executable.display()))?;
    // Apart from the process, which closes it as soon as it is waited for.
    let stdin = process.stdin.take();
    Ok(Running { process, stdin })
}

/// Ends a child in order, and returns when it has ended.
async fn stop(child: Option<Running>, story: &Story) -> io::Result<()> {
    let Some(Running { mut process, stdin }) = child else { return Ok(()) };
    drop(stdin);
    if let Ok(ended) = timeout(END, process.wait()).await {
        return ended.map(drop);
    }
    story.print(format_args!("the manager did not end within {END:?}; killed"));
    process.kill().await
}

/// Returns the time that file systems note.
fn wall_clock() -> SystemTime {
    Timestamp::now().into()
}

fn describe_end(status: ExitStatus) -> String {
    format!("the manager ended by itself ({status}); save a file to build and start it again")
}
