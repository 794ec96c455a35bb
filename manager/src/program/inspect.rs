//! `inspect`: prints the debug pages of a running manager as tables, and sends its actions.
//!
//! It runs in another process, on the same machine, behind `kubectl port-forward`, or in the Pod by `kubectl
//! exec POD -- mainstay inspect`. With `-w` it requests the page again every second and prints the rows that
//! changed. Notes, such as the number of rows not shown, go to standard error.

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
use serde_json::{Value, from_str, json};

use super::flags::add_args;
use super::{Failure, Output};
use crate::config::{ConfigError, ConfigSchema, ManagerConfiguration, Overrides};
use crate::inspect::{pages, sorts, states};
use crate::key::Chain;

use client::{Answer, Server};
use table::Table;

pub use duration::ShortDuration;
pub use page_command::PageCommand;

/// The default address of a manager's debug pages, to which `inspect` connects.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8082";

#[derive(Args, Debug)]
struct Flags {
    #[command(subcommand)]
    command: InspectCommand,
    #[command(flatten)]
    target: ServerFlags,
    /// Request the page again every second, and print the rows that have changed
    #[arg(short, long, global = true)]
    watch: bool,
}

/// The flags of `inspect` for the manager to connect to and the format of the output.
#[derive(Args, Debug)]
struct ServerFlags {
    /// Address of the manager's debug pages [default: the one in --config, else 127.0.0.1:8082]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    address: Option<String>,
    /// The manager's configuration, for its address and its token: a file, or a directory with a manager.yaml
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// File with the token that the manager requires [over inspect.tokenFile]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Get the answer of this replica, even if inspect.peers makes a standby forward requests to the leader
    #[arg(long, global = true)]
    own: bool,
    /// Format of the answer; json is the unchanged answer of the manager
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table")]
    #[arg(value_parser = ["table", "json"])]
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
    /// Print the controllers, with the number of keys in each state
    Controllers,
    /// Print the keys of a controller's queue, failing keys first
    Queue(Queue),
    /// Print the stores of the cache
    Caches,
    /// Print the lists and watches of the cache
    Watches,
    /// Print the configuration in force, with the origin of each value
    Config,
    /// Print the leader, and the history of the Lease
    Leader,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Reconcile one object now, even during its backoff
    Reconcile {
        /// The name of the controller
        controller: String,
        /// The key of the object, as in the output of `inspect queue`: NAMESPACE/NAME, or NAME
        key: String,
    },
    /// Change the log level
    Log {
        /// The log filter, such as `debug`, or `info,mainstay::queue=debug`
        level: String,
    },
}

#[derive(Args, Debug)]
struct Queue {
    /// The name of the controller
    controller: String,
    /// Print only keys in this state, may be repeated; delayed is backoff and requeued
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(states()))]
    state: Vec<String>,
    /// Print only keys of this namespace, "" for keys without one
    #[arg(short, long)]
    namespace: Option<String>,
    /// Print only keys of this name
    #[arg(long)]
    name: Option<String>,
    /// The order in which keys are printed
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(sorts()))]
    sort: Option<String>,
    /// The most keys to print [default: 1000]
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
    /// Print only keys behind this key, with --sort name
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
}

/// Parses the body of a debug page into a table to print.
type ParseTable = fn(&str) -> serde_json::Result<Table>;

/// Returns the command `inspect` with its flags.
pub(super) fn command() -> Command {
    add_args::<Flags>(Command::new("inspect").about("Inspect a running manager"))
}

/// Executes the command `inspect`: requests a page or sends an action, and prints the answer.
pub(super) fn run(
    matches: &ArgMatches,
    schema: &ConfigSchema,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let flags = Flags::from_arg_matches(matches)?;
    let server = flags.target.server(schema, output)?;
    let json = flags.target.json();
    block_on(async {
        match &flags.command {
            InspectCommand::Action(_) if flags.watch => {
                Err(Failure::wrong_input("-w works only with pages; remove it"))
            }
            InspectCommand::Action(action) => {
                let (path, body) = action.request();
                let Answer { body, standby } = server.post(&path, &body).await?;
                output.print(&if json { body } else { Action::text(body) })?;
                standby::print_note(standby.as_ref(), output);
                Ok(())
            }
            InspectCommand::Page(page) if flags.watch => follow::follow(page, json, &server, output).await,
            InspectCommand::Page(page) => {
                let (path, parse) = page.request();
                let Answer { body, standby } = server.get(&path).await?;
                if json {
                    output.print(&body)?;
                } else {
                    let table = parse(&body).map_err(|error| unknown_form(&path, &error))?;
                    output.print(&table.to_string())?;
                    table.notes.iter().for_each(|note| output.note(note));
                }
                standby::print_note(standby.as_ref(), output);
                Ok(())
            }
        }
    })
}

/// Runs the future of a command on this thread, in a runtime of its own.
fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::other)?.block_on(command)
}

/// Returns the error of an answer to `path` that cannot be parsed: from another version, or from another
/// program.
fn unknown_form(path: &str, error: &serde_json::Error) -> Failure {
    let hint = "use the binary of the manager, or -o json";
    Failure::other(format_args!("this version cannot read the answer to {path}; {hint}: {error}"))
}

// === impl ServerFlags ===

impl ServerFlags {
    fn json(&self) -> bool {
        self.output == "json"
    }

    /// Returns the server of debug pages that the flags name, with its token and certificate.
    fn server(&self, schema: &ConfigSchema, output: &mut Output<'_>) -> Result<Server, Failure> {
        let (mut address, mut token_file) = (self.address.clone(), self.token_file.clone());
        let mut certificate = None;
        if let Some(path) = &self.config {
            let inspect = match schema.load(path, &Overrides::default()) {
                Ok(loaded) => loaded.configuration.inspect,
                Err(error @ ConfigError::Read { .. }) => return Err(error.into()),
                // A manager that refuses this file still runs with an earlier file, and can be inspected.
                Err(error) => {
                    let text = "the manager may run with an earlier file; using the default address";
                    output.note(&format!("{}\n{text} and no token", error.lines().join("\n")));
                    ManagerConfiguration::default().inspect
                }
            };
            token_file = token_file.or(inspect.token_file);
            certificate = inspect.tls_dir.map(|directory| client::certificate(&directory)).transpose()?;
            let served = inspect.bind_address.socket();
            if address.is_none() && served.is_none() {
                let text = "inspect.bindAddress is \"\", so the manager has no debug pages";
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
    /// Returns the URL path of the debug page, and a function that parses the answer into a table.
    fn request(&self) -> (String, ParseTable) {
        let (path, parse): (&str, ParseTable) = match self {
            Self::Controllers => ("controllers", |body| Ok(tables::controllers(&from_str(body)?))),
            Self::Queue(queue) => return (queue.path(), |body| Ok(tables::queue(&from_str(body)?))),
            Self::Caches => ("caches", |body| Ok(tables::caches(&from_str(body)?))),
            Self::Watches => ("watches", |body| Ok(tables::watches(&from_str(body)?))),
            Self::Config => ("config", |body| Ok(tables::config(&from_str(body)?))),
            Self::Leader => ("leader", |body| Ok(tables::leader(&from_str(body)?))),
        };
        (format!("/debug/{path}"), parse)
    }
}

// === impl Action ===

impl Action {
    /// Returns the URL path and the JSON body of the request for this action.
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

    /// Returns the answer to an action as text to print.
    fn text(answer: String) -> String {
        match from_str(&answer) {
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

/// Returns the URL path of a controller's debug pages, with the controller's name escaped.
fn path_of(name: &str) -> String {
    format!("/debug/controllers/{}", form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>())
}
