//! The objects that `dev` applies before the manager runs: definitions and samples.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::{self, Scope};
use serde_json::Value;
use tokio::time::interval;

use super::sources::is_hidden;
use super::story::Story;
use crate::client::refusal;
use crate::key::{Chain, Key as _, NamespacedName};
use crate::reconcile::BoxError;

/// The folder of samples if the command line names none.
pub(super) const DEFAULT_FOLDER: &str = "samples";

/// One object to apply, from one document of a file.
#[derive(Debug)]
pub(super) struct Sample {
    /// The file and the number of the document in it, such as `samples/shop.yaml, document 2`.
    place: String,
    kind: GroupVersionKind,
    name: NamespacedName,
    object: Value,
}

/// Error: samples cannot be read, or the API server refused them; each with its file.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(super) struct WrongSamples(pub(super) Vec<String>);

/// Applies the definitions of a program and waits until their kinds are served.
pub(super) async fn install(
    client: &kube::Client,
    manager: &str,
    crds: &[CustomResourceDefinition],
    story: &Story,
) -> Result<(), BoxError> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in crds {
        let name = crd.metadata.name.as_deref().ok_or("a CRD of the program has no name")?;
        api.patch(name, &parameters(manager), &Patch::Apply(crd))
            .await
            .map_err(|error| format!("CRD {name}: {}", reason(&error)))?;
        established(&api, name).await?;
        story.print(format_args!("the CRD {name} is installed"));
    }
    Ok(())
}

/// Reads the objects of all YAML files in a folder, in the order of the file names; those of `samples` if no
/// folder is given and this one exists.
pub(super) fn read(folder: Option<&Path>) -> Result<Vec<Sample>, WrongSamples> {
    let default = Path::new(DEFAULT_FOLDER);
    let folder = match folder {
        None if !default.is_dir() => return Ok(Vec::new()),
        folder => folder.unwrap_or(default),
    };
    let unreadable =
        |path: &Path, error: &io::Error| WrongSamples(vec![format!("samples {}: {error}", path.display())]);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, &error))? {
        files.push(entry.map_err(|error| unreadable(folder, &error))?.path());
    }
    let is_yaml = |file: &Path| file.extension().is_some_and(|name| name == "yaml" || name == "yml");
    files.retain(|file| is_yaml(file) && !is_hidden(file));
    files.sort();
    let (mut samples, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| unreadable(&file, &error))?;
        for sample in documents(&file.display().to_string(), &text) {
            match sample {
                Ok(sample) => samples.push(sample),
                Err(problem) => problems.push(problem),
            }
        }
    }
    if problems.is_empty() { Ok(samples) } else { Err(WrongSamples(problems)) }
}

/// Applies the samples in their order, and returns the problems of all that were refused.
pub(super) async fn apply(
    client: &kube::Client,
    manager: &str,
    samples: &[Sample],
    story: &Story,
) -> Result<(), BoxError> {
    let mut problems = Vec::new();
    for sample in samples {
        match sample.apply(client, manager).await {
            Ok(()) => story.print(format_args!("applied {sample} of {}", sample.place)),
            Err(error) => problems.push(format!("{}: {sample}: {}", sample.place, Chain(&*error))),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(WrongSamples(problems).into()) }
}

// === impl Sample ===

impl Sample {
    /// Reads one document of a file; `place` is for messages.
    fn new(place: String, object: Value) -> Result<Self, String> {
        let text = |pointer: &str, what: &str| match object.pointer(pointer) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            Some(other) => Err(format!("{place}: {what} is {other}; expected a text")),
            None => Err(format!("{place}: {what} is missing")),
        };
        let types =
            TypeMeta { api_version: text("/apiVersion", "apiVersion")?, kind: text("/kind", "kind")? };
        let name = text("/metadata/name", "metadata.name")?;
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let name = NamespacedName::new(namespace, &name);
        let kind = GroupVersionKind::try_from(types).map_err(|error| format!("{place}: {error}"))?;
        Ok(Self { place, kind, name, object })
    }

    async fn apply(&self, client: &kube::Client, manager: &str) -> Result<(), BoxError> {
        let refused = |error: kube::Error| reason(&error);
        let found = discovery::pinned_kind(client, &self.kind).await;
        let (resource, found) = found.map_err(|error| match error {
            kube::Error::Discovery(_) => self.not_served(),
            error if refusal(&error).is_some_and(|status| status.code == 404) => self.not_served(),
            error => refused(error),
        })?;
        let api = match self.name.namespace() {
            _ if found.scope == Scope::Cluster => Api::<DynamicObject>::all_with(client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::default_namespaced_with(client.clone(), &resource),
        };
        let (name, patch) = (self.name.name(), Patch::Apply(&self.object));
        api.patch(name, &parameters(manager), &patch).await.map_err(refused)?;
        if self.kind.kind == "CustomResourceDefinition" {
            // The next sample may be of its kind.
            established(&Api::all(client.clone()), name).await?;
        }
        Ok(())
    }

    fn not_served(&self) -> String {
        format!(
            "the API server does not serve {} in {}; install its CRD first",
            self.kind.kind,
            self.kind.api_version()
        )
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.name)
    }
}

/// Returns each object of a file, or its problem.
fn documents(file: &str, text: &str) -> Vec<Result<Sample, String>> {
    match serde_saphyr::from_multiple::<Value>(text) {
        Ok(documents) => {
            let numbered = documents.into_iter().zip(1..);
            numbered
                .map(|(object, number)| Sample::new(format!("{file}, document {number}"), object))
                .collect()
        }
        Err(error) => {
            let line = error.location().map_or_else(String::new, |location| format!(":{}", location.line()));
            vec![Err(format!("{file}{line}: {}", error.without_snippet()))]
        }
    }
}

/// Waits until the kind of a definition is served.
async fn established(api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), BoxError> {
    // Polled often, because it takes a few milliseconds on the embedded server.
    let mut ticks = interval(Duration::from_millis(20));
    for _ in 0..1500 {
        ticks.tick().await;
        let conditions = api.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
    }
    Err(format!("CRD {name} was not established within 30 s").into())
}

fn parameters(manager: &str) -> PatchParams {
    PatchParams::apply(manager).force()
}

/// Returns the message of the API server, or the error if there is none.
fn reason(error: &kube::Error) -> String {
    refusal(error).map_or_else(|| Chain(error).to_string(), |status| status.message.clone())
}

#[cfg(test)]
mod tests;
