//! The form of the commands and of the record.
//!
//! A section starts with `== name`; its commands run in order in a namespace of this name. A command starts
//! with `$ ` and goes on until the next one; it is a script of the shell, so it may read further lines as a
//! file. Comments start with `#`. A line `~ reason` before a command says why its output differs.
//!
//! The record has the same sections and commands, each command followed by its output. A line of the output
//! starts with `| `, and what comes after the last newline has no line of its own.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Commands that run in one namespace.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) commands: Vec<Command>,
}

/// A script of the shell.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) text: String,
    /// Whether its output differs between the servers, for a reason that is given.
    pub(crate) differs: bool,
}

/// Reads the commands.
pub(crate) fn parse(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut differs = false;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("== ") {
            sections.push(Section { name: name.to_owned(), commands: Vec::new() });
            continue;
        }
        let Some(section) = sections.last_mut() else { continue };
        if line.starts_with("~ ") {
            differs = true;
        } else if let Some(command) = line.strip_prefix("$ ") {
            section.commands.push(Command { text: command.to_owned(), differs });
            differs = false;
        } else if let Some(command) = section.commands.last_mut().filter(|_| !line.is_empty()) {
            command.text.push('\n');
            command.text.push_str(line);
        }
    }
    sections
}

/// Returns the text of the record.
pub(crate) fn record(sections: &[Section], outputs: &[Vec<String>]) -> String {
    let mut text =
        "# What kubectl prints on the real server; KUBECTL_RECORD=1 writes this file.\n".to_owned();
    for (section, outputs) in sections.iter().zip(outputs) {
        let _infallible = writeln!(text, "\n== {}", section.name);
        for (command, output) in section.commands.iter().zip(outputs) {
            let _infallible = writeln!(text, "$ {}", command.text);
            for line in output.split('\n').filter(|_| !output.is_empty()) {
                text.push_str(format!("| {line}").trim_end());
                text.push('\n');
            }
        }
    }
    text
}

/// Reads the record: for each section its commands and their outputs.
pub(crate) fn recorded(text: &str) -> HashMap<String, Vec<(String, String)>> {
    let command = |command: Command| {
        let lines: Vec<_> = command.text.lines().collect();
        let start = lines.iter().position(|line| line.starts_with('|')).unwrap_or(lines.len());
        let (command, output) = lines.split_at(start);
        let output: Vec<_> = output.iter().map(|line| line[1..].strip_prefix(' ').unwrap_or("")).collect();
        (command.join("\n"), output.join("\n"))
    };
    let section = |section: Section| (section.name, section.commands.into_iter().map(command).collect());
    parse(text).into_iter().map(section).collect()
}
