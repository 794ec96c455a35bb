//! Commands of a program's own, beside `inspect`, that read a page of its own from a running manager.

use std::fmt;

use clap::{ArgMatches, Command, FromArgMatches as _};

use super::client::Answer;
use super::{Failure, Output, ServerFlags, block_on, standby, unknown_form};
use crate::config::ConfigSchema;
use crate::program::flags::add_args;

/// Returns the path of the page for a command line, or the problem of the command line.
type Path = dyn Fn(&ArgMatches) -> Result<String, String> + Send + Sync;
/// Makes text for people from the body of an answer.
type Show = dyn Fn(&str) -> Result<String, serde_json::Error> + Send + Sync;

/// A command that reads one of a running manager's [own pages](crate::inspect::OwnPages) and prints the answer.
///
/// Beside its own arguments it takes `--address`, `--config`, `--token-file` and `-o table|json`, as `inspect` does.
#[must_use = "a page_command does nothing until a program has it"]
pub struct PageCommand {
    command: Command,
    path: Box<Path>,
    show: Box<Show>,
}

// === impl PageCommand ===

impl PageCommand {
    /// Describes a command. `path` makes the path of the page from its arguments, such as `/debug/prices/today`; an
    /// error of it is wrong input. `show` makes text of the answer.
    pub fn new(
        command: Command,
        path: impl Fn(&ArgMatches) -> Result<String, String> + Send + Sync + 'static,
        show: impl Fn(&str) -> Result<String, serde_json::Error> + Send + Sync + 'static,
    ) -> Self {
        Self { command: add_args::<ServerFlags>(command), path: Box::new(path), show: Box::new(show) }
    }

    pub(in crate::program) fn command(&self) -> &Command {
        &self.command
    }

    /// Carries the command out.
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
            standby::tell(standby.as_ref(), output);
            Ok(())
        })
    }
}

impl fmt::Debug for PageCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCommand").field("command", &self.command.get_name()).finish_non_exhaustive()
    }
}
