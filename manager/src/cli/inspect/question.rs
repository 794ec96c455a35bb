//! Questions of a program's own to a running manager: commands beside `inspect`.

use std::fmt;
use std::io::Write;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};

use super::{Exit, UnknownForm, Whom, block_on, complain, print, wrong_input};

/// Returns the path that a command line asks for, or what is wrong with it.
type Path = dyn Fn(&ArgMatches) -> Result<String, String> + Send + Sync;
/// Makes text for people of the body of an answer.
type Show = dyn Fn(&str) -> Result<String, serde_json::Error> + Send + Sync;

/// A command that asks a running manager for one of its [pages](crate::inspect::OwnPages) and prints the answer.
///
/// Beside its own arguments it takes `--address`, `--config`, `--token-file` and `-o table|json`, as `inspect` does.
#[must_use = "a question does nothing until a program has it"]
pub struct Question {
    command: Command,
    path: Box<Path>,
    show: Box<Show>,
}

// === impl Question ===

impl Question {
    /// Describes a command. `path` makes the path of the page from its arguments, such as `/debug/prices/today`; what it
    /// refuses is wrong input. `show` makes text of the answer.
    pub fn new(
        command: Command,
        path: impl Fn(&ArgMatches) -> Result<String, String> + Send + Sync + 'static,
        show: impl Fn(&str) -> Result<String, serde_json::Error> + Send + Sync + 'static,
    ) -> Self {
        Self { command: Whom::augment_args(command), path: Box::new(path), show: Box::new(show) }
    }

    pub(in crate::cli) fn command(&self) -> &Command {
        &self.command
    }

    /// Carries the command out.
    pub(in crate::cli) fn run(
        &self,
        matches: &ArgMatches,
        controllers: &[&str],
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Exit {
        let whom = match Whom::from_arg_matches(matches) {
            Ok(whom) => whom,
            Err(error) => return wrong_input(err, &error.to_string()),
        };
        let path = match (self.path)(matches) {
            Ok(path) => path,
            Err(problem) => return wrong_input(err, &format!("error: {problem}\n")),
        };
        let server = match whom.server(controllers, err) {
            Ok(server) => server,
            Err(exit) => return exit,
        };
        block_on(err, async |err| {
            let body = match server.get(&path).await {
                Ok(body) => body,
                Err(error) => return error.exit(err),
            };
            if whom.json() {
                return print(out, err, &body);
            }
            match (self.show)(&body) {
                Ok(text) => print(out, err, &text),
                Err(source) => complain(&UnknownForm { path, source }, err),
            }
        })
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("command", &self.command.get_name()).finish_non_exhaustive()
    }
}
