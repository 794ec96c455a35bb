//! The commands in the book: the page that lists them is made from `--help`, and every command that a page
//! shows is one that the binary accepts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The line on the page after which the list begins.
const BEGIN: &str = "<!-- `MAINSTAY_UPDATE=1 cargo test -p mainstay-tests --test shared reference` writes what follows. -->\n";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the help of a command, and its commands; an error is what the binary wrote instead.
fn help(command: &[&str]) -> Result<(String, Vec<String>), String> {
    let binary = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
    let output = { binary }.args(command).arg("--help").stdin(Stdio::null()).output().expect("it starts");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8(output.stdout).expect("text").replace("mainstay-under-test", "mainstay");
    let listed = text.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let names = listed.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let names = names.map(str::to_owned).collect();
    Ok((text, names))
}

fn write_commands(command: &[&str], page: &mut String) {
    let (text, commands) = help(command).expect("a command");
    let title = [&["mainstay"], command].concat().join(" ");
    writeln!(page, "\n## {title}\n\n```text\n{}\n```", text.trim_end()).expect("a String takes all");
    for name in commands {
        write_commands(&[command, &[name.as_str()]].concat(), page);
    }
}

#[test]
fn the_page_of_commands_is_made_from_their_help() {
    let path = workspace().join("docs/reference/commands.md");
    let page = std::fs::read_to_string(&path).expect("docs/reference/commands.md");
    let (before, listed) = page.split_once(BEGIN).expect("the line before the list");
    let mut made = String::new();
    write_commands(&[], &mut made);
    if std::env::var_os("MAINSTAY_UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(path, [before, BEGIN, &made].concat()).expect("written");
        return;
    }
    assert!(listed == made, "docs/reference/commands.md differs from what --help prints:\n{made}");
}

#[test]
fn commands_in_the_docs_are_accepted() {
    let mut pages = vec![workspace().join("README.md"), workspace().join("controllers/README.md")];
    for folder in ["docs", "docs/how-to", "docs/decisions"] {
        let entries = std::fs::read_dir(workspace().join(folder)).expect("a readable folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        pages.extend(paths.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a readable page");
        for shown in text.lines().filter_map(|line| line.trim_start().strip_prefix("$ ")) {
            let command = shown.split(" #").next().unwrap_or_default();
            let after = |mark: &str| command.split_once(mark).map(|(_, rest)| rest);
            let ours = command.strip_prefix("mainstay ");
            let Some(ours) = ours.or_else(|| after(" -- mainstay ")).or_else(|| after("cargo run -- "))
            else {
                continue;
            };
            let words: Vec<&str> = ours.split_whitespace().take_while(|word| *word != "&&").collect();
            count += 1;
            if let Err(error) = help(&words) {
                wrong.push(format!("{}: {shown}\n{error}", page.display()));
            }
        }
    }
    assert!(count > 10, "{count} commands");
    assert!(wrong.is_empty(), "the binary refuses:\n{}", wrong.join("\n"));
}
