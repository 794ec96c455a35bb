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

/// Undoes writes when it is dropped, unless they are kept.
#[derive(Default)]
struct Undo {
    created: Vec<PathBuf>,
    /// Changed files with their texts from before.
    changed: Vec<(PathBuf, String)>,
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
/// is as before.
pub(super) fn change(project: &Path, new: &[File], changed: &[File]) -> Done<()> {
    let mut undo = Undo::default();
    for File { path, text } in new {
        create(&project.join(path), text, &mut undo.created)
            .map_err(|error| Refusal::new(format_args!("{path}: cannot be created: {error}")))?;
    }
    for File { path, text } in changed {
        replace(&project.join(path), text, &mut undo)
            .map_err(|error| Refusal::new(format_args!("{path}: cannot be changed: {error}")))?;
    }
    undo.created.clear();
    undo.changed.clear();
    format(project, new);
    Ok(())
}

/// Formats Rust sources as the project's `rustfmt.toml` says: names are longer or shorter than those of the
/// templates, and CI checks the format. Without rustfmt they stay as they are.
fn format(project: &Path, files: &[File]) {
    let sources = files.iter().map(|file| &file.path).filter(|path| has_extension(path, "rs"));
    let rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .args(sources)
        .current_dir(project)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    drop(rustfmt);
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

/// Replaces a file by one with another text and the same permissions, once that is complete on the disk.
fn replace(path: &Path, text: &str, undo: &mut Undo) -> io::Result<()> {
    let before = fs::read_to_string(path)?;
    let permissions = fs::metadata(path)?.permissions();
    // A rename would pass over this.
    if permissions.readonly() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let path = fs::canonicalize(path)?;
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(&path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(permissions)?;
    file.persist(&path)?;
    undo.changed.push((path, before));
    Ok(())
}

// === impl Undo ===

impl Drop for Undo {
    fn drop(&mut self) {
        // The error that is reported is that of the write; a second one here has no better place.
        for (path, text) in self.changed.drain(..) {
            drop(fs::write(path, text));
        }
        for path in self.created.drain(..).rev() {
            drop(if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) });
        }
    }
}
