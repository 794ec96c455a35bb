//! The command `manifests`: the files that install the program in a cluster, made from what it registers and
//! from its configuration.
//!
//! The templates are YAML with `@key@` in place of what differs between programs. The chart fills the same
//! templates with expressions of Helm.

mod chart;
mod files;
mod rules;
mod schemas;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::flags::namespace;
use super::rbac::{self, Wiring};
use super::{Exit, Failure, Output, Setup};
use crate::config::{API_VERSION, ConfigSchema, ConfigSource, KIND, Loaded, ManagerConfiguration, Overrides};
use crate::rbac::Rights;

/// The flags of the command `manifests`.
#[derive(Args, Debug)]
pub(super) struct ManifestsFlags {
    /// The configuration that the manifests carry: a file, or a directory with a manager.yaml [default: the
    /// built-in defaults]
    #[arg(long, value_name = "PATH")]
    pub(super) config: Option<PathBuf>,
    /// The form: one stream of documents, a base with components, or a chart
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Format::Yaml)]
    pub(super) format: Format,
    /// Write the files into this directory [default for yaml: standard output]
    #[arg(long, value_name = "DIR", required_if_eq_any([("format", "kustomize"), ("format", "helm")]))]
    pub(super) out: Option<PathBuf>,
    /// Write nothing; fail if the files in --out differ
    #[arg(long, requires = "out")]
    pub(super) check: bool,
    /// Namespace of the manager [default: the program's name with -system]
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub(super) namespace: Option<String>,
    /// The image [default: the program's name and version]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub(super) image: Option<String>,
}

/// The form of the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// One file with all documents, for kubectl apply
    Yaml,
    /// A base and components, for kubectl apply -k
    Kustomize,
    /// A chart, for helm install
    Helm,
}

/// The parsed arguments of the command `manifests`.
#[derive(Debug)]
pub(super) struct ManifestsArgs {
    pub(super) wiring: Wiring,
    /// The text of the configuration file that the manifests carry.
    pub(super) text: String,
    pub(super) flags: ManifestsFlags,
}

/// CPU and memory of one replica, as a Deployment writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The requested processor time, such as `50m`.
    pub cpu: &'static str,
    /// The requested memory, such as `128Mi`.
    pub memory: &'static str,
    /// The limit of memory, such as `256Mi`.
    pub memory_limit: &'static str,
}

/// Everything that the manifests are made from.
struct Source<'a> {
    name: &'a str,
    version: &'a str,
    namespace: String,
    /// The namespace of the Lease, if the configuration names another one.
    lease_namespace: String,
    image: String,
    crds: &'a [CustomResourceDefinition],
    sizes: Sizes,
    /// The documents that the program adds, by file name.
    own: &'a [(&'static str, &'static str)],
    configuration: ManagerConfiguration,
    text: String,
    rights: Rights,
    /// The rights of a manager that serves only its own namespace.
    rights_namespaced: Rights,
    /// The rights with an expression of Helm as the manager's namespace.
    rights_of_chart: Rights,
}

/// The parts of a program that its manifests show.
pub(super) struct Shown<'a> {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) crds: &'a [CustomResourceDefinition],
    pub(super) sizes: Sizes,
    pub(super) own: &'a [(&'static str, &'static str)],
}

/// Files by path.
type Files = BTreeMap<String, String>;

/// Parses the reference of an image. Only its characters are checked; a container runtime checks the rest.
fn image(text: &str) -> Result<String, String> {
    let is_at_end = |c: char| c.is_ascii_alphanumeric();
    let is_inside = |c: char| is_at_end(c) || "._-/:@+".contains(c);
    if text.starts_with(is_at_end) && text.ends_with(is_at_end) && text.chars().all(is_inside) {
        return Ok(text.to_owned());
    }
    Err("expected an image such as registry.example.com/shop:1.0".to_owned())
}

/// Loads the configuration that the manifests carry, and returns it with its text.
pub(super) fn configuration(path: Option<&Path>, schema: &ConfigSchema) -> Result<(Loaded, String), Failure> {
    let Some(path) = path else {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        return Ok((schema.parse(&text, "defaults", &Overrides::default())?, text));
    };
    let source = ConfigSource::new(path, Overrides::default(), schema.clone());
    let loaded = schema.load(path, &Overrides::default())?;
    let file = source.file();
    let text = fs::read_to_string(file);
    Ok((loaded, text.map_err(|error| Failure::other(format_args!("{}: {error}", file.display())))?))
}

