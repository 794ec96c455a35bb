//! A whole binary in one call: the commands `run`, `inspect`, `crd`, `rbac`, `manifests`, `config` and
//! `version`, `dev` with the feature of this name, and commands that it adds.
//!
//! The topmost module, and the only one that uses clap and tracing-subscriber. It needs the feature
//! `program`, which is on by default; a process with its own command line and logging builds a [`Manager`]
//! without it.
//!
//! # Invariants
//! 1. Exit code 2 means that the input was wrong; standard error has the problems, one line each.
//! 2. Standard output has only the result of the command, the same bytes for the same input.

#[cfg(feature = "dev")]
mod dev;
mod flags;
mod inspect;
pub mod logging;
mod manifests;
mod rbac;
mod run;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Command, FromArgMatches as _, Subcommand};
use futures_util::future::LocalBoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::config::{ConfigError, ConfigSchema, Loaded, Overrides, Section};
use crate::manager::Manager;
use crate::reconcile::BoxError;

use flags::{RunFlags, add_args};
use manifests::{ManifestsArgs, ManifestsFlags, Shown};
use rbac::{RbacArgs, RbacFlags, Wiring, yaml};
use run::RunArgs;

#[cfg(feature = "dev")]
pub use dev::{DevContext, Story};
pub use flags::ConfigFlags;
pub use inspect::{PageCommand, ShortDuration};
pub use manifests::Sizes;

type Setup = Box<dyn for<'a> FnOnce(&'a Manager) -> LocalBoxFuture<'a, Result<(), BoxError>>>;
type OwnCommand = Box<dyn FnOnce(&ArgMatches) -> ExitCode>;

/// The `main` of a binary with the commands `run`, `inspect`, `crd`, `rbac`, `manifests`, `config` and
/// `version`, `dev` with the feature of this name, and commands that the binary adds.
///
/// ```no_run
/// use mainstay::program::Program;
///
/// fn main() -> std::process::ExitCode {
///     Program::new("greeter", env!("CARGO_PKG_VERSION"), "Says hello to ConfigMaps")
///         .controllers(["greeter"])
///         .setup(|manager| {
///             // manager.register(...)?;
/// #           let _ = manager;
///             Ok(())
///         })
///         .main()
/// }
/// ```
#[must_use = "a program does nothing until `main` is called"]
#[derive(derive_more::Debug)]
#[debug("Program {{ name: {:?}, .. }}", self.name)]
pub struct Program {
    name: &'static str,
    version: &'static str,
    about: &'static str,
    crds: Vec<CustomResourceDefinition>,
    sizes: Sizes,
    /// The documents that the program adds to its manifests, by file name.
    manifests: Vec<(&'static str, &'static str)>,
    schema: ConfigSchema,
    setup: Setup,
    own: Vec<(Command, OwnCommand)>,
    page_commands: Vec<PageCommand>,
    #[cfg(feature = "dev")]
    dev: dev::Additions,
}

/// The outcome of a command of the binary, and with it the exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded; exit code 0.
    Success = 0,
    /// The input was valid, but the command failed; exit code 1.
    Failure = 1,
    /// The command line or a file was wrong; exit code 2.
    WrongInput = 2,
}

/// The commands below the command `config`.
#[derive(Subcommand)]
enum ConfigCommand {
    /// Print every setting with its default
    PrintDefaults,
    /// Print all problems of a file
    Validate {
        /// The file, or a directory with a manager.yaml
        file: PathBuf,
    },
    /// Print the JSON Schema of the file, for editors
    Schema,
}

/// The result of parsing the command line of the binary.
#[derive(Debug)]
enum Parsed {
    /// The command has been executed, or the command line was wrong.
    Done(Exit),
    /// The command is `run`: run the manager with these arguments.
    Run(Box<RunArgs>),
    /// The command is `rbac`: wire the manager and print the rights that it needs.
    Rbac(Box<RbacArgs>),
    /// The command is `manifests`: wire the manager and write the files that install it.
    Manifests(Box<ManifestsArgs>),
    /// The command is `dev`: run the manager on a cluster of its own.
    #[cfg(feature = "dev")]
    Dev(Box<dev::DevArgs>),
    /// The command is one that the binary adds: its index in [`Program::own`], and its arguments.
    Own(usize, ArgMatches),
}

