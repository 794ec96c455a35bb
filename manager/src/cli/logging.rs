//! Log lines on standard error, as JSON for collectors or as text for people.
//!
//! A JSON line has the keys that users of controller-runtime look for: `ts`, `level`, `msg`, then `controller`,
//! `namespace`, `name`, `reconcileID`, then all other fields, then `error`. Fields of the spans around an event
//! stand beside its own; where names meet, the inner one holds. The level can be changed while running. Of a warning or
//! an error that repeats itself too often some are left out, and `left_out` says how many: in the next such line, or in
//! one of its own when the flood is over or the program ends.

mod fields;
mod json;
mod limit;
mod lines;
mod text;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use jiff::Timestamp;
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Registry, reload};

use crate::config::{LogFilter, LogFormat, LogLevel, Logging};

use limit::Limit;
use lines::{Flush, Lines, Output};

/// Libraries whose detailed lines quote what a peer has sent. They are as quiet as by default unless they are asked for
/// by their own name: who turns the level up to follow the manager must not let strangers write into its log.
const QUOTING: [&str; 3] = ["h2", "hickory_", "rustls"];

/// Changes what is logged while the process runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    output: Arc<dyn Flush>,
}

/// Logging could not be set up or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// The process logs already; a binary sets logging up once, before anything else.
    #[error("logging is set up already; call logging::init once, from main")]
    AlreadySet,
    /// What the handle belonged to is gone, as happens only in tests.
    #[error("the subscriber whose level should change is gone")]
    Gone,
}

/// Sets up logging for the whole process, on standard error.
///
/// # Errors
/// If the process has a subscriber already.
pub fn init(logging: &Logging) -> Result<LogHandle, LoggingError> {
    let form = match logging.format {
        LogFormat::Json => json::form,
        LogFormat::Text if io::stderr().is_terminal() => text::coloured,
        LogFormat::Text => text::plain,
    };
    let limit = Limit::new(limit::PERIOD);
    let (subscriber, handle) =
        build(logging, Output { writer: io::stderr, now: Timestamp::now, form, limit });
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::AlreadySet)?;
    Ok(handle)
}

/// Builds a subscriber that is not set up yet, with a writer and a clock of the caller's choice. Text has no colours.
pub fn subscriber<W>(
    logging: &Logging,
    writer: W,
    now: fn() -> Timestamp,
) -> (impl Subscriber + Send + Sync, LogHandle)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let form = match logging.format {
        LogFormat::Json => json::form,
        LogFormat::Text => text::plain,
    };
    build(logging, Output { writer, now, form, limit: Limit::new(limit::PERIOD) })
}

fn build<W>(logging: &Logging, output: Output<W>) -> (impl Subscriber + Send + Sync, LogHandle)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(targets(&logging.level));
    let output = Arc::new(output);
    let handle = LogHandle { filter: handle, output: Arc::clone(&output) as Arc<dyn Flush> };
    (Registry::default().with(filter).with(Lines::new(output)), handle)
}

// === impl LogHandle ===

impl LogHandle {
    /// Logs by another filter from now on.
    ///
    /// # Errors
    /// If the subscriber is gone.
    pub fn set(&self, filter: &LogFilter) -> Result<(), LoggingError> {
        self.filter.reload(targets(filter)).map_err(|_| LoggingError::Gone)
    }

    /// Writes how many lines were left out and not told of yet. Call it before the process ends.
    pub fn flush(&self) {
        self.output.flush();
    }
}

fn targets(filter: &LogFilter) -> Targets {
    let default = level_filter(filter.level);
    let quoting = QUOTING.map(|library| (library.to_owned(), default.min(LevelFilter::INFO)));
    let modules = filter.modules.iter().map(|(module, level)| (module.clone(), level_filter(*level)));
    // The later of two of one name holds.
    Targets::new().with_default(default).with_targets(quoting).with_targets(modules)
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
