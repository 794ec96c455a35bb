//! Log lines on standard error, as JSON for collectors or as text for people.
//!
//! A JSON line has the keys that users of controller-runtime look for: `ts`, `level`, `msg`, then `controller`,
//! `namespace`, `name`, `reconcileID`, then all other fields, then `error`. Fields of the spans around an event
//! stand beside its own; where names meet, the inner one holds. The level can be changed while running. Of a line that
//! repeats itself too often some are left out, and the next one says in `left_out` how many.

mod fields;
mod json;
mod limit;
mod lines;
mod text;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};

use jiff::Timestamp;
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Registry, reload};

use crate::config::{LogFilter, LogFormat, LogLevel, Logging};

use lines::Lines;

/// Changes what is logged while the process runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
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
    let (subscriber, handle) = subscriber(logging, io::stderr, Timestamp::now);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::AlreadySet)?;
    Ok(handle)
}

/// Builds a subscriber that is not set up yet, with a writer and a clock of the caller's choice.
pub fn subscriber<W>(
    logging: &Logging,
    writer: W,
    now: fn() -> Timestamp,
) -> (impl Subscriber + Send + Sync, LogHandle)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(targets(&logging.level));
    let form = match logging.format {
        LogFormat::Json => json::form,
        LogFormat::Text if io::stderr().is_terminal() => text::coloured,
        LogFormat::Text => text::plain,
    };
    let lines = Lines::new(writer, now, form);
    (Registry::default().with(filter).with(lines), LogHandle { filter: handle })
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
}

fn targets(filter: &LogFilter) -> Targets {
    let modules = filter.modules.iter().map(|(module, level)| (module.clone(), level_filter(*level)));
    Targets::new().with_default(level_filter(filter.level)).with_targets(modules)
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
