//! Finds the API server: flag, `KUBECONFIG`, the Pod's own service account, then the home kubeconfig.
//!
//! The order is controller-runtime's, not kube's, which prefers a forgotten `~/.kube/config` in an image to
//! the service account. A source that the user named (flag, `KUBECONFIG`, a context) must work; only the
//! other sources are skipped when they are missing.
//!
//! The proxy is chosen here too, as client-go does: `proxy-url` of the kubeconfig, otherwise the environment
//! variables, in a Pod as well. kube compares `NO_PROXY` with the proxy instead of the server, and sets no
//! proxy in a Pod.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::connect::{ConnectError, port_of};

/// Placeholder `proxy-url` for a cluster of a kubeconfig without one, because kube would otherwise use the
/// environment variables there.
const NO_PROXY_URL: &str = "http://none";

/// The parts of the process's environment that determine the API server and the proxy to it.
struct Environment {
    /// Value of `KUBECONFIG`: a list of kubeconfig files, which are merged; `None` if not set.
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    /// Reads the configuration from the service account of this Pod.
    in_cluster: fn() -> Result<kube::Config, InClusterError>,
    proxies: ProxyVariables,
}

/// The values of the environment variables for proxies, in upper or lower case; empty if not set.
#[derive(Default)]
struct ProxyVariables {
    https: String,
    http: String,
    no: String,
}

/// Returns the client configuration from the first of these sources that exists: `kubeconfig` (the flag), the
/// files in `KUBECONFIG`, the service account of this Pod, `~/.kube/config`. A `context` names an entry of a
/// kubeconfig, so with one the service account is skipped; without one the current context is used.
///
/// # Errors
/// Fails if a source that the user named does not work, or if no source names an API server; the error lists
/// all sources that were tried.
pub async fn infer(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<kube::Config, ConnectError> {
    let environment = Environment {
        kubeconfig: std::env::var_os("KUBECONFIG"),
        home: std::env::home_dir(),
        in_cluster: kube::Config::incluster,
        proxies: ProxyVariables::of_this_process(),
    };
    infer_in(environment, kubeconfig, context).await
}

async fn infer_in(
    environment: Environment,
    flag: Option<&Path>,
    context: Option<&str>,
) -> Result<kube::Config, ConnectError> {
    let mut config = find(&environment, flag, context).await?;
    if config.proxy_url.is_none() {
        config.proxy_url = environment.proxies.proxy_to(&config.cluster_url)?;
    }
    Ok(config)
}

async fn find(
    environment: &Environment,
    flag: Option<&Path>,
    context: Option<&str>,
) -> Result<kube::Config, ConnectError> {
    if let Some(path) = flag {
        return load(&[path.to_owned()], context, format!("{} (--kubeconfig)", path.display())).await;
    }
    let mut tried = vec!["--kubeconfig (not given)".to_owned()];

    let mut listed: Vec<_> = environment.kubeconfig.iter().flat_map(std::env::split_paths).collect();
    listed.retain(|path| !path.as_os_str().is_empty());
    if !listed.is_empty() {
        let names: Vec<_> = listed.iter().map(|path| path.display().to_string()).collect();
        return load(&listed, context, format!("{} (KUBECONFIG)", names.join(", "))).await;
    }
    tried.push("KUBECONFIG (not set)".to_owned());

    if context.is_some() {
        tried.push("service account (skipped, since a context was given)".to_owned());
    } else {
        match (environment.in_cluster)() {
            Ok(config) => return Ok(config),
            Err(error) => tried.push(format!("service account ({error})")),
        }
    }

    tried.push(match &environment.home {
        None => "~/.kube/config (no home directory)".to_owned(),
        Some(home) => {
            let path = home.join(".kube").join("config");
            let files = path.display().to_string();
            if path.exists() {
                return load(&[path], context, files).await;
            }
            format!("{files} (no such file)")
        }
    });
    Err(ConnectError::NotConfigured { tried })
}

/// Reads kubeconfig files, merges them as kubectl does (the first to set a value wins) and uses one context
/// of the result.
async fn load(paths: &[PathBuf], context: Option<&str>, files: String) -> Result<kube::Config, ConnectError> {
    let unusable = |source: KubeconfigError| ConnectError::Kubeconfig { files, source: Box::new(source) };
    let merge =
        |merged: Kubeconfig, path: &PathBuf| Kubeconfig::read_from(path).and_then(|next| merged.merge(next));
    let mut merged = match paths.iter().try_fold(Kubeconfig::default(), merge) {
        Ok(merged) => merged,
        Err(error) => return Err(unusable(error)),
    };
    for cluster in merged.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.proxy_url.take_if(|url| url.is_empty());
        cluster.proxy_url.get_or_insert_with(|| NO_PROXY_URL.to_owned());
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = kube::Config::from_custom_kubeconfig(merged, &options).await.map_err(unusable)?;
    config.proxy_url.take_if(|url| *url == Uri::from_static(NO_PROXY_URL));
    if let Some(plugin) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
        plugin.proxy_url.take_if(|url| url == NO_PROXY_URL);
    }
    Ok(config)
}

// === impl ProxyVariables ===

impl ProxyVariables {
    fn of_this_process() -> Self {
        let read = |name: &str| {
            let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            set(name).or_else(|| set(&name.to_lowercase())).unwrap_or_default()
        };
        Self { https: read("HTTPS_PROXY"), http: read("HTTP_PROXY"), no: read("NO_PROXY") }
    }

    /// Returns the proxy for connections to a server by Go's rules, or `None`: loopback and the hosts in
    /// `NO_PROXY` are reached without a proxy.
    fn proxy_to(&self, server: &Uri) -> Result<Option<Uri>, ConnectError> {
        let url = if server.scheme_str() == Some("http") { &self.http } else { &self.https };
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
        let loopback = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        if url.is_empty() || loopback || self.excepts(server) {
            return Ok(None);
        }
        let unusable = |_| ConnectError::Proxy { server: Box::new(server.clone()) };
        url.parse().map(Some).map_err(unusable)
    }

    /// Returns whether `NO_PROXY` names the server, which is then reached without a proxy. hyper-util matches
    /// names, addresses and networks; ports, `*.` before a name, brackets, and the star for addresses are
    /// handled here.
    fn excepts(&self, server: &Uri) -> bool {
        let port = port_of(server);
        let of_this_port =
            self.no.split(',').map(str::trim).filter_map(|entry| match entry.rsplit_once(':') {
                Some((host, number)) if !host.contains(':') || host.ends_with(']') => {
                    (number.parse() == Ok(port)).then_some(host)
                }
                _ => Some(entry),
            });
        let plain = of_this_port.map(|host| {
            let host = host.trim_matches(['[', ']']);
            host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host)
        });
        let entries: Vec<_> = plain.collect();
        let matcher = Matcher::builder().all("http://proxy").no(entries.join(",")).build();
        entries.contains(&"*") || matcher.intercept(server).is_none()
    }
}

#[cfg(test)]
mod tests;
