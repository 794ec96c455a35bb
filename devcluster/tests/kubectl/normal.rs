//! Replaces what differs in every run: times, ages, uids, addresses, and names that the server makes up.

use std::process::Output;
use std::sync::LazyLock;

use regex::Regex;

/// Patterns and the marks in their place, in the order of their use.
static MARKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
        (r"127\.0\.0\.1:\d+", "<server>"),
        (r"\b\d+\.\d+\.\d+\.\d+\b", "<address>"),
        // The hash of a template, and the rest of the name of a Pod.
        (r"(hash[=:] *|-)[bcdfghjklmnpqrstvwxz2456789]{7,10}\b", "${1}<hash>"),
        (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-<5>"),
        (r"(Resource Version: *)\d+", "${1}<version>"),
        (r#"(resourceVersion"?: *"?)\d+"#, "${1}<version>"),
        (r#"(nodePort"?: *"?|NodePort: .*)\d{5}"#, "${1}<port>"),
        (r":\d{5}/", ":<port>/"),
        (r"/tmp/\S*?(\w+-\d+)\S*", "<file>"),
        (r"\b(\d+[smhdy]){1,2}( ago)?( \(x\d+ over \d+\w+\))?(\s|$|\))", "<age>${4}"),
    ];
    patterns.map(|(pattern, mark)| (Regex::new(pattern).expect("a pattern"), mark)).into()
});

/// Columns have the width of their longest cell.
static GAPS: LazyLock<Regex> = LazyLock::new(|| Regex::new("(\\S) {2,}").expect("a pattern"));

/// Returns the exit code of a command unless it is 0, its output and its errors, with marks.
pub(crate) fn output(output: &Output) -> String {
    let mut lines = Vec::new();
    if let Some(code) = output.status.code().filter(|code| *code != 0) {
        lines.push(format!("exit code {code}"));
    }
    let mut events = false;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // Controllers of the real server report more events, and progress depends on the moment.
        events = line.starts_with("Events:") || (events && line.starts_with(' '));
        if !events && !line.starts_with("Waiting for ") {
            lines.push(marked(line));
        }
    }
    lines.extend(
        String::from_utf8_lossy(&output.stderr)
            .lines()
            .map(|line| format!("error: {}", marked(line)).trim_end().to_owned()),
    );
    lines.join("\n")
}

fn marked(line: &str) -> String {
    let mut line = line.trim_end().to_owned();
    for (pattern, mark) in MARKS.iter() {
        line = pattern.replace_all(&line, *mark).into_owned();
    }
    GAPS.replace_all(&line, "${1}  ").into_owned()
}
