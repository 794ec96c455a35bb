//! Parses the path of a URL: an endpoint of a resource, discovery, health, or an unknown path.

use percent_encoding::percent_decode_str;

/// The parsed path of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// `/`: the list of paths.
    Root,
    /// `/version`.
    Version,
    /// `/healthz`, `/livez` or `/readyz`; `check` is the rest of the path, if any.
    Health { endpoint: String, check: Option<String> },
    /// `/api`.
    LegacyVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    GroupVersion { group: String, version: String },
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiIndex,
    /// `/openapi/v3/PATH`, such as `/openapi/v3/apis/apps/v1`.
    OpenApi(String),
    /// An endpoint of a resource.
    Resource(ResourcePath),
    /// `/api/v1/watch`, for which kube-apiserver returns an internal error.
    Malformed,
    /// A path below `/api`, or below a version in `/apis`, that cannot be an endpoint.
    UnknownApi { group: String },
    /// Any other path.
    Unknown,
}

/// The parts of the path of a resource endpoint. A part that the path lacks is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// Whether more parts follow the subresource.
    pub(crate) longer: bool,
    /// Whether the path has the deprecated prefix `watch/`.
    pub(crate) watch: bool,
}

/// Subresources of Namespaces. Any other part after the name of a namespace is a resource in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// Parses the path of a URL.
pub(crate) fn parse(path: &str) -> Path {
    // The path is decoded before it is split, so an encoded slash separates parts, as in Go.
    let path = percent_decode_str(path).decode_utf8_lossy();
    // A slash at the end belongs to the name of a document, unlike that of other paths.
    if let Some(document) = path.strip_prefix("/openapi/v3/") {
        return Path::OpenApi(document.to_owned());
    }
    let Some(relative) = path.strip_prefix('/') else { return Path::Unknown };
    let relative = relative.strip_suffix('/').unwrap_or(relative);
    let parts: Vec<&str> = relative.split('/').collect();
    match parts.as_slice() {
        [""] => Path::Root,
        ["version"] => Path::Version,
        [endpoint @ ("healthz" | "livez" | "readyz"), check @ ..] => {
            let check = (!check.is_empty()).then(|| check.join("/"));
            Path::Health { endpoint: (*endpoint).to_owned(), check }
        }
        ["api"] => Path::LegacyVersions,
        ["apis"] => Path::Groups,
        ["openapi", "v2"] => Path::OpenApiV2,
        ["openapi", "v3"] => Path::OpenApiIndex,
        ["api", version, parts @ ..] => below_version("", version, parts),
        ["apis", "", ..] => Path::Unknown,
        ["apis", group] => Path::Group((*group).to_owned()),
        ["apis", group, version, parts @ ..] => below_version(group, version, parts),
        _ => Path::Unknown,
    }
}

fn below_version(group: &str, version: &str, parts: &[&str]) -> Path {
    let unknown = || Path::UnknownApi { group: group.to_owned() };
    if version.is_empty() || parts.contains(&"") {
        return unknown();
    }
    let (group, version) = (group.to_owned(), version.to_owned());
    let (watch, parts) = match parts {
        [] => return Path::GroupVersion { group, version },
        ["watch"] => return Path::Malformed,
        ["watch", parts @ ..] => (true, parts),
        parts => (false, parts),
    };
    let (namespace, parts) = match parts {
        ["namespaces", namespace, parts @ ..]
            if parts.first().is_some_and(|next| !NAMESPACE_SUBRESOURCES.contains(next)) =>
        {
            ((*namespace).to_owned(), parts)
        }
        parts => (String::new(), parts),
    };
    let part = |index: usize| parts.get(index).map(|part| (*part).to_owned()).unwrap_or_default();
    Path::Resource(ResourcePath {
        group,
        version,
        namespace,
        resource: part(0),
        name: part(1),
        subresource: part(2),
        longer: parts.len() > 3,
        watch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> ResourcePath {
        match parse(path) {
            Path::Resource(resource) => resource,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn endpoints_of_resources_are_taken_apart() {
        let pods = ResourcePath {
            version: "v1".into(),
            namespace: "default".into(),
            resource: "pods".into(),
            ..ResourcePath::default()
        };
        assert_eq!(resource("/api/v1/namespaces/default/pods"), pods);
        assert_eq!(resource("/api/v1/namespaces/default/pods/"), pods);
        assert_eq!(resource("/api/v1/namespaces/default%2Fpods"), pods);
        let status = ResourcePath { name: "a b".into(), subresource: "status".into(), ..pods.clone() };
        assert_eq!(resource("/api/v1/namespaces/default/pods/a%20b/status"), status);
        assert!(resource("/api/v1/namespaces/default/pods/a/proxy/x").longer);
        let all = ResourcePath { namespace: String::new(), ..pods };
        assert_eq!(resource("/api/v1/watch/pods"), ResourcePath { watch: true, ..all });
        let leases = resource("/apis/coordination.k8s.io/v1/leases");
        assert_eq!((leases.group.as_str(), leases.resource.as_str()), ("coordination.k8s.io", "leases"));
    }

    #[test]
    fn a_namespace_is_a_resource_and_a_scope() {
        let one = resource("/api/v1/namespaces/a");
        assert_eq!(
            (one.resource.as_str(), one.name.as_str(), one.namespace.as_str()),
            ("namespaces", "a", "")
        );
        for subresource in NAMESPACE_SUBRESOURCES {
            let path = resource(&format!("/api/v1/namespaces/a/{subresource}"));
            assert_eq!((path.resource.as_str(), path.subresource.as_str()), ("namespaces", subresource));
        }
        assert_eq!(resource("/api/v1/namespaces").resource, "namespaces");
    }

    #[test]
    fn discovery_and_health_paths_are_recognized() {
        assert_eq!(parse("/"), Path::Root);
        assert_eq!(parse("/apis/"), Path::Groups);
        assert_eq!(parse("/api"), Path::LegacyVersions);
        assert_eq!(parse("/apis/apps"), Path::Group("apps".into()));
        let group_version = Path::GroupVersion { group: "apps".into(), version: "v1".into() };
        assert_eq!(parse("/apis/apps/v1"), group_version);
        assert_eq!(parse("/openapi/v3"), Path::OpenApiIndex);
        assert_eq!(parse("/openapi/v3/apis/apps/v1"), Path::OpenApi("apis/apps/v1".into()));
        let check = Some("a/b".to_owned());
        assert_eq!(parse("/livez/a/b"), Path::Health { endpoint: "livez".into(), check });
        assert_eq!(parse("/api/v1/watch"), Path::Malformed);
    }

    #[test]
    fn unknown_paths_are_distinguished_by_prefix() {
        for path in ["/nope", "//api/v1", "/apis//v1", "api/v1", "/openapi"] {
            assert_eq!(parse(path), Path::Unknown, "{path}");
        }
        assert_eq!(parse("/api/v1//pods"), Path::UnknownApi { group: String::new() });
        assert_eq!(parse("/apis/apps/v1//x"), Path::UnknownApi { group: "apps".into() });
    }
}