/// Prints, writes or checks the manifests of the program.
pub(super) fn run(shown: &Shown<'_>, args: ManifestsArgs, setup: Setup, output: &mut Output<'_>) -> Exit {
    let (out, is_check) = (args.flags.out.clone(), args.flags.check);
    let done = files(shown, args, setup).and_then(|files| match out {
        None => output.print(&files.into_values().collect::<String>()),
        Some(folder) if is_check => check(&folder, &files),
        Some(folder) => write(&folder, &files),
    });
    done.map_or_else(|failure| failure.print(output.err), |()| Exit::Success)
}

/// Refuses settings that need more of a Pod than the manifests give it.
fn check_settings(configuration: &ManagerConfiguration) -> Result<(), Failure> {
    let inspect = &configuration.inspect;
    let settings = [
        ("metrics.tlsDir", configuration.metrics.tls_dir.is_some()),
        ("inspect.tlsDir", inspect.tls_dir.is_some()),
        ("inspect.tokenFile", inspect.token_file.is_some()),
        ("inspect.peers", inspect.peers),
    ];
    let Some((key, _)) = settings.into_iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
    Err(Failure::wrong_input(format_args!(
        "{key}: needs a volume or a variable that the manifests do not have; leave it out here, and add both \
         in a component, as deploy/components/inspect-peers does"
    )))
}

fn files(shown: &Shown<'_>, args: ManifestsArgs, setup: Setup) -> Result<Files, Failure> {
    let ManifestsArgs { wiring, text, flags } = args;
    let configuration = wiring.loaded.configuration.clone();
    check_settings(&configuration)?;
    if flags.format == Format::Helm && flags.image.as_ref().is_some_and(|image| image.contains('@')) {
        return Err(Failure::wrong_input("--image: a chart needs a name and a tag, not a digest"));
    }
    let namespace = wiring.namespace.clone();
    let lease_namespace = |own: &str| rbac::lease_namespace(&configuration, own);
    let manager = rbac::wired(shown.name, wiring, setup)?;
    let served = &configuration.cache.namespaces;
    let source = Source {
        name: shown.name,
        version: shown.version,
        image: flags.image.unwrap_or_else(|| format!("{}:{}", shown.name, shown.version)),
        crds: shown.crds,
        sizes: shown.sizes,
        own: shown.own,
        rights: manager.rights_in(&lease_namespace(&namespace), served),
        rights_namespaced: manager.rights_in(&lease_namespace(&namespace), std::slice::from_ref(&namespace)),
        rights_of_chart: manager.rights_in(&lease_namespace(chart::NAMESPACE), served),
        lease_namespace: lease_namespace(&namespace),
        namespace,
        configuration,
        text,
    };
    match flags.format {
        Format::Yaml => source.install(),
        Format::Kustomize => source.kustomize(),
        Format::Helm => source.chart(),
    }
}

/// Writes files below a folder. Other files in it stay.
fn write(folder: &Path, files: &Files) -> Result<(), Failure> {
    for (path, text) in files {
        let path = folder.join(path);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = made.and_then(|()| fs::write(&path, text));
        written.map_err(|error| Failure::other(format_args!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Compares files below a folder with what would be written. Below it, a folder of manifests has no others: a
/// chart installs everything in it.
fn check(folder: &Path, files: &Files) -> Result<(), Failure> {
    let mut stale = Vec::new();
    for (path, text) in files {
        let path = folder.join(path);
        match fs::read_to_string(&path) {
            Ok(found) if found == *text => {}
            Ok(_) => stale.push(format!("{}: differs", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                stale.push(format!("{}: missing", path.display()));
            }
            Err(error) => return Err(Failure::other(format_args!("{}: {error}", path.display()))),
        }
    }
    let folders: BTreeSet<&Path> = files.keys().filter_map(|path| Path::new(path).parent()).collect();
    for below in folders.into_iter().filter(|below| !below.as_os_str().is_empty()) {
        for entry in fs::read_dir(folder.join(below)).into_iter().flatten().flatten() {
            let path = below.join(entry.file_name());
            let is_manifest = path.extension().is_some_and(|extension| extension == "yaml");
            if is_manifest && !path.to_str().is_some_and(|path| files.contains_key(path)) {
                stale.push(format!("{}: no longer made; delete it", folder.join(path).display()));
            }
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(Failure::other(format_args!("the manifests are stale; run it without --check\n{}", stale.join("\n"))))
}

// === impl Sizes ===

impl Default for Sizes {
    fn default() -> Self {
        Self { cpu: "50m", memory: "64Mi", memory_limit: "128Mi" }
    }
}

#[cfg(test)]
mod tests;
