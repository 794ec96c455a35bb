//! Log lines on standard error, as JSON for collectors or as tracing-subscriber's text for people.
//!
//! A JSON line has the keys that users of controller-runtime look for: `ts`, `level`, `msg`, `logger`, then `controller`,
//! `namespace`, `name`, `reconcileID`, then all other fields by name, then `error`. Fields of the spans around an event
//! stand beside its own; of two with one name the inner one holds. The level can be changed while running.
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
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{self as lines, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

use crate::config::{LogFilter, LogFormat, Logging};
use crate::manager::SetLogLevel;
use crate::reconcile::BoxError;

use json::{Json, SpanFields};
use limit::LineLimit;

/// Libraries whose detailed lines quote bytes of a peer. They stay at `info` unless the filter names them: a higher level
/// for the manager must not let strangers write into its log.
const QUOTING: [&str; 3] = ["h2", "hickory_", "rustls"];

/// Changes what is logged while the process runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    limit: LineLimit,
}

/// The process logs already; a binary sets logging up once, before anything else.
#[derive(Debug, thiserror::Error)]
#[error("logging is set up already; call logging::init once, from main")]
pub struct AlreadySet;

/// The time of a line of text.
struct Clock(fn() -> Timestamp);

/// Displays a value without its control characters.
struct OneLine<'a>(&'a dyn fmt::Debug);

/// Sets up logging for the whole process, on standard error.
///
/// # Errors
/// If the process has a subscriber already.
pub fn init(logging: &Logging) -> Result<LogHandle, AlreadySet> {
    let limit = LineLimit::new(limit::REPORT);
    let (subscriber, handle) = build(logging, io::stderr, Timestamp::now, io::stderr().is_terminal(), limit);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| AlreadySet)?;
    Ok(handle)
}

/// Builds a subscriber that is not set up yet, with a writer and a clock of the caller's choice. Text has no colours.
pub fn subscriber<W>(
    logging: &Logging,
    writer: W,
    now: fn() -> Timestamp,
) -> (impl Subscriber + Send + Sync + use<W>, LogHandle)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    build(logging, writer, now, false, LineLimit::new(limit::REPORT))
}

fn build<W>(
    logging: &Logging,
    writer: W,
    now: fn() -> Timestamp,
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
                "message" => write!(writer, "{}", OneLine(value)),
                name => write!(writer, "{name}={}", OneLine(value)),
            });
            let lines = lines.with_timer(Clock(now)).with_ansi(colours);
            lines.fmt_fields(fields.delimited(" ")).boxed()
        }
    };
    (subscriber.with(lines), LogHandle { filter: handle, limit })
}

// === impl LogHandle ===

impl LogHandle {
    /// Logs how many repeated lines were left out since the last such report. Call it before the process ends.
    pub fn flush(&self) {
        self.limit.flush();
    }
}

impl SetLogLevel for LogHandle {
    fn set_log_level(&self, filter: &LogFilter) -> Result<(), BoxError> {
        Ok(self.filter.reload(targets(filter))?)
    }
}

// === impl Clock ===

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{:.6}", (self.0)())
    }
}

// === impl OneLine ===

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        // If a user's implementation fails midway, its partial output is kept.
        fmt::write(&mut text, format_args!("{:?}", self.0)).ok();
        let shown = |letter: char| {
            if letter.is_control() { letter.escape_default().to_string() } else { letter.into() }
        };
        f.write_str(&text.chars().map(shown).collect::<String>())
    }
}

fn targets(filter: &LogFilter) -> Targets {
    let quoting = QUOTING.map(|library| (library.to_owned(), filter.level.min(LevelFilter::INFO)));
    let is_off = filter.modules.iter().map(|(_, level)| *level).all(|level| level == LevelFilter::OFF);
    // What was left out of the lines of one module is reported even if nothing else is logged.
    let reports = if is_off { filter.level } else { LevelFilter::WARN };
    // The later of two of one name holds.
    let targets = Targets::new().with_default(filter.level).with_targets(quoting);
    targets.with_target(limit::TARGET, reports).with_targets(filter.modules.clone())
}
