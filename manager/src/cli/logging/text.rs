//! A line for people: time, level, where it comes from, what happened, and the fields.

use std::fmt::Write as _;

use tracing::Level;

use super::lines::Line;

/// Writes a line, with its end.
pub(super) fn plain(line: &Line<'_>) -> String {
    form(line, "", "")
}

/// As [`plain`], for a terminal: the level stands out.
pub(super) fn coloured(line: &Line<'_>) -> String {
    let colour = match line.level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    };
    form(line, colour, "\x1b[0m")
}

fn form(line: &Line<'_>, colour: &str, end: &str) -> String {
    let message: String = serde_json::from_str(line.message()).unwrap_or_default();
    let mut text = format!("{:.6} {colour}{:>5}{end} {}: ", line.time, line.level.as_str(), line.logger);
    for c in message.chars() {
        // What would break the line, or drive the terminal, is shown instead.
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    for (name, value) in line.fields() {
        // A String takes all.
        write!(text, " {name}={value}").ok();
    }
    text.push('\n');
    text
}
