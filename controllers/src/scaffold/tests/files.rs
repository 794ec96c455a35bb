//! Writes, and how they are undone.

use std::fs;

use super::super::files::Undo;

#[test]
fn every_write_is_undone_and_a_failure_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["new", "changed"] {
        fs::write(path(name), "after").unwrap();
    }
    // A file that is replaced keeps its text under other names.
    fs::hard_link(path("changed"), path("link")).unwrap();
    let undo = Undo {
        created: vec![path("new"), path("gone")],
        changed: vec![(path("changed"), "before".to_owned()), (path("lost/file"), String::new())],
    };
    let problem = |name| format!("{}: No such file or directory (os error 2)", path(name).display());
    assert_eq!(undo.run(), ["lost/file", "gone"].map(problem));
    assert!(!path("new").exists());
    let texts = ["changed", "link"].map(|name| fs::read_to_string(path(name)).unwrap());
    assert_eq!(texts, ["before", "after"]);
}
