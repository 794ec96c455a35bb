//! A line as one JSON object, spans flattened into it.
//!
//! tracing-subscriber's own JSON nests spans in a list, which no query for `namespace` and `name` would find.

use super::fields::write_string;
use super::lines::Line;

/// Keys every line has; a field of the same name gets an underscore.
const OWN_KEYS: [&str; 4] = ["ts", "level", "msg", "logger"];

/// Writes a line, with its end.
pub(super) fn form(line: &Line<'_>) -> String {
    let mut text = format!(
        r#"{{"ts":"{:.6}","level":"{}","msg":{},"logger":"#,
        line.time,
        line.level.as_str().to_ascii_lowercase(),
        line.message(),
    );
    write_string(&mut text, line.logger);
    for (name, value) in line.fields() {
        let own = if OWN_KEYS.contains(&name) { "_" } else { "" };
        text.push(',');
        write_string(&mut text, &format!("{name}{own}"));
        text.extend([":", value]);
    }
    text.push_str("}\n");
    text
}
