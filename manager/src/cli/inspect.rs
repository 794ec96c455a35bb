//! `inspect`: what a running manager says under `/debug`, as tables.
//!
//! A reader of another process, on this machine or behind `kubectl port-forward`; in a Pod it is the binary itself, by
//! `kubectl exec POD -- mainstay inspect`. It asks, prints, and with `-w` asks again each second and prints what has
//! changed. What is not part of the table, such as how many rows are not shown, goes to standard error. Its actions are
//! those of the pages.

mod action;
mod client;
mod duration;
mod follow;
mod pages;
mod question;
mod table;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches as _, Subcommand};

use super::{Exit, fail, print, refuse, say, wrong_input};
use crate::config::{ConfigError, Loaded, ManagerConfiguration, Overrides};
use crate::inspect::{sorts, states};
use crate::key::Chain;

use action::Action;
use client::Server;
use table::Table;

pub use duration::Short;
pub use question::Question;

/// Where a manager serves its debug pages unless its configuration says otherwise.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8082";

#[derive(Args, Debug)]
struct Flags {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    whom: Whom,
    /// Ask again each second: after the table, print the rows that have changed
    #[arg(short, long, global = true)]
    watch: bool,
}

/// Whom to ask, and how the answer is printed.
#[derive(Args, Debug)]
struct Whom {
    /// Where the manager serves its debug pages [default: what --config says, else 127.0.0.1:8082]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    address: Option<String>,
    /// The configuration that the manager runs with, for its address and its token: a file, or a directory with a manager.yaml
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// File with the token that the manager asks for [over inspect.tokenFile]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How it is printed; json is what the manager answers
    #[arg(short, long, global = true, value_name = "FORMAT", value_parser = ["table", "json"], default_value = "table")]
    output: String,
}

#[derive(Subcommand, Debug)]
enum What {
    #[command(flatten)]
    Page(Page),
    #[command(flatten)]
    Action(Action),
}

#[derive(Subcommand, Debug)]
enum Page {
    /// The controllers, and how many keys of each are in which state
    Controllers,
    /// The keys of a controller's queue, those in trouble first
    Queue(Queue),
    /// The stores of the cache
    Caches,
    /// The lists and watches of those stores
    Watches,
    /// The configuration in force, and where each value came from
    Config,
    /// Who leads, and what has happened to the Lease
    Leader,
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

/// An answer that is none of the page's: of another version, or of another program.
#[derive(Debug, thiserror::Error)]
#[error(
    "the answer to {path} is not what this version expects; use the binary that the manager runs, or -o json"
)]
struct UnknownForm {
    path: String,
    #[source]
    source: serde_json::Error,
}

/// Describes the command.
pub(super) fn command() -> Command {
    Flags::augment_args(Command::new("inspect")).about("Look into a running manager").long_about(None)
}

/// Carries the command out.
pub(super) fn run(
    matches: &ArgMatches,
    controllers: &[&str],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let flags = match Flags::from_arg_matches(matches) {
        Ok(flags) => flags,
        Err(error) => return wrong_input(err, &error.to_string()),
    };
    let server = match flags.whom.server(controllers, err) {
        Ok(server) => server,
        Err(exit) => return exit,
    };
    let json = flags.whom.json();
    block_on(err, async |err| {
        let page = match &flags.what {
            What::Action(_) if flags.watch => {
                return wrong_input(err, "error: an action is done once; leave -w out\n");
            }
            What::Action(action) => return action.carry_out(&server, json, out, err).await,
            What::Page(page) if flags.watch => {
                return follow::follow(page, json, &server, out, err).await;
            }
            What::Page(page) => page,
        };
        let body = match server.get(&page.path()).await {
            Ok(body) => body,
            Err(error) => return error.exit(err),
        };
        if json {
            return print(out, err, &body);
        }
        match page.table(&server, &body).await {
            Ok(table) => show(&table, out, err),
            Err(error) => complain(&error, err),
        }
    })
}

/// Does one thing on this thread; what it says on standard error goes through what it is given.
fn block_on(err: &mut dyn Write, what: impl AsyncFnOnce(&mut dyn Write) -> Exit) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(what(err)),
        Err(error) => complain(&error, err),
    }
}

fn show(table: &Table, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    let exit = print(out, err, &table.to_string());
    for note in &table.notes {
        say(err, &format!("{note}\n"));
    }
    exit
}

fn complain(error: &(dyn std::error::Error + 'static), err: &mut dyn Write) -> Exit {
    fail(err, &format!("error: {}\n", Chain(error)))
}

// === impl Whom ===

impl Whom {
    fn json(&self) -> bool {
        self.output == "json"
    }

    fn server(&self, controllers: &[&str], err: &mut dyn Write) -> Result<Server, Exit> {
        let (mut address, mut token_file) = (self.address.clone(), self.token_file.clone());
        if let Some(path) = &self.config {
            let inspect = match Loaded::load(path, &Overrides::default(), Some(controllers)) {
                Ok(loaded) => loaded.configuration.inspect,
                Err(error @ ConfigError::Read { .. }) => return Err(refuse(&error, err)),
                // A manager that refuses this file runs on with the one before, and that is what people want to see.
                Err(error) => {
                    let assumed = ManagerConfiguration::default().inspect;
                    let text = "the manager may run on with an older one; its default address is assumed";
                    say(err, &format!("{}\n{text}, and no token\n", error.lines().join("\n")));
                    assumed
                }
            };
            token_file = token_file.or(inspect.token_file);
            address = match (address, inspect.bind_address.socket()) {
                (Some(address), _) => Some(address),
                (None, Some(socket)) => Some(client::reachable(socket).to_string()),
                (None, None) => {
                    let text = "inspect.bindAddress is \"\", so the manager serves no debug pages";
                    return Err(wrong_input(err, &format!("error: {}: {text}\n", path.display())));
                }
            };
        }
        let token = token_file.map(|path| {
            std::fs::read_to_string(&path)
                .map_err(|error| wrong_input(err, &format!("error: {}: {error}\n", path.display())))
        });
        let token = token.transpose()?.map(|token| token.trim().to_owned());
        let address = address.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned());
        if !client::is_address(&address) {
            let text = "expected HOST:PORT, such as localhost:8082";
            return Err(wrong_input(err, &format!("error: --address {address:?}: {text}\n")));
        }
        Ok(Server::new(address, token))
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

    /// Makes a table of an answer. Asks for more where that takes it.
    async fn table(&self, server: &Server, body: &str) -> Result<Table, UnknownForm> {
        match self {
            Self::Controllers => self.read(body).map(pages::controllers),
            Self::Queue(_) => {
                let queue: pages::Queue = self.read(body)?;
                // Who leads is worth a question only where nothing runs; if it stays open, the table stands all the same.
                let leader = if queue.leading { None } else { server.get(&Self::Leader.path()).await.ok() };
                Ok(pages::queue(queue, leader.and_then(|leader| serde_json::from_str(&leader).ok()).as_ref()))
            }
            Self::Caches => self.read(body).map(pages::caches),
            Self::Watches => self.read(body).map(pages::watches),
            Self::Config => self.read(body).map(pages::config),
            Self::Leader => self.read(body).map(pages::leader),
        }
    }

    fn read<'a, T: serde::Deserialize<'a>>(&self, body: &'a str) -> Result<T, UnknownForm> {
        serde_json::from_str(body).map_err(|source| UnknownForm { path: self.path(), source })
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
        format!("{}/queue?{}", controller(&self.controller), query.finish())
    }
}

/// Returns the path of a controller, whatever its name is.
fn controller(name: &str) -> String {
    format!("/debug/controllers/{}", form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>())
}
