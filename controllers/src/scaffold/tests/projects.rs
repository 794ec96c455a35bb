//! Projects in a scratch folder. A refusal writes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::{Done, Refusal, add, new};

/// Returns every file below a folder with its text.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let inner = tree(&path).into_iter().map(|(path, text)| (format!("{name}/{path}"), text));
            files.extend(inner);
        } else {
            files.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    files
}

/// Makes a project in a scratch folder.
fn made(
    name: &str,
    kind: Option<&str>,
    group: Option<&str>,
) -> (tempfile::TempDir, BTreeMap<String, String>) {
    let folder = tempfile::tempdir().unwrap();
    new::new(folder.path(), name, kind, group, None).unwrap();
    let files = tree(&folder.path().join(name));
    (folder, files)
}

fn refused(done: Done<String>) -> String {
    done.map_or_else(|Refusal(problem)| problem, |text| panic!("done: {text}"))
}

/// Changes a file by hand.
fn edit(project: &Path, path: &str, from: &str, to: &str) {
    let path = project.join(path);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{}: {text}", path.display());
    fs::write(path, text.replace(from, to)).unwrap();
}

/// Returns what rustfmt would change in a project.
fn unformatted(project: &Path) -> String {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024", "src/lib.rs"]).current_dir(project);
    let output = rustfmt.output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_project_is_small_and_has_no_name_of_the_templates() {
    let (_folder, files) = made("til-desk", Some("HTTPTill"), Some("tills.example.org"));
    let lines: usize = files.values().map(|text| text.lines().count()).sum();
    assert!(files.len() <= 22 && lines <= 400, "{} files, {lines} lines", files.len());
    for (path, text) in &files {
        let left = text.to_lowercase().contains("shop") || text.contains('@') && path == "Cargo.toml";
        assert!(!left && !path.contains("shop"), "{path}: {text}");
    }
    let has = |path: &str, text: &str| assert!(files[path].contains(text), "{path}: {}", files[path]);
    has("Cargo.toml", "name = \"til-desk\"");
    has("Cargo.toml", "mainstay = { version = \"0.1\" }");
    has("src/main.rs", "til_desk::program().main()");
    has("src/lib.rs", ".crds([api::http_till::HTTPTill::crd()])");
    has("src/lib.rs", ".controllers([\"http-till\"])");
    has("src/api/http_till.rs", "group = \"tills.example.org\"");
    has("samples/http-till.yaml", "apiVersion: tills.example.org/v1alpha1\nkind: HTTPTill\n");
    has("tests/cluster.rs", "use til_desk::api::http_till::HTTPTill;");
    has("tests/cluster.rs", "../samples/http-till.yaml");
}

#[test]
fn a_name_that_contains_that_of_the_template_is_replaced_once() {
    let (_folder, files) = made("workshop", None, None);
    assert!(files["src/lib.rs"].contains("api::workshop::Workshop::crd()"), "{}", files["src/lib.rs"]);
    assert!(files["src/api/workshop.rs"].contains("group = \"workshop.example.com\""));
}

#[test]
fn a_checkout_gives_paths_and_its_lock_file() {
    let (folder, checkout) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(checkout.path().join("Cargo.lock"), "version = 4\n").unwrap();
    let said = new::new(folder.path(), "till", None, None, Some(checkout.path())).unwrap();
    let reason = "because this binary was built there; the image and CI need published versions: use \
                  --registry after the crates are published\n";
    assert!(said.contains(reason), "{said}");
    let files = tree(&folder.path().join("till"));
    let path = format!("mainstay = {{ path = \"{}/manager\" }}", checkout.path().display());
    assert!(files["Cargo.toml"].contains(&path), "{}", files["Cargo.toml"]);
    assert_eq!(files["Cargo.lock"], "version = 4\n");
}

#[test]
fn wrong_input_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("taken"), "").unwrap();
    let (here, file) = (folder.path(), folder.path().join("taken"));
    let taken = format!("{}: exists; expected a name that is free", file.display());
    assert_eq!(refused(new::new(here, "taken", None, None, None)), taken);
    for (name, kind, group, problem) in [
        ("Shop", None, None, "lower-case"),
        ("test", None, None, "cargo refuses"),
        ("kube", None, None, "the generated code uses this word"),
        ("store", None, None, "the generated code uses this word"),
        ("serde-saphyr", None, None, "the generated code uses this word"),
        ("till", Some("till"), None, "such as Till"),
        ("till", Some("Store"), None, "the generated code uses this word"),
        ("till", None, Some("till"), "expected a domain"),
    ] {
        let said = refused(new::new(here, name, kind, group, None));
        assert!(said.contains(problem) && !said.contains('\n'), "{name}: {said}");
    }
    // A file in place of the folder around it.
    let said = refused(new::new(&file, "till", None, None, None));
    assert!(said.contains("till: cannot be made: Not a directory"), "{said}");
    assert_eq!(tree(here).len(), 1);
}