/// The streams that a command writes to: those of the process, or buffers of a test.
struct Output<'a> {
    /// The words of the command line; the first is the program's name in a Pod.
    command: Vec<String>,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// The error of a command: the exit code of the process and a message.
#[derive(Debug)]
struct Failure {
    exit: Exit,
    /// The message of the failed command for standard error, with a line feed at the end.
    text: String,
}

/// Prints all problems of a configuration, one per line, and returns the outcome for the exit code.
pub fn print_problems(error: ConfigError, err: &mut dyn Write) -> Exit {
    Failure::from(error).print(err)
}

// === impl Program ===

impl Program {
    /// Makes a program from its name, its version and a description. Help texts, metrics, Events and user
    /// agents have them.
    pub fn new(name: &'static str, version: &'static str, about: &'static str) -> Self {
        Self {
            name,
            version,
            about,
            crds: Vec::new(),
            sizes: Sizes::default(),
            manifests: Vec::new(),
            schema: ConfigSchema::new().controllers([""; 0]),
            setup: Box::new(|_| Box::pin(async { Ok(()) })),
            own: Vec::new(),
            page_commands: Vec::new(),
            #[cfg(feature = "dev")]
            dev: dev::Additions::default(),
        }
    }

    /// Adds CRDs, which the command `crd` prints, `manifests` writes and `dev` installs.
    pub fn crds(mut self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        self.crds.extend(crds);
        self
    }

    /// Sets processor time and memory of one replica, for the command `manifests`.
    pub fn sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// Adds YAML documents to those that the command `manifests` makes, as a file of this name. `@name@` and
    /// `@namespace@` in the text stand for the name and the namespace of the manager.
    pub fn manifest(mut self, file: &'static str, text: &'static str) -> Self {
        self.manifests.push((file, text));
        self
    }

    /// Adds the names of controllers of the program. A configuration file may name no others.
    pub fn controllers(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.schema = self.schema.controllers(names);
        self
    }

    /// Adds a section to the configuration file: typed keys below a name of their own. They are read, checked
    /// and reloaded like the sections of the runtime; [`Manager::section`] returns them.
    pub fn section<S: Section>(mut self, name: &'static str) -> Self {
        self.schema = self.schema.section::<S>(name);
        self
    }

    /// Returns the schema of the program's configuration file, for code that parses files itself.
    pub fn schema(&self) -> &ConfigSchema {
        &self.schema
    }

    /// Sets the function that registers the controllers. The command `run` calls it with the new manager, and
    /// `rbac` with one that has no connection and never runs.
    pub fn setup(self, setup: impl FnOnce(&Manager) -> Result<(), BoxError> + 'static) -> Self {
        self.setup_async(async move |manager: &Manager| setup(manager))
    }

    /// Sets the function that registers the controllers, as [`Program::setup`] does, for an async function,
    /// which may connect to another cluster. The manager starts after it returns; until then the process
    /// answers no health probes.
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use mainstay::client::infer;
    /// use mainstay::program::Program;
    ///
    /// fn main() -> std::process::ExitCode {
    ///     Program::new("copier", env!("CARGO_PKG_VERSION"), "Copies ConfigMaps to the edge")
    ///         .setup_async(async |manager| {
    ///             let connection = infer(Some(Path::new("/etc/copier/edge.kubeconfig")), None).await?;
    ///             let _edge = manager.cluster("edge", connection)?;
    ///             Ok(())
    ///         })
    ///         .main()
    /// }
    /// ```
    pub fn setup_async(
        mut self,
        setup: impl AsyncFnOnce(&Manager) -> Result<(), BoxError> + 'static,
    ) -> Self {
        self.setup = Box::new(move |manager| Box::pin(setup(manager)));
        self
    }

    /// Adds a command to the binary, and the function that executes it; [`ConfigFlags`] gives it the flags of
    /// `run`.
    pub fn command(mut self, command: Command, run: impl FnOnce(&ArgMatches) -> ExitCode + 'static) -> Self {
        self.own.push((command, Box::new(run)));
        self
    }

    /// Adds a command to the binary that requests a [page](Manager::page) of this program from a running
    /// manager and prints it.
    pub fn page_command(mut self, command: PageCommand) -> Self {
        self.page_commands.push(command);
        self
    }

