//! Which log lines are written.

use std::fmt;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;

use super::text::as_text;
use super::words::{closest, one_of};

/// From the one that no line has to the one that every line has.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// What every filter matches.
const PATTERN: &str =
    "^(off|error|warn|info|debug|trace)(,[A-Za-z0-9_:]+=(off|error|warn|info|debug|trace))*$";

/// Which log lines are written: a level, and levels of single modules. Libraries that quote what peers send (`h2`,
/// `hickory_*`, `rustls`) write at `debug` and `trace` only where a level is given for them by name.
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
    /// Of every module that is not listed.
    pub level: LevelFilter,
    /// Of single modules and all below them; the longest name that fits holds.
    pub modules: Vec<(String, LevelFilter)>,
}

as_text!(LogFilter, PATTERN);

// === impl LogFilter ===

impl FromStr for LogFilter {
    type Err = String;

    /// Stricter than tracing's own filters, which take a misspelt level for the name of a module.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let level = parts.next().and_then(level_of);
        let modules: Option<Vec<_>> = parts.map(module_level).collect();
        if let (Some(level), Some(modules)) = (level, modules) {
            return Ok(Self { level, modules });
        }
        let hint = closest(text, &LEVELS).map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let form = "with MODULE=LEVEL after commas for single modules";
        Err(format!("{}, {form}, such as info,mainstay::queue=debug{hint}", one_of(&LEVELS)))
    }
}

/// Stricter than tracing, which takes numbers and capitals too.
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
