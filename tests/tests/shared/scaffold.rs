//! `mainstay new` and `mainstay add` on the command line: wrong input is one line and exit code 2, and leaves
//! nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the binary in a folder and returns exit code, standard output and standard error.
fn mainstay(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Checks that a command is refused with this line, and that the folder has `left` entries as before.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str], line: &str) {
    let before = entries(folder);
    let found = mainstay(folder, arguments);
    assert_eq!(found, (Some(2), String::new(), format!("error: {line}\n")), "{arguments:?}");
    assert_eq!(entries(folder), before, "{arguments:?}");
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().display().to_string()).collect();
    names.sort();
    names
}

#[test]
fn wrong_names_and_folders_are_refused_with_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let label = "expected at most 55 lower-case letters, digits and single dashes, a letter first, such as \
                 web-shop";
    for wrong in ["Shop", "web_shop", "9shop", "../shop", "a.b", ""] {
        refused(here, &["new", wrong], &format!("name {wrong:?}: {label}"));
    }
    refused(here, &["new", "match"], "name \"match\": expected no keyword of Rust");
    for wrong in ["test", "core", "std"] {
        let line = format!("name {wrong:?}: cargo refuses a package of this name");
        refused(here, &["new", wrong], &line);
    }
    let used = "the generated code uses this word for something else; choose another one";
    refused(here, &["new", "kube"], &format!("name \"kube\": {used}"));
    let kind = "expected letters and digits, a capital letter first, such as WebShop";
    refused(here, &["new", "shop", "--kind", "web-shop"], &format!("kind \"web-shop\": {kind}"));
    let group = "expected a domain in lower case, such as shop.example.com";
    refused(here, &["new", "shop", "--group", "Shop"], &format!("group \"Shop\": {group}"));
    std::fs::write(here.join("shop"), "").expect("written");
    refused(here, &["new", "shop"], "./shop: exists; expected a name that is free");
    // No process may create files there.
    let (code, _, line) = mainstay(Path::new("/proc"), &["new", "shop"]);
    assert_eq!((code, line.lines().count()), (Some(2), 1), "{line}");
    assert!(line.starts_with("error: ./shop: cannot be made: "), "{line}");
}

#[test]
fn a_folder_without_a_project_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = "run this in the folder of a project that `mainstay new` made";
    let missing = format!("Cargo.toml: cannot be read: No such file or directory (os error 2); {here}");
    refused(folder.path(), &["add", "kind", "Basket"], &missing);
    refused(folder.path(), &["add", "controller", "watcher"], &missing);
    std::fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"other\"\n").expect("written");
    let other = format!("Cargo.toml: expected a dependency on mainstay; {here}");
    refused(folder.path(), &["add", "kind", "Basket"], &other);
    for arguments in [&["new"][..], &["add"], &["add", "kind"], &["add", "webhook", "x"], &["new", "a", "b"]]
    {
        assert_eq!(mainstay(folder.path(), arguments).0, Some(2), "{arguments:?}");
    }
}

#[test]
fn a_project_has_paths_into_the_checkout_or_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, said, errors) = mainstay(folder.path(), &["new", "web"]);
    assert_eq!((code, &*errors), (Some(0), ""));
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").display();
    assert_eq!(
        said,
        format!(
            "created web/ with 18 files\nits dependencies are paths into {checkout}, because this binary was \
             built there; the image and CI need published versions: use --registry after the crates are \
             published\n\
             next: cd web && cargo run -- dev\n"
        )
    );
    let (code, said, _) = mainstay(folder.path(), &["new", "shop", "--registry"]);
    assert_eq!((code, &*said), (Some(0), "created shop/ with 17 files\nnext: cd shop && cargo run -- dev\n"));
    let manifest = |name: &str| {
        std::fs::read_to_string(folder.path().join(name).join("Cargo.toml")).expect("a manifest")
    };
    assert!(manifest("web").contains(&format!("mainstay = {{ path = \"{checkout}/manager\" }}")));
    assert!(manifest("shop").contains("mainstay = { version = \"0.1\" }"));
    assert_eq!(entries(folder.path()), ["shop", "web"], "no temporary folder is left");

    let project = folder.path().join("shop");
    assert_eq!(mainstay(&project, &["add", "kind", "Basket"]).0, Some(0));
    let again = "src/api/basket.rs: exists; expected no such file";
    refused(&project, &["add", "kind", "Basket"], again);
}