    /// Executes the command line of the process. Wrong input ends with code 2 and one line per problem, a
    /// failure with 1.
    pub fn main(mut self) -> ExitCode {
        // Both locks are released after this statement, because a manager logs from other threads.
        let parsed = self.parse(std::env::args_os(), &mut io::stdout().lock(), &mut io::stderr().lock());
        match parsed {
            Parsed::Done(exit) => exit.into(),
            Parsed::Run(args) => run::run(self.name, self.version, *args, self.setup).into(),
            Parsed::Rbac(args) => {
                let (out, err) = (&mut io::stdout().lock(), &mut io::stderr().lock());
                rbac::run(self.name, *args, self.setup, &mut Output { command: Vec::new(), out, err }).into()
            }
            Parsed::Manifests(args) => {
                let (out, err) = (&mut io::stdout().lock(), &mut io::stderr().lock());
                let Self { name, version, crds, sizes, manifests, setup, .. } = self;
                let shown = Shown { name, version, crds: &crds, sizes, own: &manifests };
                let output = &mut Output { command: Vec::new(), out, err };
                manifests::run(&shown, *args, setup, output).into()
            }
            #[cfg(feature = "dev")]
            Parsed::Dev(args) => {
                let Self { name, version, crds, setup, dev: additions, .. } = self;
                dev::run(dev::Parts { name, version, crds, setup, additions }, *args).into()
            }
            Parsed::Own(index, matches) => self.own.swap_remove(index).1(&matches),
        }
    }

    /// Parses a command line, with the program as its first word, and executes commands that need no manager.
    fn parse(
        &self,
        args: impl IntoIterator<Item = OsString>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Parsed {
        let args: Vec<_> = args.into_iter().collect();
        let typed = args.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned());
        let command = std::iter::once(self.name.to_owned()).chain(typed).collect();
        let mut output = Output { command, out, err };
        let parsed = self.try_parse(args, &mut output);
        parsed.unwrap_or_else(|failure| Parsed::Done(failure.print(output.err)))
    }

    fn try_parse(
        &self,
        args: impl IntoIterator<Item = OsString>,
        output: &mut Output<'_>,
    ) -> Result<Parsed, Failure> {
        let matches = match self.command_line().try_get_matches_from(args) {
            Ok(matches) => matches,
            Err(error) if error.use_stderr() => return Err(error.into()),
            // The texts of help and --version are results, not errors.
            Err(text) => return output.print(&text.to_string()).map(|()| Parsed::Done(Exit::Success)),
        };
        // clap already refuses a command line without a command.
        let (name, flags) = matches.subcommand().ok_or_else(|| Failure::wrong_input("expected a command"))?;
        if let Some(index) = self.own.iter().position(|(command, _)| command.get_name() == name) {
            return Ok(Parsed::Own(index, flags.clone()));
        }
        if let Some(page) = self.page_commands.iter().find(|page| page.command.get_name() == name) {
            page.run(flags, &self.schema, output)?;
            return Ok(Parsed::Done(Exit::Success));
        }
        match name {
            "run" => return self.run(flags),
            #[cfg(feature = "dev")]
            "dev" => return Ok(Parsed::Dev(Box::new(self.dev(flags)?))),
            "rbac" => return self.rbac(flags),
            "manifests" => return self.manifests(flags),
            "inspect" => inspect::run(flags, &self.schema, output)?,
            "crd" => output.print(&self.crd()?)?,
            "config" => output.print(&self.config(flags)?)?,
            _ => output.print(&format!("{} {}\n", self.name, self.version))?,
        }
        Ok(Parsed::Done(Exit::Success))
    }