#[test]
fn a_kind_is_added_once() {
    let (folder, before) = made("shop", None, None);
    let project = folder.path().join("shop");
    let said = add::kind(&project, "Basket", None).unwrap();
    assert_eq!(
        said,
        "created src/api/basket.rs\ncreated src/controllers/basket.rs\ncreated samples/basket.yaml\n\
         src/api.rs: pub mod basket;\nsrc/controllers.rs: pub mod basket;\n\
         src/lib.rs: .crds([api::basket::Basket::crd()])\nsrc/lib.rs: .controllers([\"basket\"])\n\
         src/lib.rs: controllers::basket::setup(manager)?;\n"
    );
    let after = tree(&project);
    assert!(after["src/api/basket.rs"].contains("group = \"shop.example.com\""));
    assert!(after["src/api.rs"].ends_with("\npub mod basket;\npub mod shop;\n"), "{}", after["src/api.rs"]);
    // Lines are added, and none is changed.
    for (path, text) in &before {
        let left: Vec<_> = after[path].lines().filter(|line| !line.contains("basket")).collect();
        assert_eq!(left, text.lines().collect::<Vec<_>>(), "{path}");
    }
    assert_eq!(
        refused(add::kind(&project, "Basket", None)),
        "src/api/basket.rs: exists; expected no such file"
    );
    assert_eq!(tree(&project), after);
}

#[test]
fn files_that_were_formatted_stay_so() {
    let (folder, _) = made("shop", None, None);
    let project = folder.path().join("shop");
    edit(&project, "src/lib.rs", "        .crds([api::shop::Shop::crd()])\n", "");
    edit(&project, "src/lib.rs", "use kube::CustomResourceExt;", "use controllers::shop;");
    add::kind(&project, "InternationalShippingContainerReservation", None).unwrap();
    let files = tree(&project);
    let library = &files["src/lib.rs"];
    assert!(library.contains("::crd()") && library.contains("use kube::CustomResourceExt;"), "{library}");
    assert_eq!(unformatted(&project), "");

    // A format of one's own stays, with the lines as they are.
    let (folder, _) = made("shop", None, None);
    let project = folder.path().join("shop");
    edit(&project, "src/lib.rs", "    Ok(())", "      Ok(())");
    let before = tree(&project)["src/lib.rs"].clone();
    add::kind(&project, "InternationalShippingContainerReservation", None).unwrap();
    let library = &tree(&project)["src/lib.rs"];
    let left: Vec<_> = library.lines().filter(|line| !line.contains("international")).collect();
    assert_eq!(left, before.lines().collect::<Vec<_>>());
}

#[test]
fn a_controller_is_added_for_a_kind_of_kubernetes_and_of_the_project() {
    let (folder, _) = made("shop", None, None);
    let project = folder.path().join("shop");
    add::controller(&project, "job-watcher", "Job").unwrap();
    add::controller(&project, "shop-watcher", "Shop").unwrap();
    let files = tree(&project);
    let job = &files["src/controllers/job_watcher.rs"];
    assert!(
        job.contains("use k8s_openapi::api::batch::v1::Job;") && job.contains("\"job-watcher\""),
        "{job}"
    );
    assert!(files["src/controllers/shop_watcher.rs"].contains("::api::shop::Shop;\n"));
    let said = refused(add::controller(&project, "other", "Jab"));
    assert!(
        said.starts_with("kind \"Jab\": expected a kind in src/api/jab.rs, or one of ConfigMap, "),
        "{said}"
    );
    let said = refused(add::controller(&project, "job-watcher", "Pod"));
    assert_eq!(said, "src/controllers/job_watcher.rs: exists; expected no such file");
    assert_eq!(tree(&project), files);
}

