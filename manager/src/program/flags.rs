//! The flags of `run`, defined once: help text, parser and what they override.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgMatches, Args, Command, FromArgMatches as _};

use crate::config::{
    BindAddress, ConfigError, ConfigSchema, Loaded, LogFilter, LogFormat, Overrides, ConfigSource,
};
use crate::key::is_dns_label;

/// Flags of the commands that run a manager: the file, and what stands over it.
///
/// A command of the binary's own gets them by [`ConfigFlags::add_to`] and reads them by [`ConfigFlags::of`].
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigFlags {
    /// The configuration: a file, or a directory with a manager.yaml; without it the built-in defaults of this command hold
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Whether to wait for leadership [over leaderElection.enabled]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    /// Namespace of the Lease [over leaderElection.namespace]
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub leader_election_namespace: Option<String>,
    /// Where probes are served, "" for nowhere [over health.bindAddress]
    #[arg(long, value_name = "ADDRESS", value_parser = expected::<BindAddress>)]
    pub health_probe_bind_address: Option<BindAddress>,
    /// Where metrics are served, "" for nowhere [over metrics.bindAddress]
    #[arg(long, value_name = "ADDRESS", value_parser = expected::<BindAddress>)]
    pub metrics_bind_address: Option<BindAddress>,
    /// Where debug pages are served, "" for nowhere [over inspect.bindAddress]
    #[arg(long, value_name = "ADDRESS", value_parser = expected::<BindAddress>)]
    pub inspect_bind_address: Option<BindAddress>,
    /// What is logged, such as `debug` or `info,mainstay::queue=debug` [over logging.level]
    #[arg(long, value_name = "LEVEL", value_parser = expected::<LogFilter>)]
    pub log_level: Option<LogFilter>,
    /// How log lines look: json or text [over logging.format]
    #[arg(long, value_name = "FORMAT", value_parser = log_format)]
    pub log_format: Option<LogFormat>,
}

/// The flags of `run`.
#[derive(Args, Debug)]
pub(super) struct RunFlags {
    #[command(flatten)]
    pub(super) config: ConfigFlags,
    /// File that says how to reach the cluster; before KUBECONFIG, the Pod's own account and ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of that file to use
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

// === impl ConfigFlags ===

impl ConfigFlags {
    /// Gives a command these flags.
    #[must_use]
    pub fn add_to(command: Command) -> Command {
        add_args::<Self>(command)
    }

    /// Reads these flags from what was parsed for such a command.
    ///
    /// # Errors
    /// If the command was not given the flags by [`ConfigFlags::add_to`].
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches(matches)
    }

    /// Reads the file, if one was given, and puts the flags over it.
    ///
    /// # Errors
    /// If anything is wrong with the file, or with the flags together with it.
    pub fn load(&self, schema: &ConfigSchema) -> Result<Loaded, ConfigError> {
        let overrides = self.overrides();
        match &self.config {
            Some(path) => schema.load(path, &overrides),
            None => schema.from_overrides(&overrides),
        }
    }

    /// Returns the file, if one was given, for reading it again as [`ConfigFlags::load`] does.
    pub fn source(&self, schema: &ConfigSchema) -> Option<ConfigSource> {
        let path = self.config.as_deref()?;
        Some(ConfigSource::new(path, self.overrides(), schema.clone()))
    }

    /// Returns what stands over the file.
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

/// Gives a command flags, and keeps its description: clap would replace it by the one of the flags.
pub(super) fn add_args<A: Args>(command: Command) -> Command {
    let (about, long_about) = (command.get_about().cloned(), command.get_long_about().cloned());
    let command = A::augment_args(command).about(about.unwrap_or_default());
    match long_about {
        Some(long_about) => command.long_about(long_about),
        None => command.long_about(None),
    }
}

/// Parses as the file does; the types' refusals say what is expected, clap says what was found.
fn expected<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|form| format!("expected {form}"))
}

fn namespace(text: &str) -> Result<String, String> {
    if text.is_empty() || is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err("expected the name of a namespace, or \"\" for the manager's own".to_owned())
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" | "Json" => Ok(LogFormat::Json),
        "text" | "Text" => Ok(LogFormat::Text),
        _ => Err("expected json or text".to_owned()),
    }
}