    fn command_line(&self) -> Command {
        let run = add_args::<RunFlags>(Command::new("run").about("Run the manager"));
        let crd = Command::new("crd").about("Print the CustomResourceDefinitions, for kubectl apply -f -");
        let rbac =
            add_args::<RbacFlags>(Command::new("rbac").about("Print the roles that the program needs"));
        let manifests =
            Command::new("manifests").about("Write the files that install the program in a cluster");
        let manifests = add_args::<ManifestsFlags>(manifests);
        let config = ConfigCommand::augment_subcommands(Command::new("config"))
            .about("Check and print configuration files")
            .subcommand_required(true)
            .arg_required_else_help(true);
        let own = self.own.iter().map(|(command, _)| command);
        let own = own.chain(self.page_commands.iter().map(|page| &page.command)).cloned();
        let version = Command::new("version").about("Print the version");
        // A feature is for the whole build, so a program may have the feature and a `dev` of its own.
        #[cfg(feature = "dev")]
        let has_dev = self.own.iter().any(|(command, _)| command.get_name() == "dev");
        #[cfg(feature = "dev")]
        let own = (!has_dev).then(dev::command).into_iter().chain(own);
        Command::new(self.name)
            .version(self.version)
            .about(self.about)
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true)
            .subcommands([run].into_iter().chain(own).chain([
                inspect::command(),
                crd,
                rbac,
                manifests,
                config,
                version,
            ]))
    }

    fn run(&self, matches: &ArgMatches) -> Result<Parsed, Failure> {
        let flags = RunFlags::from_arg_matches(matches)?;
        Ok(Parsed::Run(Box::new(RunArgs {
            loaded: flags.config.load(&self.schema)?,
            source: flags.config.source(&self.schema),
            preflight: flags.preflight,
            kubeconfig: flags.kubeconfig,
            context: flags.context,
        })))
    }

    fn rbac(&self, matches: &ArgMatches) -> Result<Parsed, Failure> {
        let flags = RbacFlags::from_arg_matches(matches)?;
        Ok(Parsed::Rbac(Box::new(RbacArgs {
            wiring: self.wiring(flags.config.load(&self.schema)?, flags.namespace),
            explain: flags.explain,
        })))
    }

    fn manifests(&self, matches: &ArgMatches) -> Result<Parsed, Failure> {
        let flags = ManifestsFlags::from_arg_matches(matches)?;
        let (loaded, text) = manifests::configuration(flags.config.as_deref(), &self.schema)?;
        let wiring = self.wiring(loaded, flags.namespace.clone());
        Ok(Parsed::Manifests(Box::new(ManifestsArgs { wiring, text, flags })))
    }

    fn wiring(&self, loaded: Loaded, namespace: Option<String>) -> Wiring {
        Wiring { loaded, namespace: namespace.unwrap_or_else(|| format!("{}-system", self.name)) }
    }

    fn crd(&self) -> Result<String, Failure> {
        self.crds.iter().map(yaml).collect()
    }

    fn config(&self, matches: &ArgMatches) -> Result<String, Failure> {
        Ok(match ConfigCommand::from_arg_matches(matches)? {
            ConfigCommand::PrintDefaults => self.schema.default_file(self.name),
            ConfigCommand::Validate { file } => {
                self.schema.load(&file, &Overrides::default())?;
                format!("{}: valid\n", file.display())
            }
            ConfigCommand::Schema => format!("{:#}\n", self.schema.json()),
        })
    }
}

/// Returns a text with its control characters escaped, which could end a line or control the terminal.
pub fn escaped(text: &str) -> String {
    let escape = |char: char| if char.is_control() { char.escape_default().to_string() } else { char.into() };
    text.chars().map(escape).collect()
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        (exit as u8).into()
    }
}

// === impl Output ===

impl Output<'_> {
    /// Writes the result of a command to standard output. A closed pipe is a success.
    fn print(&mut self, text: &str) -> Result<(), Failure> {
        match self.write(text) {
            // A closed pipe is a success: its reader, such as `head`, has read enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::other(format_args!("standard output: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes a line to standard error; an error of the write is ignored.
    fn note(&mut self, line: &str) {
        // Standard error may be closed; the result has been written anyway.
        writeln!(self.err, "{line}").and_then(|()| self.err.flush()).ok();
    }
}

// === impl Failure ===

impl Failure {
    fn wrong_input(problem: impl fmt::Display) -> Self {
        Self { exit: Exit::WrongInput, text: format!("error: {problem}\n") }
    }

    fn other(problem: impl fmt::Display) -> Self {
        Self { exit: Exit::Failure, text: format!("error: {problem}\n") }
    }

    /// Writes the message of the failed command to `err` and returns its outcome. If standard error is
    /// closed, only the exit code reports the failure.
    fn print(&self, err: &mut dyn Write) -> Exit {
        err.write_all(self.text.as_bytes()).and_then(|()| err.flush()).ok();
        self.exit
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self { exit: Exit::WrongInput, text: error.to_string() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { exit: Exit::WrongInput, text: format!("{}\n", error.lines().join("\n")) }
    }
}
