//! `mainstay add`: new files, and the lines that register them, in a project that exists.

use std::fs;
use std::path::Path;

use super::files::{File, change};
use super::names::{Kind, Name, check_group};
use super::places::{Added, Line};
use super::templates::{CONTROLLER, KIND, PROJECT, Template, Words, check_words, controller as file_of};
use super::{Done, Refusal};

/// Kinds of Kubernetes that a controller is added for most often, with their modules in `k8s_openapi::api`.
const BUILT_IN: [(&str, &str); 16] = [
    ("ConfigMap", "core::v1"),
    ("CronJob", "batch::v1"),
    ("DaemonSet", "apps::v1"),
    ("Deployment", "apps::v1"),
    ("EndpointSlice", "discovery::v1"),
    ("Ingress", "networking::v1"),
    ("Job", "batch::v1"),
    ("Namespace", "core::v1"),
    ("NetworkPolicy", "networking::v1"),
    ("Node", "core::v1"),
    ("PersistentVolumeClaim", "core::v1"),
    ("Pod", "core::v1"),
    ("Secret", "core::v1"),
    ("Service", "core::v1"),
    ("ServiceAccount", "core::v1"),
    ("StatefulSet", "apps::v1"),
];

/// The root of paths in the project; not of this crate.
const PROJECT_ROOT: &str = "crate";

/// Adds a kind with its controller and a sample, and returns what to print.
pub(super) fn kind(project: &Path, kind: &str, group: Option<&str>) -> Done<String> {
    let kind = Kind::parse(kind)?;
    let module = kind.name.snake();
    check_words(&KIND, &[&module, &kind.camel])?;
    check_project(project, &KIND)?;
    let group = group.map_or_else(|| group_of(project), |group| Ok(group.to_owned()))?;
    check_group(&group)?;
    let words = Words { project: None, kind: &kind, group: &group };
    let files = KIND.map(|template| words.file(template));
    let definition = format!("api::{module}::{}::crd()", kind.camel);
    let lines = [
        ("src/api.rs", Line::module(&module)),
        ("src/controllers.rs", Line::module(&module)),
        ("src/lib.rs", Line::import("kube::CustomResourceExt")),
        ("src/lib.rs", Line::on_program("crds", &definition)),
        ("src/lib.rs", Line::on_program("controllers", &format!("{:?}", kind.name.kebab()))),
        ("src/lib.rs", Line::setup(&module)),
    ];
    add(project, &files, &lines)
}

/// Adds a controller of a kind that is there already, and returns what to print.
pub(super) fn controller(project: &Path, name: &str, kind: &str) -> Done<String> {
    let name = Name::parse(name)?;
    check_words(&CONTROLLER, &[&name.snake()])?;
    check_project(project, &CONTROLLER)?;
    let file = file_of(&name, kind, &type_path(project, kind)?);
    let lines = [
        ("src/controllers.rs", Line::module(&name.snake())),
        ("src/lib.rs", Line::on_program("controllers", &format!("{:?}", name.kebab()))),
        ("src/lib.rs", Line::setup(&name.snake())),
    ];
    add(project, &[file], &lines)
}

/// Adds files and lines, or refuses if a file is in the way or a place is not found.
fn add(project: &Path, files: &[File], lines: &[(&str, Line)]) -> Done<String> {
    if let Some(File { path, .. }) =
        files.iter().find(|file| fs::symlink_metadata(project.join(&file.path)).is_ok())
    {
        return Err(Refusal::new(format_args!("{path}: exists; expected no such file")));
    }
    let mut changed: Vec<File> = Vec::new();
    let mut report: Vec<String> = files.iter().map(|File { path, .. }| format!("created {path}\n")).collect();
    let mut nowhere: Vec<String> = Vec::new();
    for (path, line) in lines {
        let known = changed.iter_mut().find(|file| file.path == **path);
        let text = match &known {
            Some(file) => file.text.clone(),
            // Without the file, its lines have no place.
            None => fs::read_to_string(project.join(path)).unwrap_or_default(),
        };
        let added = if text.is_empty() { Added::Nowhere } else { line.add_to(&text) };
        let text = match added {
            Added::Already => continue,
            Added::Nowhere => {
                nowhere.push(format!("\n  {path}, {}: {}", line.place(), line.code));
                continue;
            }
            Added::Now(text) => text,
        };
        match known {
            Some(file) => file.text = text,
            None => changed.push(File { path: (*path).to_owned(), text }),
        }
        report.push(format!("{path}: {}\n", line.code));
    }
    if !nowhere.is_empty() {
        return Err(Refusal(format!(
            "no place was found for some lines, and nothing was written; add them by hand, then run this \
             again:{}",
            nowhere.concat()
        )));
    }
    change(project, files, &changed)?;
    Ok(report.concat())
}

