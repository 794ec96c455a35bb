//! `inspect`: the debug pages of a running manager, as tables.
//!
//! A client in another process, on this machine or behind `kubectl port-forward`; in a Pod it is the binary itself, by
//! `kubectl exec POD -- mainstay inspect`. With `-w` it requests the page again each second and prints the rows that
//! changed. Standard error has notes beside the table, such as how many rows are not shown. Its actions are those of the
//! pages.

mod client;
mod duration;
mod follow;
mod page_command;
mod standby;
mod table;
mod tables;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches as _, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};

use super::flags::add_args;
use super::{Failure, Output};
use crate::config::{ConfigError, ConfigSchema, ManagerConfiguration, Overrides};
use crate::inspect::{pages, sorts, states};
use crate::key::Chain;

use client::{Answer, Server};
use table::Table;

pub use duration::ShortDuration;
pub use page_command::PageCommand;

/// Where a manager serves its debug pages unless its configuration says otherwise.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8082";

#[derive(Args, Debug)]
struct Flags {
    #[command(subcommand)]
    what: InspectCommand,
    #[command(flatten)]
    target: ServerFlags,
    /// Read again each second: after the table, print the rows that have changed
    #[arg(short, long, global = true)]
    watch: bool,
}

/// Which manager to read from, and how to print the answer.
#[derive(Args, Debug)]
struct ServerFlags {
    /// Where the manager serves its debug pages [default: what --config says, else 127.0.0.1:8082]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    address: Option<String>,
    /// The configuration that the manager runs with, for its address and its token: a file, or a directory with a manager.yaml
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// File with the token that the manager asks for [over inspect.tokenFile]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Have the replica that is asked answer, also where inspect.peers has a standby ask the leader
    #[arg(long, global = true)]
    own: bool,
    /// How to print the answer; json prints it as it is
    #[arg(short, long, global = true, value_name = "FORMAT", value_parser = ["table", "json"], default_value = "table")]
    output: String,
}

#[derive(Subcommand, Debug)]
enum InspectCommand {
    #[command(flatten)]
    Page(Page),
    #[command(flatten)]
    Action(Action),
}

#[derive(Subcommand, Debug)]
enum Page {
    /// Print the controllers, and how many keys of each are in which state
    Controllers,
    /// Print the keys of a controller's queue, those in trouble first
    Queue(Queue),
    /// Print the stores of the cache
    Caches,
    /// Print the lists and watches of the cache
    Watches,
    /// Print the configuration in force, and where each value came from
    Config,
    /// Print the leader, and the history of the Lease
    Leader,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Run one object now, also out of its backoff, on the queue or not
    Reconcile {
        /// The controller
        controller: String,
        /// The object, as `inspect queue` shows it: NAMESPACE/NAME, or NAME
        key: String,
    },
    /// Change the log level
    Log {
        /// Such as `debug`, or `info,mainstay::queue=debug`
        level: String,
    },
}

#[derive(Args, Debug)]
struct Queue {
    /// The controller
    controller: String,
    /// Only keys in this state, several times for several; delayed is backoff and requeued
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(states()))]
    state: Vec<String>,
    /// Only keys of this namespace, "" for keys without one
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only keys of this name
    #[arg(long)]
    name: Option<String>,
    /// Their order
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(sorts()))]
    sort: Option<String>,
    /// How many are shown at most [default: 1000]
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
    /// Only keys behind this one, with --sort name
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
}

/// Describes the command.
pub(super) fn command() -> Command {
    add_args::<Flags>(Command::new("inspect").about("Look into a running manager"))
}

/// Carries the command out.
pub(super) fn run(
    matches: &ArgMatches,
    schema: &ConfigSchema,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let flags = Flags::from_arg_matches(matches)?;
    let server = flags.target.server(schema, output)?;
    let json = flags.target.json();
    block_on(async {
        match &flags.what {
            InspectCommand::Action(_) if flags.watch => {
                Err(Failure::wrong_input("an action is done once; leave -w out"))
            }
            InspectCommand::Action(action) => {
                let (path, body) = action.request();
                let Answer { body, standby } = server.post(&path, &body).await?;
                output.print(&if json { body } else { Action::text(body) })?;
                standby::tell(standby.as_ref(), output);
                Ok(())
            }
            InspectCommand::Page(page) if flags.watch => follow::follow(page, json, &server, output).await,
            InspectCommand::Page(page) => {
                let Answer { body, standby } = server.get(&page.path()).await?;
                if json {
                    output.print(&body)?;
                } else {
                    let table = page.table(&body)?;
                    output.print(&table.to_string())?;
                    table.notes.iter().for_each(|note| output.note(note));
                }
                standby::tell(standby.as_ref(), output);
                Ok(())
            }
        }
    })
}

/// Runs a command on this thread.
fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::other)?.block_on(command)
}

