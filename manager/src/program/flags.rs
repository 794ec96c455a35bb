//! The flags of `run`: help text, parser and overridden key of each.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::Resettable;
use clap::{ArgMatches, Args, Command, FromArgMatches as _};

use crate::config::{
    BindAddress, ConfigError, ConfigSchema, ConfigSource, Loaded, LogFilter, LogFormat, Overrides,
};
use crate::key::is_dns_label;

/// The command-line flags of commands that run a manager: the configuration file, and values that override
/// it.
///
/// [`ConfigFlags::add_to`] adds them to a command of the binary, and [`ConfigFlags::of`] returns their
/// values.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigFlags {
    /// The configuration: a file, or a directory with a manager.yaml [default: the built-in defaults of this
    /// command]
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Whether to wait for leadership [over leaderElection.enabled]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    /// Namespace of the Lease [over leaderElection.namespace]
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_or_own)]
    pub leader_election_namespace: Option<String>,
    /// Address of the health probes, "" or 0 for none [over health.bindAddress]
    #[arg(long, value_name = "ADDRESS", value_parser = expected::<BindAddress>)]
    pub health_probe_bind_address: Option<BindAddress>,
    /// Address of the metrics, "" or 0 for none [over metrics.bindAddress]
    #[arg(long, value_name = "ADDRESS", value_parser = expected::<BindAddress>)]
    pub metrics_bind_address: Option<BindAddress>,
    /// Address of the debug pages, "" or 0 for none [over inspect.bindAddress]
    #[arg(long, value_name = "ADDRESS", value_parser = expected::<BindAddress>)]
    pub inspect_bind_address: Option<BindAddress>,
    /// The log level, such as `debug` or `info,mainstay::queue=debug` [over logging.level]
    #[arg(long, value_name = "LEVEL", value_parser = expected::<LogFilter>)]
    pub log_level: Option<LogFilter>,
    /// The format of log lines: json or text [over logging.format]
    #[arg(long, value_name = "FORMAT", value_parser = log_format)]
    pub log_format: Option<LogFormat>,
}

/// The flags of the command `run`: those of the configuration and of the connection to the API server.
#[derive(Args, Debug)]
pub(super) struct RunFlags {
    #[command(flatten)]
    pub(super) config: ConfigFlags,
    /// The kubeconfig file; it takes precedence over KUBECONFIG, the Pod's own account and ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig file
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
    /// Do not run: ask the API server whether all rights are granted, and print those that are missing
    #[arg(long)]
    pub(super) preflight: bool,
}

// === impl ConfigFlags ===

impl ConfigFlags {
    /// Adds the flags of a configuration to a command.
    #[must_use]
    pub fn add_to(command: Command) -> Command {
        add_args::<Self>(command)
    }

    /// Returns the values of the configuration's flags from the parsed arguments of a command.
    ///
    /// # Errors
    /// If the command does not have the flags of [`ConfigFlags::add_to`].
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches(matches)
    }

    /// Loads the configuration file, if one is given, and replaces the values that flags override.
    ///
    /// # Errors
    /// If the file has a problem, alone or together with the flags.
    pub fn load(&self, schema: &ConfigSchema) -> Result<Loaded, ConfigError> {
        let overrides = self.overrides();
        match &self.config {
            Some(path) => schema.load(path, &overrides),
            None => schema.from_overrides(&overrides),
        }
    }

    /// Returns the source of the configuration, to reload it as [`ConfigFlags::load`] does; `None` without a
    /// configuration file.
    pub fn source(&self, schema: &ConfigSchema) -> Option<ConfigSource> {
        let path = self.config.as_deref()?;
        Some(ConfigSource::new(path, self.overrides(), schema.clone()))
    }

    /// Returns the values of the given flags that override the configuration file.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            leader_elect: self.leader_elect,
            leader_election_namespace: self.leader_election_namespace.clone(),
            health_bind_address: self.health_probe_bind_address,
            metrics_bind_address: self.metrics_bind_address,
            inspect_bind_address: self.inspect_bind_address,
            log_level: self.log_level.clone(),
            log_format: self.log_format,
        }
    }
}

/// Adds the flags of `A` to a command, and keeps the command's description, which clap would replace by the
/// doc comment of `A`.
pub(super) fn add_args<A: Args>(command: Command) -> Command {
    let (about, long_about) = (command.get_about().cloned(), command.get_long_about().cloned());
    A::augment_args(command).about(Resettable::from(about)).long_about(Resettable::from(long_about))
}

/// Parses the value of a flag as the configuration file does. The error has the expected form; clap adds the
/// value found.
fn expected<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|form| format!("expected {form}"))
}

/// Parses the name of a namespace.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text) { Ok(text.to_owned()) } else { Err("expected the name of a namespace".to_owned()) }
}

fn namespace_or_own(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    namespace(text).map_err(|expected| format!("{expected}, or \"\" for the manager's own"))
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" | "Json" => Ok(LogFormat::Json),
        "text" | "Text" => Ok(LogFormat::Text),
        _ => Err("expected json or text".to_owned()),
    }
}
