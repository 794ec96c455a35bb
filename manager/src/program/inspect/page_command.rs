//! Commands, beside `inspect`, that print a program's own page of a running manager.

use clap::{ArgMatches, Command, FromArgMatches as _};

use super::client::Answer;
use super::{Failure, Output, ServerFlags, block_on, standby, unknown_form};
use crate::config::ConfigSchema;
use crate::program::flags::add_args;

/// Returns the URL path of a debug page for the arguments of a command, or a problem of the arguments.
type Path = dyn Fn(&ArgMatches) -> Result<String, String> + Send + Sync;
/// Formats the body of a debug page for people.
type Show = dyn Fn(&str) -> Result<String, serde_json::Error> + Send + Sync;

/// A command that requests one of a program's [own debug pages](crate::inspect::OwnPages) from a running
/// manager and prints it.
///
/// Beside its own arguments it has the flags of `inspect` for the server and the output: `--address`,
/// `--config`, `--token-file`, `--own` and `-o table|json`.
#[must_use = "a page command does nothing until a program has it"]
#[derive(derive_more::Debug)]
#[debug("PageCommand {{ command: {:?}, .. }}", self.command.get_name())]
pub struct PageCommand {
    pub(in crate::program) command: Command,
    path: Box<Path>,
    show: Box<Show>,
}

// === impl PageCommand ===

impl PageCommand {
    /// Makes a command for a debug page. `path` returns the path of the page for the command's arguments,
    /// such as `/debug/prices/today`; its error is reported as wrong input. `show` formats the answer for
    /// people.
    pub fn new(
        command: Command,
        path: impl Fn(&ArgMatches) -> Result<String, String> + Send + Sync + 'static,
        show: impl Fn(&str) -> Result<String, serde_json::Error> + Send + Sync + 'static,
    ) -> Self {
        Self { command: add_args::<ServerFlags>(command), path: Box::new(path), show: Box::new(show) }
    }

    /// Executes the command: requests its debug page and prints the answer.
    pub(in crate::program) fn run(
        &self,
        matches: &ArgMatches,
        schema: &ConfigSchema,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let target = ServerFlags::from_arg_matches(matches)?;
        let path = (self.path)(matches).map_err(Failure::wrong_input)?;
        let server = target.server(schema, output)?;
        block_on(async {
            let Answer { body, standby } = server.get(&path).await?;
            let shown = || (self.show)(&body).map_err(|error| unknown_form(&path, &error));
            output.print(&if target.json() { body } else { shown()? })?;
            standby::print_note(standby.as_ref(), output);
            Ok(())
        })
    }
}
