//! The filter of log lines, by level and module.

use std::fmt;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;

use super::messages::{hint, one_of};
use super::text::as_text;

/// The log levels, from the one that hides all lines to the one that shows all lines.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// A regular expression that the text of every log filter matches.
const PATTERN: &str =
    "^(off|error|warn|info|debug|trace)(,[A-Za-z0-9_:]+=(off|error|warn|info|debug|trace))*$";

/// The filter of log lines: a level, and levels of single modules. Libraries that quote bytes of a peer
/// (`h2`, `hickory_*`, `rustls`) log at `debug` and `trace` only if the filter names them.
///
/// Written as `info`, or as `info,mainstay::queue=debug,hyper=warn`.
///
/// ```
/// use mainstay::config::LogFilter;
/// use tracing::level_filters::LevelFilter;
///
/// let filter: LogFilter = "warn,mainstay::queue=debug".parse()?;
/// assert_eq!(filter.level, LevelFilter::WARN);
/// assert_eq!(filter.modules, [("mainstay::queue".to_owned(), LevelFilter::DEBUG)]);
/// assert!("wran".parse::<LogFilter>().unwrap_err().ends_with("did you mean warn?"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// The log level of every module that `modules` does not list.
    pub level: LevelFilter,
    /// Log levels of single modules and all modules below them; the longest matching name decides.
    pub modules: Vec<(String, LevelFilter)>,
}

as_text!(LogFilter, PATTERN);

// === impl LogFilter ===

impl FromStr for LogFilter {
    type Err = String;

    /// Parses a log filter. Stricter than tracing's own filters, which read a misspelt level as the name of a
    /// module.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let level = parts.next().and_then(level_of);
        let modules: Option<Vec<_>> = parts.map(module_level).collect();
        if let (Some(level), Some(modules)) = (level, modules) {
            return Ok(Self { level, modules });
        }
        let form = "with MODULE=LEVEL after commas for single modules, such as info,mainstay::queue=debug";
        Err(format!("{}, {form}{}", one_of(&LEVELS), hint(text, &LEVELS)))
    }
}

/// Parses a log level. Stricter than tracing, which also accepts numbers and capitals.
fn level_of(word: &str) -> Option<LevelFilter> {
    word.parse().ok().filter(|_| LEVELS.contains(&word))
}

fn module_level(part: &str) -> Option<(String, LevelFilter)> {
    let (module, level) = part.split_once('=')?;
    let valid =
        !module.is_empty() && module.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
    Some((module.to_owned(), level_of(level)?)).filter(|_| valid)
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        self.modules.iter().try_for_each(|(module, level)| write!(f, ",{module}={level}"))
    }
}
