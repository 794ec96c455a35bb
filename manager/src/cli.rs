//! The commands a binary gets in one call: `run`, `inspect`, `crd`, `config`, `version`, and its own.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use mainstay::cli::{self, Parsed, Program};
//!
//! fn main() -> ExitCode {
//!     let program = Program::new("shop-operator", env!("CARGO_PKG_VERSION"), "Runs the shop's controllers");
//!     match cli::parse(&program.controllers(["orders", "invoices"])) {
//!         Parsed::Done(exit) => exit.into(),
//!         Parsed::Run(run) => {
//!             // Build a manager from `run.loaded.configuration`, register controllers, run it.
//! #           drop(run);
//!             ExitCode::SUCCESS
//!         }
//!         Parsed::Extra(name, _) => unreachable!("this program has no command {name}"),
//!     }
//! }
//! ```
//!
//! This room stands below the manager. It carries out what needs none and hands the rest back as values.
//!
//! # Invariants
//! 1. Exit code 2 means that the input was wrong, and standard error says why, one line per error.
//! 2. Standard output carries what was asked for and nothing else, the same bytes for the same input.

mod flags;
mod inspect;
pub mod logging;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::config::{self, ConfigError, Loaded, ManagerConfiguration, Overrides, Source};

pub use flags::ConfigFlags;
use flags::RunFlags;
pub use inspect::{Question, Short};

/// What the commands need to know about the binary they are part of.
#[derive(Clone, Debug)]
#[must_use = "a program does nothing until it is given to `cli::parse`"]
pub struct Program {
    name: &'static str,
    version: &'static str,
    about: &'static str,
    crds: Vec<CustomResourceDefinition>,
    controllers: Vec<&'static str>,
    extra: Vec<Command>,
    /// Shared, since a program can be cloned.
    questions: Vec<Arc<Question>>,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Parsed {
    /// It was done already, or was wrong.
    Done(Exit),
    /// Run the manager.
    Run(Box<RunArgs>),
    /// A command of the binary's own, by name.
    Extra(String, ArgMatches),
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Code 0.
    Success,
    /// Code 1: the input was right and something else failed.
    Failure,
    /// Code 2: the input was wrong.
    WrongInput,
}

/// What `run` was given.
#[derive(Debug)]
pub struct RunArgs {
    /// File and flags, resolved, with where each value came from.
    pub loaded: Loaded,
    /// The file of `--config`, for reading it again.
    pub source: Option<Source>,
    /// The file of `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// The context of `--context`.
    pub context: Option<String>,
}

/// Parses the process's command line. What needs no manager is done at once.
pub fn parse(program: &Program) -> Parsed {
    parse_from(program, std::env::args_os(), &mut io::stdout().lock(), &mut io::stderr().lock())
}

/// Parses a command line, its first element being the program, and writes to `out` and `err`.
pub fn parse_from(
    program: &Program,
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Parsed {
    let matches = match program.command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => return Parsed::Done(wrong_input(err, &error.to_string())),
        // Help, and --version: asked for, so no error.
        Err(text) => return Parsed::Done(print(out, err, &text.to_string())),
    };
    match matches.subcommand() {
        Some(("run", flags)) => program.run(flags, err),
        Some(("inspect", flags)) => Parsed::Done(inspect::run(flags, &program.controllers, out, err)),
        Some(("crd", _)) => Parsed::Done(program.crd(out, err)),
        Some(("config", flags)) => Parsed::Done(program.config(flags, out, err)),
        Some(("version", _)) => {
            Parsed::Done(print(out, err, &format!("{} {}\n", program.name, program.version)))
        }
        Some((name, flags)) => {
            match program.questions.iter().find(|question| question.command().get_name() == name) {
                Some(question) => Parsed::Done(question.run(flags, &program.controllers, out, err)),
                None => Parsed::Extra(name.to_owned(), flags.clone()),
            }
        }
        // clap requires a command; should that ever change, saying so beats running something.
        None => Parsed::Done(wrong_input(err, "error: expected a command\n")),
    }
}

/// Prints what is wrong with a configuration, one line per problem.
pub fn refuse(error: &ConfigError, err: &mut dyn Write) -> Exit {
    wrong_input(err, &format!("{}\n", error.lines().join("\n")))
}

// === impl Program ===

impl Program {
    /// Describes a binary without CRDs, controllers or commands of its own.
    pub fn new(name: &'static str, version: &'static str, about: &'static str) -> Self {
        Self {
            name,
            version,
            about,
            crds: Vec::new(),
            controllers: Vec::new(),
            extra: Vec::new(),
            questions: Vec::new(),
        }
    }

