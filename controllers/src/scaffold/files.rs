//! Writes files, or none of them.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Done, Refusal};

/// A file to write: its path in the project, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
}

/// The writes so far, to undo them.
#[derive(Default)]
pub(super) struct Undo {
    /// New files and folders, in order.
    pub(super) created: Vec<PathBuf>,
    /// Changed files with their texts from before.
    pub(super) changed: Vec<(PathBuf, String)>,
}

/// Makes the folder `name` in `parent` with these files. They are written into a folder beside it, which is
/// renamed when it is complete.
pub(super) fn make_folder(parent: &Path, name: &str, files: &[File]) -> Done<()> {
    let target = parent.join(name);
    let failed =
        |error: io::Error| Refusal::new(format_args!("{}: cannot be made: {error}", target.display()));
    if fs::symlink_metadata(&target).is_ok() {
        return Err(Refusal::new(format_args!("{}: exists; expected a name that is free", target.display())));
    }
    let beside = tempfile::Builder::new().prefix(".mainstay-new-").tempdir_in(parent).map_err(failed)?;
    // With the permissions of any new folder, unlike the one around it.
    let folder = beside.path().join(name);
    for File { path, text } in files {
        create(&folder.join(path), text, &mut Vec::new()).map_err(failed)?;
    }
    format(&folder, files);
    fs::rename(&folder, &target).map_err(failed)
}

/// Creates the new files of a project and replaces the texts of the changed ones. After an error the project
/// is as before, or the refusal names the files that are not.
pub(super) fn change(project: &Path, new: &[File], changed: &[File]) -> Done<()> {
    let mut undo = Undo::default();
    if let Err(Refusal(problem)) = write(project, new, changed, &mut undo) {
        return Err(Refusal(match &undo.run()[..] {
            [] => problem,
            left => format!("{problem}; this could not be undone: {}", left.join(", ")),
        }));
    }
    format(project, new);
    Ok(())
}

fn write(project: &Path, new: &[File], changed: &[File], undo: &mut Undo) -> Done<()> {
    for File { path, text } in new {
        create(&project.join(path), text, &mut undo.created)
            .map_err(|error| Refusal::new(format_args!("{path}: cannot be created: {error}")))?;
    }
    for File { path, text } in changed {
        let failed = |error| Refusal::new(format_args!("{path}: cannot be changed: {error}"));
        let file = fs::canonicalize(project.join(path)).map_err(failed)?;
        let before = fs::read_to_string(&file).map_err(failed)?;
        replace(&file, &formatted_if(project, &before, text)).map_err(failed)?;
        undo.changed.push((file, before));
    }
    Ok(())
}

/// Formats Rust sources as the project's `rustfmt.toml` says: names are longer or shorter than those of the
/// templates, and CI checks the format. Without rustfmt they stay as they are.
fn format(project: &Path, files: &[File]) {
    let sources = files.iter().map(|file| &file.path).filter(|path| has_extension(path, "rs"));
    drop(rustfmt(project).args(sources).stdin(Stdio::null()).stdout(Stdio::null()).status());
}

/// Returns a changed source in the format of rustfmt if it had that format before the change.
fn formatted_if(project: &Path, before: &str, source: &str) -> String {
    let was_formatted = formatted(project, before).is_some_and(|formatted| formatted == before);
    let changed = was_formatted.then(|| formatted(project, source)).flatten();
    changed.unwrap_or_else(|| source.to_owned())
}

/// Returns a source as rustfmt formats it; `None` if it cannot.
fn formatted(project: &Path, source: &str) -> Option<String> {
    // Given a path, rustfmt also writes the files of its modules.
    let mut child = rustfmt(project).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let written = child.stdin.take()?.write_all(source.as_bytes());
    let output = child.wait_with_output().ok()?;
    (written.is_ok() && output.status.success()).then(|| String::from_utf8(output.stdout).ok())?
}

fn rustfmt(project: &Path) -> Command {
    let mut command = Command::new("rustfmt");
    command.args(["--edition", "2024"]).current_dir(project).stderr(Stdio::null());
    command
}

pub(super) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|it| it == extension)
}

/// Creates a file with its folders. `created` gets all that was made, in order.
fn create(path: &Path, text: &str, created: &mut Vec<PathBuf>) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        fs::create_dir(folder)?;
        created.push(folder.to_owned());
    }
    let mut file = fs::File::create_new(path)?;
    created.push(path.to_owned());
    file.write_all(text.as_bytes())
}

/// Replaces a file by one with another text and the same permissions, once that is complete on the disk. The
/// path has no links.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let permissions = fs::metadata(path)?.permissions();
    // A rename would pass over this.
    if permissions.readonly() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

// === impl Undo ===

impl Undo {
    /// Undoes the writes, the last one first, and returns those that failed.
    pub(super) fn run(&self) -> Vec<String> {
        let changed = self.changed.iter().rev().map(|(path, text)| (path, replace(path, text)));
        let created = self
            .created
            .iter()
            .rev()
            .map(|path| (path, if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }));
        let failed = changed.chain(created).filter_map(|(path, done)| Some((path, done.err()?)));
        failed.map(|(path, error)| format!("{}: {error}", path.display())).collect()
    }
}