/// An answer in another form than that of the page: of another version, or of another program.
fn unknown_form(path: &str, error: &serde_json::Error) -> Failure {
    Failure::other(format_args!(
        "the answer to {path} is not what this version expects; use the binary that the manager runs, or -o json: {error}"
    ))
}

// === impl ServerFlags ===

impl ServerFlags {
    fn json(&self) -> bool {
        self.output == "json"
    }

    fn server(&self, schema: &ConfigSchema, output: &mut Output<'_>) -> Result<Server, Failure> {
        let (mut address, mut token_file) = (self.address.clone(), self.token_file.clone());
        let mut certificate = None;
        if let Some(path) = &self.config {
            let inspect = match schema.load(path, &Overrides::default()) {
                Ok(loaded) => loaded.configuration.inspect,
                Err(error @ ConfigError::Read { .. }) => return Err(Failure::from(&error)),
                // A manager that refuses this file runs on with the one before, and can be inspected.
                Err(error) => {
                    let text = "the manager may run on with an older one; its default address is assumed";
                    output.note(&format!("{}\n{text}, and no token", error.lines().join("\n")));
                    ManagerConfiguration::default().inspect
                }
            };
            token_file = token_file.or(inspect.token_file);
            certificate = inspect.tls_dir.map(|directory| client::certificate(&directory)).transpose()?;
            let served = inspect.bind_address.socket();
            if address.is_none() && served.is_none() {
                let text = "inspect.bindAddress is \"\", so the manager serves no debug pages";
                return Err(Failure::wrong_input(format_args!("{}: {text}", path.display())));
            }
            address = address.or_else(|| Some(client::reachable(served?).to_string()));
        }
        let read = |path: PathBuf| {
            std::fs::read_to_string(&path)
                .map(|token| token.trim().to_owned())
                .map_err(|error| Failure::wrong_input(format_args!("{}: {error}", path.display())))
        };
        let token = token_file.map(read).transpose()?;
        let address = address.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned());
        if !client::is_address(&address) {
            let text = "expected HOST:PORT, such as localhost:8082";
            return Err(Failure::wrong_input(format_args!("--address {address:?}: {text}")));
        }
        Ok(Server { address, token, certificate, own: self.own })
    }
}

// === impl Page ===

impl Page {
    fn path(&self) -> String {
        match self {
            Self::Controllers => "/debug/controllers".to_owned(),
            Self::Queue(queue) => queue.path(),
            Self::Caches => "/debug/caches".to_owned(),
            Self::Watches => "/debug/watches".to_owned(),
            Self::Config => "/debug/config".to_owned(),
            Self::Leader => "/debug/leader".to_owned(),
        }
    }

    /// Makes a table of an answer.
    fn table(&self, body: &str) -> Result<Table, Failure> {
        Ok(match self {
            Self::Controllers => tables::controllers(&self.read(body)?),
            Self::Queue(_) => tables::queue(&self.read(body)?),
            Self::Caches => tables::caches(&self.read(body)?),
            Self::Watches => tables::watches(&self.read(body)?),
            Self::Config => tables::config(&self.read(body)?),
            Self::Leader => tables::leader(&self.read(body)?),
        })
    }

    fn read<'a, T: Deserialize<'a>>(&self, body: &'a str) -> Result<T, Failure> {
        serde_json::from_str(body).map_err(|error| unknown_form(&self.path(), &error))
    }
}

// === impl Action ===

impl Action {
    /// Returns path and body of the request.
    fn request(&self) -> (String, Value) {
        match self {
            Self::Reconcile { controller, key } => {
                let (namespace, name) = key.split_once('/').unwrap_or(("", key));
                let body = json!({"namespace": namespace, "name": name});
                (format!("{}/reconcile", path_of(controller)), body)
            }
            Self::Log { level } => ("/debug/log".to_owned(), json!({"level": level})),
        }
    }

    /// Returns the text to print for an answer.
    fn text(answer: String) -> String {
        match serde_json::from_str(&answer) {
            Ok(pages::Reconciled { matched: 1 }) => "1 key on the queue\n".to_owned(),
            Ok(pages::Reconciled { matched }) => format!("{matched} keys on the queue\n"),
            Err(_) => answer,
        }
    }
}

// === impl Queue ===

impl Queue {
    fn path(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.state.iter().map(|state| ("state", state)));
        let limit = self.limit.map(|limit| limit.to_string());
        let single = [
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("sort", &self.sort),
            ("limit", &limit),
            ("after", &self.after),
        ];
        query.extend_pairs(single.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))));
        format!("{}/queue?{}", path_of(&self.controller), query.finish())
    }
}

/// Returns the path of a controller, with its name escaped.
fn path_of(name: &str) -> String {
    format!("/debug/controllers/{}", form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>())
}
