//! The places in the sources of a project at which a kind and a controller are registered.
//!
//! Found by the code around them, without marks: users edit these files, and move and delete lines.

use super::source::{end_of_call, identifiers, masked, without_tests};

/// A line that registers something.
#[derive(Debug)]
pub(super) struct Line {
    /// The code, such as `pub mod shop;`.
    pub(super) code: String,
    pub(super) place: Place,
}

/// The place of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Among the modules of a file, in the order of their names.
    Module,
    /// Among the imports: first.
    Import,
    /// On the program: after the last call of the same method, else after `Program::new(..)`. `.crds(..)` and
    /// `.controllers(..)` add to earlier calls.
    Program,
    /// In `fn setup(manager: &Manager)`: after the last such line, else first.
    Setup,
}

/// The source with a line added.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The line was there already, perhaps in another form.
    Already,
    /// The source with the line.
    Now(String),
    /// The place was not found.
    Nowhere,
}

/// The signature of the function that registers the controllers.
const SETUP: &str = "fn setup(manager: &Manager)";

// === impl Line ===

impl Line {
    /// Returns the line `pub mod NAME;`.
    pub(super) fn module(name: &str) -> Self {
        Self { code: format!("pub mod {name};"), place: Place::Module }
    }

    /// Returns the import of an item.
    pub(super) fn import(path: &str) -> Self {
        Self { code: format!("use {path};"), place: Place::Import }
    }

    /// Returns a call on the program, such as `.controllers(["shop"])`.
    pub(super) fn on_program(method: &str, argument: &str) -> Self {
        Self { code: format!(".{method}([{argument}])"), place: Place::Program }
    }

    /// Returns the call of the `setup` of a controller's module.
    pub(super) fn setup(module: &str) -> Self {
        Self { code: format!("controllers::{module}::setup(manager)?;"), place: Place::Setup }
    }

    /// Returns the source with this line.
    pub(super) fn add_to(&self, source: &str) -> Added {
        let code = masked(source);
        // A module of tests has a name that no other module can have.
        let masked = if self.place == Place::Module { code } else { without_tests(code) };
        let added = match self.place {
            Place::Module if self.is_module(&masked) => return Added::Already,
            Place::Module => Some(self.add_module(source, &masked)),
            Place::Import if self.is_imported(&masked) => return Added::Already,
            Place::Import => self.add_import(source, &masked),
            Place::Program if self.is_on_program(source, &masked) => return Added::Already,
            Place::Program => self.add_call(source, &masked),
            Place::Setup if masked.contains(self.code.trim_end_matches("?;")) => return Added::Already,
            Place::Setup => self.add_setup(source, &masked),
        };
        added.map_or(Added::Nowhere, Added::Now)
    }

    /// Returns where the line belongs, for a user who adds it by hand.
    pub(super) fn place(&self) -> &'static str {
        match self.place {
            Place::Module => "with the modules",
            Place::Import => "with the imports",
            Place::Program => "on the Program",
            Place::Setup => "where controllers are registered",
        }
    }

    fn is_module(&self, masked: &str) -> bool {
        let name = module_of(&self.code);
        masked.lines().any(|line| module_of(line).is_some() && module_of(line) == name)
    }

    fn add_module(&self, source: &str, masked: &str) -> String {
        let name = module_of(&self.code);
        let lines: Vec<&str> = masked.lines().collect();
        let modules = || lines.iter().enumerate().filter(|(_, line)| module_of(line).is_some());
        let before = modules().rfind(|(_, line)| module_of(line) < name).map(|(at, _)| at + 1);
        let at = before.or_else(|| {
            // In front of its attributes and comments, which are blank in the masked source.
            let (mut at, _) = modules().next()?;
            let originals: Vec<&str> = source.lines().collect();
            while at > 0 && ["#[", "///"].iter().any(|mark| originals[at - 1].starts_with(mark)) {
                at -= 1;
            }
            Some(at)
        });
        let mut result: Vec<&str> = source.lines().collect();
        if let Some(at) = at {
            result.insert(at, &self.code);
        } else {
            result.extend(["", &self.code].into_iter().skip(usize::from(source.is_empty())));
        }
        result.join("\n") + "\n"
    }

    fn is_imported(&self, masked: &str) -> bool {
        let item = self.code.rsplit("::").next().map(|item| item.trim_end_matches(';'));
        identifiers(masked).iter().any(|word| Some(word.as_str()) == item)
    }

    fn add_import(&self, source: &str, masked: &str) -> Option<String> {
        let at = if masked.starts_with("use ") { 0 } else { masked.find("\nuse ")? + 1 };
        Some(format!("{}{}\n{}", &source[..at], self.code, &source[at..]))
    }

    /// Returns the method and the argument of a call on the program.
    fn method(&self) -> Option<(&str, &str)> {
        let (method, argument) = self.code.split_once("([")?;
        Some((method, argument.strip_suffix("])")?))
    }

    fn is_on_program(&self, source: &str, masked: &str) -> bool {
        let Some((method, argument)) = self.method() else { return false };
        let mut calls = calls(masked, method);
        calls.any(|(begin, end)| source[begin..end].contains(argument))
    }

    fn add_call(&self, source: &str, masked: &str) -> Option<String> {
        let (method, _) = self.method()?;
        let last = calls(masked, method).last().or_else(|| calls(masked, "Program::new").last());
        let (begin, end) = last?;
        // On a line of its own if the chain goes on below; with the indentation of that chain.
        let line = source[..begin].rfind('\n').map_or(0, |at| at + 1);
        let indentation = &source[line..begin];
        let is_alone = indentation.trim().is_empty() && masked[end..].starts_with(['\n', ';']);
        let follower = masked[end..].strip_prefix('\n').filter(|rest| rest.trim_start().starts_with('.'));
        let indentation = match follower {
            _ if is_alone && masked[begin..].starts_with('.') => Some(indentation.to_owned()),
            Some(rest) => rest[..rest.len() - rest.trim_start().len()].rsplit('\n').next().map(str::to_owned),
            None => None,
        };
        let code = indentation.map_or_else(|| self.code.clone(), |spaces| format!("\n{spaces}{}", self.code));
        Some(format!("{}{code}{}", &source[..end], &source[end..]))
    }

    fn add_setup(&self, source: &str, masked: &str) -> Option<String> {
        let mut begin = 0;
        let mut last = None;
        for line in masked.split_inclusive('\n') {
            let code = line.trim();
            if code.starts_with("controllers::") && code.ends_with("::setup(manager)?;") {
                last = Some((begin + line.len(), line.len() - line.trim_start().len()));
            }
            begin += line.len();
        }
        let (at, indentation) = last.or_else(|| {
            let signature = masked.find(SETUP)?;
            let body = signature + masked[signature..].find('{')?;
            let at = body + masked[body..].find('\n')? + 1;
            masked[body + 1..at].trim().is_empty().then_some((at, 4))
        })?;
        Some(format!("{}{}{}\n{}", &source[..at], " ".repeat(indentation), self.code, &source[at..]))
    }
}

/// Returns the name in a line that declares a module of a file of its own, at the outermost level.
fn module_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    rest.strip_prefix("mod ")?.trim_end().strip_suffix(';')
}

/// Returns begin and end of each call of a function or method in a masked source.
fn calls<'a>(masked: &'a str, name: &'a str) -> impl Iterator<Item = (usize, usize)> {
    let begins = masked.match_indices(name).map(|(at, _)| at);
    begins.filter_map(move |at| {
        let open = at + name.len();
        let end = masked[open..].starts_with('(').then(|| end_of_call(masked, open)).flatten()?;
        Some((at, end))
    })
}