    /// Sets what `crd` prints.
    pub fn crds(mut self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        self.crds = crds.into_iter().collect();
        self
    }

    /// Sets the names that may stand under `controllers` in a configuration.
    pub fn controllers(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.controllers = names.into_iter().collect();
        self
    }

    /// Adds a command that the binary carries out itself; [`ConfigFlags`] gives it the flags of `run`.
    pub fn extra(mut self, command: Command) -> Self {
        self.extra.push(command);
        self
    }

    /// Adds a command that asks a running manager.
    pub fn question(mut self, question: Question) -> Self {
        self.questions.push(Arc::new(question));
        self
    }

    fn command(&self) -> Command {
        let run = RunFlags::augment_args(Command::new("run")).about("Run the manager").long_about(None);
        let crd = Command::new("crd").about("Print the CustomResourceDefinitions, for kubectl apply -f -");
        let defaults = Command::new("print-defaults").about("Print every setting with its default");
        let file = clap::Arg::new("file").value_name("FILE").required(true);
        let file = file
            .value_parser(clap::value_parser!(PathBuf))
            .help("The file, or a directory with a manager.yaml");
        let validate = Command::new("validate").about("Print everything that is wrong with a file").arg(file);
        let schema = Command::new("schema").about("Print the JSON Schema of the file, for editors");
        let config = Command::new("config")
            .about("Look at configuration files")
            .subcommand_required(true)
            .subcommands([defaults, validate, schema]);
        let questions = self.questions.iter().map(|question| question.command().clone());
        let own = self.extra.iter().cloned().chain(questions);
        let version = Command::new("version").about("Print the version");
        Command::new(self.name)
            .version(self.version)
            .about(self.about)
            .subcommand_required(true)
            .disable_help_subcommand(true)
            .subcommands([run].into_iter().chain(own).chain([inspect::command(), crd, config, version]))
    }

    fn run(&self, matches: &ArgMatches, err: &mut dyn Write) -> Parsed {
        let flags = match RunFlags::from_arg_matches(matches) {
            Ok(flags) => flags,
            Err(error) => return Parsed::Done(wrong_input(err, &error.to_string())),
        };
        match flags.config.load(&self.controllers) {
            Ok(loaded) => Parsed::Run(Box::new(RunArgs {
                loaded,
                source: flags.config.source(&self.controllers),
                kubeconfig: flags.kubeconfig,
                context: flags.context,
            })),
            Err(error) => Parsed::Done(refuse(&error, err)),
        }
    }

    fn crd(&self, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
        let mut text = String::new();
        for crd in &self.crds {
            match serde_saphyr::to_string(crd) {
                Ok(document) => text.extend(["---\n", &document]),
                Err(error) => {
                    return fail(err, &format!("error: a CRD cannot be written as YAML: {error}\n"));
                }
            }
        }
        print(out, err, &text)
    }

    fn config(&self, matches: &ArgMatches, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
        let file = match matches.subcommand() {
            Some(("validate", flags)) => flags.get_one::<PathBuf>("file"),
            Some(("schema", _)) => {
                return print(out, err, &format!("{:#}\n", config::schema(Some(&self.controllers))));
            }
            _ => return print(out, err, ManagerConfiguration::defaults_text()),
        };
        let Some(file) = file else { return wrong_input(err, "error: expected a file\n") };
        match Loaded::load(file, &Overrides::default(), Some(&self.controllers)) {
            Ok(_) => print(out, err, &format!("{}: valid\n", file.display())),
            Err(error) => refuse(&error, err),
        }
    }
}

// === impl Exit ===

impl Exit {
    /// Returns the code the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::WrongInput => 2,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

fn print(out: &mut dyn Write, err: &mut dyn Write, text: &str) -> Exit {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Exit::Success,
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
        Err(error) => fail(err, &format!("error: standard output: {error}\n")),
    }
}

fn wrong_input(err: &mut dyn Write, text: &str) -> Exit {
    say(err, text);
    Exit::WrongInput
}

fn fail(err: &mut dyn Write, text: &str) -> Exit {
    say(err, text);
    Exit::Failure
}

/// Writes to standard error. If that fails there is nowhere left to say so; the exit code still tells.
fn say(err: &mut dyn Write, text: &str) {
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).ok();
}
