//! The lengths of the operators in `operators`, beside those of their originals.

use std::fs;

use super::imports::without_comments;
use super::workspace;

/// The files of each operator, and the number of lines of its original: controller and types, without `main`,
/// webhooks and generated code.
const OPERATORS: [(&str, &[&str], usize); 3] = [
    ("Foo", &["foo.rs", "bin/foo.rs"], 274),
    ("CronJob", &["cron_job.rs", "cron_job/schedule.rs", "conditions.rs", "bin/cron-job.rs"], 474),
    ("Memcached", &["memcached.rs", "conditions.rs", "bin/memcached.rs"], 276),
];

#[test]
fn operators_are_no_longer_than_their_originals_as_their_readme_says() {
    let folder = workspace().join("operators");
    let read = |path: &str| fs::read_to_string(folder.join(path)).expect("a readable file");
    let readme = read("README.md");
    for (name, files, original) in OPERATORS {
        let lines: usize = files.iter().map(|file| lines_of_code(&read(&format!("src/{file}")))).sum();
        assert!(lines <= original, "{name} has {lines} lines, and its original has {original}");
        let row = format!("| {lines} | {original} |");
        let said = readme.lines().any(|line| line.contains(&format!("`{name}`")) && line.ends_with(&row));
        assert!(said, "operators/README.md has no row of `{name}` that ends with {row}");
    }
}

/// Returns the number of lines that are neither blank nor comments nor tests.
fn lines_of_code(source: &str) -> usize {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    without_comments(code).lines().filter(|line| !line.trim().is_empty()).count()
}
