//! Log lines on standard error, as JSON for collectors or as tracing-subscriber's text for people.
//!
//! A JSON line has the keys of controller-runtime: `ts`, `level`, `msg`, `logger`, then `controller`,
//! `namespace`, `name`, `reconcileID`, then all other fields by name, then `error`. An event includes the
//! fields of its spans; if two fields have one name, the inner one is used. The level can be changed at run
//! time.
//!
//! # Invariants
//! 1. An event is one line, and a line of JSON is one object, whatever its values contain.
//! 2. No control character of a value reaches a terminal.
//! 3. Repeated warnings and errors are limited, and the lines that were left out are counted.

mod json;
mod limit;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, IsTerminal as _};

use jiff::Timestamp;
use tracing::Subscriber;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::{self as lines, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

use crate::config::{LogFilter, LogFormat, Logging};
use crate::manager::SetLogLevel;
use crate::reconcile::BoxError;

use json::{Json, SpanFields};
use limit::LineLimit;

/// Libraries with log lines below `info` that quote bytes of a peer. They stay at `info` unless the log
/// filter names them: `debug` for the manager must not let any peer write into its log.
const QUOTING: [&str; 3] = ["h2", "hickory_", "rustls"];

/// A handle of the process's log, to change its level at run time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    limit: LineLimit,
}

/// Error: logging of the process is set up already; a binary does so once, before anything else.
#[derive(Debug, thiserror::Error)]
#[error("logging is set up already; call logging::init once, from main")]
pub struct AlreadySet;

/// Writes the present time into a log line.
type Clock = fn(&mut Writer<'_>) -> fmt::Result;

/// Sets up logging for the whole process, on standard error, with this format and level.
///
/// # Errors
/// If the process has a subscriber already.
pub fn init(logging: &Logging) -> Result<LogHandle, AlreadySet> {
    let limit = LineLimit::new(limit::REPORT);
    let now: Clock = |writer| write!(writer, "{:.6}", Timestamp::now());
    let (subscriber, handle) = build(logging, io::stderr, now, io::stderr().is_terminal(), limit);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| AlreadySet)?;
    Ok(handle)
}

/// Builds a log subscriber with this configuration, writer and clock, and the handle to change its level.
fn build<W>(
    logging: &Logging,
    writer: W,
    now: Clock,
    colours: bool,
    limit: LineLimit,
) -> (impl Subscriber + Send + Sync + use<W>, LogHandle)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(targets(&logging.level));
    let subscriber = Registry::default().with(filter).with(limit.clone());
    let lines = lines::layer().with_writer(writer);
    let lines = match logging.format {
        LogFormat::Json => lines.fmt_fields(SpanFields).event_format(Json { now }).boxed(),
        LogFormat::Text => {
            let fields = debug_fn(|writer, field, value| match field.name() {
                "message" => write!(writer, "{}", one_line(value)),
                name => write!(writer, "{name}={}", one_line(value)),
            });
            let lines = lines.with_timer(now).with_ansi(colours);
            lines.fmt_fields(fields.delimited(" ")).boxed()
        }
    };
    (subscriber.with(lines), LogHandle { filter: handle, limit })
}

// === impl LogHandle ===

impl LogHandle {
    /// Logs how many repeated log lines were left out since the last such report. Call it before the process
    /// ends.
    pub fn flush(&self) {
        self.limit.flush();
    }
}

impl SetLogLevel for LogHandle {
    fn set_log_level(&self, filter: &LogFilter) -> Result<(), BoxError> {
        Ok(self.filter.reload(targets(filter))?)
    }
}

// === private ===

/// Displays a value by its `Debug`; if a user's `Debug` fails midway, its partial output is kept.
fn lenient(value: &dyn fmt::Debug) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        write!(f, "{value:?}").ok();
        Ok(())
    })
}

/// Returns the text of a logged value with escaped control characters, so that it fits on one line.
fn one_line(value: &dyn fmt::Debug) -> String {
    super::escaped(&lenient(value).to_string())
}

fn targets(filter: &LogFilter) -> Targets {
    let quoting = QUOTING.map(|library| (library.to_owned(), filter.level.min(LevelFilter::INFO)));
    let is_off = filter.modules.iter().map(|(_, level)| *level).all(|level| level == LevelFilter::OFF);
    // If the filter lists a module that logs, reports of lines left out are logged even below the default
    // level.
    let reports = if is_off { filter.level } else { LevelFilter::WARN };
    // Of two targets with one name the later one is used.
    let targets = Targets::new().with_default(filter.level).with_targets(quoting);
    targets.with_target(limit::TARGET, reports).with_targets(filter.modules.clone())
}
