//! Finds the API server: flag, `KUBECONFIG`, the Pod's own service account, then the home kubeconfig.
//!
//! The order is controller-runtime's, not kube's, which puts a forgotten `~/.kube/config` in an image before the
//! service account. A place that was named (flag, `KUBECONFIG`, a context) must work; only places nobody named are
//! passed over.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::connect::ConnectError;

/// A place that was looked at without finding an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    place: String,
    found: String,
}

/// What the process was given by its surroundings.
struct Surroundings<F> {
    /// `KUBECONFIG`: a list of files, merged.
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    in_cluster: F,
}

// === impl Tried ===

impl Tried {
    fn new(place: impl Into<String>, found: impl fmt::Display) -> Self {
        Self { place: place.into(), found: found.to_string() }
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.place, self.found)
    }
}

/// Returns the configuration of the first of: `kubeconfig` (the flag), the files in `KUBECONFIG`, the service account
/// of the Pod this runs in, `~/.kube/config`. A `context` names an entry of a kubeconfig, so with one the service
/// account is passed over; without one the current context is used.
///
/// # Errors
/// Fails if a place that was named does not work, or if no place gives a server; the error names all that were tried.
pub async fn infer(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<kube::Config, ConnectError> {
    let surroundings = Surroundings {
        kubeconfig: std::env::var_os("KUBECONFIG"),
        home: std::env::home_dir(),
        in_cluster: kube::Config::incluster,
    };
    infer_in(surroundings, kubeconfig, context).await
}

async fn infer_in<F>(
    surroundings: Surroundings<F>,
    flag: Option<&Path>,
    context: Option<&str>,
) -> Result<kube::Config, ConnectError>
where
    F: FnOnce() -> Result<kube::Config, InClusterError>,
{
    let mut tried = Vec::new();
    if let Some(path) = flag {
        return load(&[path.to_owned()], context, format!("{} (--kubeconfig)", path.display())).await;
    }
    tried.push(Tried::new("--kubeconfig", "not given"));

    let listed = listed_files(surroundings.kubeconfig.as_ref());
    if !listed.is_empty() {
        let names: Vec<_> = listed.iter().map(|path| path.display().to_string()).collect();
        return load(&listed, context, format!("{} (KUBECONFIG)", names.join(", "))).await;
    }
    tried.push(Tried::new("KUBECONFIG", "not set"));

    if context.is_some() {
        tried.push(Tried::new("service account", "passed over, since a context was asked for"));
    } else {
        match (surroundings.in_cluster)() {
            Ok(config) => return Ok(config),
            Err(error) => tried.push(Tried::new("service account", error)),
        }
    }

    let Some(home) = surroundings.home else {
        tried.push(Tried::new("~/.kube/config", "no home directory"));
        return Err(ConnectError::NotConfigured { tried });
    };
    let path = home.join(".kube").join("config");
    if !path.exists() {
        tried.push(Tried::new(path.display().to_string(), "no such file"));
        return Err(ConnectError::NotConfigured { tried });
    }
    let place = path.display().to_string();
    load(&[path], context, place).await
}

/// Reads files, merges them as kubectl does (the first to set a value wins) and takes one context of the result.
async fn load(paths: &[PathBuf], context: Option<&str>, place: String) -> Result<kube::Config, ConnectError> {
    let unusable = |source: KubeconfigError| ConnectError::Kubeconfig { place, source: Box::new(source) };
    let mut merged = Kubeconfig::default();
    for path in paths {
        let read = Kubeconfig::read_from(path).and_then(|next| merged.clone().merge(next));
        merged = match read {
            Ok(merged) => merged,
            Err(error) => return Err(unusable(error)),
        };
    }
    let mut proxies = merged.clusters.iter().filter_map(|named| named.cluster.as_ref()?.proxy_url.as_ref());
    let names_proxy = proxies.any(|url| !url.is_empty());
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = kube::Config::from_custom_kubeconfig(merged, &options).await.map_err(unusable)?;
    if let (false, Some(proxy)) = (names_proxy, config.proxy_url.take()) {
        // kube took it from HTTPS_PROXY without asking NO_PROXY, which would keep us from a server next door.
        tracing::debug!(server = %config.cluster_url, %proxy, "HTTPS_PROXY is not used for the API server");
    }
    Ok(config)
}

fn listed_files(list: Option<&OsString>) -> Vec<PathBuf> {
    let paths = list.into_iter().flat_map(std::env::split_paths);
    paths.filter(|path| !path.as_os_str().is_empty()).collect()
}

#[cfg(test)]
mod tests;
