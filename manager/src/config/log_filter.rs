//! Which log lines are written.

use std::fmt;
use std::str::FromStr;

use super::text::as_text;
use super::words::{closest, one_of};

/// What every filter matches.
const PATTERN: &str =
    "^(off|error|warn|info|debug|trace)(,[A-Za-z0-9_:]+=(off|error|warn|info|debug|trace))*$";

/// Which log lines are written: a level, and levels of single modules. Libraries that quote what peers send (`h2`,
/// `hickory_*`, `rustls`) write at `debug` and `trace` only where a level is given for them by name.
///
/// Written as `info`, or as `info,mainstay::queue=debug,hyper=warn`.
///
/// ```
/// use mainstay::config::{LogFilter, LogLevel};
///
/// let filter: LogFilter = "warn,mainstay::queue=debug".parse()?;
/// assert_eq!(filter.level, LogLevel::Warn);
/// assert_eq!(filter.modules, [("mainstay::queue".to_owned(), LogLevel::Debug)]);
/// assert!("wran".parse::<LogFilter>().unwrap_err().ends_with("did you mean warn?"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// Of every module that is not listed.
    pub level: LogLevel,
    /// Of single modules and all below them; the longest name that fits holds.
    pub modules: Vec<(String, LogLevel)>,
}

/// The least important log line that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// None at all.
    Off,
    /// What somebody has to look at.
    Error,
    /// What may become an error.
    Warn,
    /// Changes of state.
    Info,
    /// Single decisions.
    Debug,
    /// Single steps.
    Trace,
}

as_text!(LogFilter, PATTERN);

// === impl LogFilter ===

impl FromStr for LogFilter {
    type Err = String;

    /// Stricter than tracing's own filters, which take a misspelt level for the name of a module.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let level = parts.next().and_then(LogLevel::from_word);
        let modules: Option<Vec<_>> = parts.map(module_level).collect();
        if let (Some(level), Some(modules)) = (level, modules) {
            return Ok(Self { level, modules });
        }
        let words = LogLevel::ALL.map(LogLevel::as_str);
        let hint = closest(text, &words).map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let form = "with MODULE=LEVEL after commas for single modules";
        Err(format!("{}, {form}, such as info,mainstay::queue=debug{hint}", one_of(&words)))
    }
}

fn module_level(part: &str) -> Option<(String, LogLevel)> {
    let (module, level) = part.split_once('=')?;
    let valid =
        !module.is_empty() && module.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
    Some((module.to_owned(), LogLevel::from_word(level)?)).filter(|_| valid)
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level.as_str())?;
        self.modules.iter().try_for_each(|(module, level)| write!(f, ",{module}={}", level.as_str()))
    }
}

impl LogLevel {
    const ALL: [Self; 6] = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// Returns the word used in files and flags.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}