#[test]
fn lines_without_a_place_are_printed_and_nothing_is_written() {
    let (folder, _) = made("shop", None, None);
    let project = folder.path().join("shop");
    edit(&project, "src/lib.rs", "pub fn setup(manager: &Manager)", "pub fn setup(it: &Manager)");
    edit(&project, "src/lib.rs", "setup(manager)?", "setup(it)?");
    fs::remove_file(project.join("src/api.rs")).unwrap();
    let before = tree(&project);
    assert_eq!(
        refused(add::kind(&project, "Basket", None)),
        "no place was found for some lines, and nothing was written; add them by hand, then run this again:\
         \n  src/api.rs, with the modules: pub mod basket;\
         \n  src/lib.rs, where controllers are registered: controllers::basket::setup(manager)?;"
    );
    assert_eq!(tree(&project), before);
    // With the lines it goes on.
    fs::write(project.join("src/api.rs"), "pub mod shop;\npub mod basket;\n").unwrap();
    edit(
        &project,
        "src/lib.rs",
        "    controllers::shop::setup(it)?;\n",
        "    let manager = it;\n    controllers::basket::setup(manager)?;\n",
    );
    add::kind(&project, "Basket", None).unwrap();
    assert_eq!(tree(&project)["src/api.rs"], "pub mod shop;\npub mod basket;\n");
}

#[test]
fn a_failed_write_leaves_the_project_as_it_was() {
    // The last new file cannot be created, because its folder is a file.
    let (folder, _) = made("shop", None, None);
    let project = folder.path().join("shop");
    fs::remove_dir_all(project.join("samples")).unwrap();
    fs::write(project.join("samples"), "").unwrap();
    let before = tree(&project);
    let said = refused(add::kind(&project, "Basket", None));
    assert!(said.starts_with("samples/basket.yaml: cannot be created: "), "{said}");
    assert_eq!(tree(&project), before);

    // The last file to change is write-protected.
    let (folder, before) = made("shop", None, None);
    let project = folder.path().join("shop");
    let path = project.join("src/lib.rs");
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    let said = refused(add::kind(&project, "Basket", None));
    assert_eq!(said, "src/lib.rs: cannot be changed: permission denied");
    assert_eq!(tree(&project), before);
}

#[test]
fn a_folder_without_our_project_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = "run this in the folder of a project that `mainstay new` made";
    let missing = format!("Cargo.toml: cannot be read: No such file or directory (os error 2); {here}");
    assert_eq!(refused(add::kind(folder.path(), "Basket", None)), missing);
    fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"mainstay-like\"\n").unwrap();
    let other = format!("Cargo.toml: expected a dependency on mainstay; {here}");
    assert_eq!(refused(add::controller(folder.path(), "watcher", "Pod")), other);
    assert_eq!(tree(folder.path()).len(), 1);
}

#[test]
fn dependencies_and_groups_that_cannot_be_guessed_are_refused() {
    let (folder, _) = made("shop", None, None);
    let project = folder.path().join("shop");
    edit(&project, "src/api/shop.rs", "shop.example.com", "other.example.com");
    fs::write(project.join("src/api/more.rs"), "#[kube(group = \"a.example.com\")]").unwrap();
    let several =
        "src/api: the kinds have the groups a.example.com and other.example.com; choose one with --group";
    assert_eq!(refused(add::kind(&project, "Basket", None)), several);
    edit(&project, "Cargo.toml", "schemars = \"1.1\"\n", "");
    let said = refused(add::kind(&project, "Basket", Some("a.example.com")));
    assert!(said.starts_with("Cargo.toml: ") && said.ends_with(":\n  schemars = \"1.1\""), "{said}");
}