/// Refuses a folder that has no project with mainstay, or one without the dependencies of these templates.
fn check_project(project: &Path, templates: &[Template]) -> Done<()> {
    let here = "run this in the folder of a project that `mainstay new` made";
    let manifest = fs::read_to_string(project.join("Cargo.toml"))
        .map_err(|error| Refusal::new(format_args!("Cargo.toml: cannot be read: {error}; {here}")))?;
    let has = |name: &str| manifest.lines().any(|line| is_dependency(line, name));
    if !has("mainstay") {
        return Err(Refusal::new(format_args!("Cargo.toml: expected a dependency on mainstay; {here}")));
    }
    let manifest_of_new = PROJECT[0].1.lines().filter(|line| line.contains(" = {") || line.contains(" = \""));
    let needed = manifest_of_new.filter(|line| {
        let name = line.split(' ').next().unwrap_or_default();
        let mark = match name {
            // The derive macro makes code with its paths.
            "schemars" => "KubeSchema".to_owned(),
            _ => format!("{}::", name.replace('-', "_")),
        };
        templates.iter().any(|(_, text)| text.contains(&mark)) && !has(name)
    });
    match needed.collect::<Vec<_>>()[..] {
        [] => Ok(()),
        ref lines => Err(Refusal(format!(
            "Cargo.toml: dependencies of the new code are missing, and nothing was written; add them by \
             hand, then run this again:\n  {}",
            lines.join("\n  ")
        ))),
    }
}

/// Returns whether a line of a manifest is a dependency on this crate.
fn is_dependency(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let table = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')).unwrap_or_default();
    let key = line.split(['=', '.']).next().unwrap_or_default().trim().trim_matches('"');
    key == name || table.split_once("dependencies.").is_some_and(|(_, table)| table == name)
}

/// Returns the API group that all kinds of the project have.
fn group_of(project: &Path) -> Done<String> {
    let mut groups: Vec<String> = Vec::new();
    for entry in fs::read_dir(project.join("src/api")).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let found = text.split("group = \"").skip(1).filter_map(|rest| rest.split('"').next());
        groups.extend(found.map(str::to_owned));
    }
    groups.sort();
    groups.dedup();
    match &mut groups[..] {
        [group] => Ok(std::mem::take(group)),
        [] => Err(Refusal::new("src/api: no kind has a group; choose one with --group")),
        several => Err(Refusal::new(format_args!(
            "src/api: the kinds have the groups {}; choose one with --group",
            several.join(" and ")
        ))),
    }
}

/// Returns the path of the type of a kind, of the project or of Kubernetes.
fn type_path(project: &Path, kind: &str) -> Done<String> {
    let of_project = Kind::parse(kind)?.name.snake();
    let path = format!("src/api/{of_project}.rs");
    let text = fs::read_to_string(project.join(&path)).unwrap_or_default();
    if text.contains(&format!("kind = \"{kind}\"")) {
        return Ok(format!("{PROJECT_ROOT}::api::{of_project}::{kind}"));
    }
    if let Some((_, module)) = BUILT_IN.iter().find(|(name, _)| *name == kind) {
        return Ok(format!("k8s_openapi::api::{module}::{kind}"));
    }
    let built_in = BUILT_IN.map(|(name, _)| name).join(", ");
    Err(Refusal::new(format_args!("kind {kind:?}: expected a kind in {path}, or one of {built_in}")))
}
