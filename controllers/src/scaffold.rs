//! The commands `mainstay new` and `mainstay add`: a project of one's own, and more kinds and controllers in
//! it.
//!
//! The templates are the files below `controllers/templates`. They are a project that compiles: the package
//! `tests/shop` builds and tests it with this workspace. `new` and `add` replace its names.
//!
//! # Invariants
//! 1. Every name is checked, and every place found, before the first file is written.
//! 2. No existing file is overwritten. `add` only adds lines to a file, and formats it if it was formatted.
//! 3. After a failed write everything is as it was, or the refusal names the files that are not.

mod add;
mod files;
mod names;
mod new;
mod places;
mod source;
mod templates;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use mainstay::program::Exit;

/// The reason why `new` or `add` did nothing: a line, and for places that were not found the lines to add by
/// hand.
#[derive(Debug)]
struct Refusal(String);

type Done<T> = Result<T, Refusal>;

/// Returns the definition of the command `mainstay new`.
pub(crate) fn new_command() -> Command {
    let registry = Arg::new("registry")
        .long("registry")
        .action(ArgAction::SetTrue)
        .help("Depend on published versions, also if this binary was built from a checkout");
    Command::new("new")
        .about("Make the project of an operator in a new folder")
        .arg(argument("name", "The name of the operator, its package and the folder, such as web-shop"))
        .arg(option("kind", "KIND", "Its first kind, such as WebShop [default: from the name]"))
        .arg(option("group", "GROUP", "The API group of its kinds [default: NAME.example.com]"))
        .arg(registry)
}

/// Returns the definition of the command `mainstay add`.
pub(crate) fn add_command() -> Command {
    let kind = Command::new("kind")
        .about("Add a kind, its controller and a sample")
        .arg(argument("name", "The kind, such as WebShop"))
        .arg(option("group", "GROUP", "Its API group [default: that of the other kinds]"));
    let controller = Command::new("controller")
        .about("Add a controller of a kind that is there already")
        .arg(argument("name", "The name of the controller, such as price-watcher"))
        .arg(
            option("for", "KIND", "The kind that it reconciles, of Kubernetes or of the project")
                .default_value("ConfigMap"),
        );
    Command::new("add")
        .about("Add to the project in the current folder")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(kind)
        .subcommand(controller)
}

/// Runs the command `mainstay new`.
pub(crate) fn run_new(matches: &ArgMatches) -> ExitCode {
    let text = |name| matches.get_one::<String>(name).map(String::as_str);
    let checkout = if matches.get_flag("registry") { None } else { templates::checkout() };
    let name = text("name").unwrap_or_default();
    report(new::new(Path::new("."), name, text("kind"), text("group"), checkout.as_deref()))
}

/// Runs the command `mainstay add`.
pub(crate) fn run_add(matches: &ArgMatches) -> ExitCode {
    let Some((what, matches)) = matches.subcommand() else { return Exit::WrongInput.into() };
    let text = |name| matches.get_one::<String>(name).map(String::as_str);
    let name = text("name").unwrap_or_default();
    report(match what {
        "kind" => add::kind(Path::new("."), name, text("group")),
        _ => add::controller(Path::new("."), name, text("for").unwrap_or_default()),
    })
}

/// Prints the changes on standard output, or the refusal on standard error.
fn report(done: Done<String>) -> ExitCode {
    // If the stream is closed, the exit code is the whole report.
    match done {
        Ok(text) => {
            drop(std::io::stdout().write_all(text.as_bytes()));
            ExitCode::SUCCESS
        }
        Err(Refusal(text)) => {
            drop(writeln!(std::io::stderr(), "error: {text}"));
            Exit::WrongInput.into()
        }
    }
}

fn argument(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name("NAME").required(true).help(help)
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

// === impl Refusal ===

impl Refusal {
    fn new(problem: impl fmt::Display) -> Self {
        Self(problem.to_string())
    }
}
