//! The command `cluster`: an embedded server by itself, for people and scripts, in the foreground or in the
//! background.
//!
//! A cluster in the background has a name and a folder, in which its process holds a lock as long as it
//! lives.

mod place;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use clap::{ArgMatches, Command, FromArgMatches as _, Subcommand as _};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::dev_cluster::DevCluster;
use crate::embedded::EmbeddedOptions;
use crate::workloads::Controller;
use place::Place;

/// Longest wait for the end of a cluster.
const END: Duration = Duration::from_secs(20);

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Run a cluster in the foreground until Ctrl-C
    Run(RunFlags),
    /// Start a cluster in the background
    Up(UpFlags),
    /// Print the kubeconfig of a cluster in the background
    Kubeconfig(NameFlag),
    /// End a cluster in the background
    Down(NameFlag),
}

#[derive(clap::Args, Debug)]
struct RunFlags {
    #[command(flatten)]
    server: ServerFlags,
    /// Write the kubeconfig to this file
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Run it as the cluster of this name, which up does
    #[arg(long, value_name = "NAME", hide = true)]
    name: Option<String>,
}

#[derive(clap::Args, Debug)]
struct UpFlags {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    name: NameFlag,
}

#[derive(clap::Args, Debug)]
struct ServerFlags {
    /// Keep objects, certificates and port in this file [default: everything ends with the cluster]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Run no controllers: objects are only stored, as by envtest
    #[arg(long)]
    bare: bool,
    /// The port on 127.0.0.1 [default: that of the last run with --data, else any free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

#[derive(clap::Args, Debug)]
struct NameFlag {
    /// The name of the cluster
    #[arg(long, default_value = "mainstay", value_parser = place::name)]
    name: String,
}

/// Returns the command `cluster` with its subcommands, for a program that has others too.
pub fn command() -> Command {
    with_actions(
        Command::new("cluster").about("Run a Kubernetes API server with the controllers of a small cluster"),
    )
}

/// Executes the parsed command [`command`]. `words` are those of the command line before its subcommand,
/// without the program: `["cluster"]`.
pub fn run(matches: &ArgMatches, words: &[&str]) -> ExitCode {
    let done = Action::from_arg_matches(matches).map_err(io::Error::other).and_then(|action| match action {
        Action::Run(flags) => run_here(flags),
        Action::Up(flags) => up(&flags, words),
        Action::Kubeconfig(flag) => kubeconfig(&flag.name),
        Action::Down(flag) => down(&flag.name),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, there is no other place for the error.
            drop(writeln!(io::stderr(), "error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Executes the command line of a program that has only these subcommands.
pub fn main() -> ExitCode {
    let command = Command::new("mainstay-cluster")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A Kubernetes API server with the controllers of a small cluster, on this machine");
    run(&with_actions(command).get_matches(), &[])
}

fn with_actions(command: Command) -> Command {
    Action::augment_subcommands(command).subcommand_required(true).arg_required_else_help(true)
}

/// Runs a cluster until a signal.
fn run_here(flags: RunFlags) -> io::Result<()> {
    let place = flags.name.as_deref().map(Place::of).transpose()?;
    let _lock = match &place {
        None => None,
        Some(place) => Some(place.lock()?.ok_or_else(|| io::Error::other("it is up already"))?),
    };
    let options = EmbeddedOptions {
        controllers: if flags.server.bare { BTreeSet::new() } else { Controller::ALL.into() },
        data: flags.server.data,
        port: flags.server.port,
        ..EmbeddedOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let cluster = DevCluster::start_embedded(options).await.map_err(io::Error::other)?;
        let path = place.as_ref().map(Place::kubeconfig).or(flags.kubeconfig);
        let path = match path {
            None => cluster.kubeconfig_path().to_owned(),
            Some(path) => {
                write_private(&path, std::fs::read(cluster.kubeconfig_path())?.as_slice())?;
                path
            }
        };
        say(&ready(&path));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        cluster.stop().await;
        Ok(())
    })
}

/// Starts a cluster in the background and returns when it is ready.
fn up(flags: &UpFlags, words: &[&str]) -> io::Result<()> {
    let place = Place::of(&flags.name.name)?;
    let Some(lock) = place.lock()? else {
        say(&format!("cluster {} is up already\n{}", flags.name.name, ready(&place.kubeconfig())));
        return Ok(());
    };
    // The new process takes it.
    drop(lock);
    let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
    arguments.extend(["run", "--name", &flags.name.name].map(OsString::from));
    if let Some(data) = &flags.server.data {
        arguments.extend(["--data".into(), std::path::absolute(data)?.into_os_string()]);
    }
    if flags.server.bare {
        arguments.push("--bare".into());
    }
    if let Some(port) = flags.server.port {
        arguments.extend(["--port".into(), port.to_string().into()]);
    }
    let log = place.log();
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(private(&log)?)
        // Ctrl-C on this terminal is not for it.
        .process_group(0)
        .current_dir("/")
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.is_empty() {
        child.wait()?;
        let mut why = String::new();
        File::open(&log)?.read_to_string(&mut why)?;
        return Err(io::Error::other(why.trim_end().trim_start_matches("error: ").to_owned()));
    }
    say(line.trim_end());
    Ok(())
}

fn kubeconfig(name: &str) -> io::Result<()> {
    let place = Place::of(name)?;
    if place.lock()?.is_some() {
        let why = format!("cluster {name} is not up; start it with: up --name {name}");
        return Err(io::Error::other(why));
    }
    say(std::fs::read_to_string(place.kubeconfig())?.trim_end());
    Ok(())
}

/// Ends a cluster and returns when its process is gone.
fn down(name: &str) -> io::Result<()> {
    let place = Place::of(name)?;
    if place.lock()?.is_some() {
        say(&format!("cluster {name} is not up"));
        return place.remove();
    }
    let process = place.process().and_then(Pid::from_raw);
    kill_process(process.ok_or_else(|| io::Error::other("its process is unknown"))?, Signal::TERM)?;
    let (ended, end) = mpsc::channel();
    let log = place.log();
    // A lock that is waited for knows no limit of time.
    std::thread::spawn(move || ended.send(place.wait().and_then(|_lock| place.remove())));
    let late = || io::Error::other(format!("cluster {name} does not end; see {}", log.display()));
    end.recv_timeout(END).map_err(|_| late())??;
    say(&format!("cluster {name} is down"));
    Ok(())
}

/// The line that tells how to use a cluster.
fn ready(kubeconfig: &Path) -> String {
    format!("export KUBECONFIG={}", kubeconfig.display())
}

fn say(line: &str) {
    // If standard output is closed, nobody wants to know.
    drop(writeln!(io::stdout(), "{line}"));
}

/// Opens an empty file that only this user may read.
fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    private(path)?.write_all(content)
}
