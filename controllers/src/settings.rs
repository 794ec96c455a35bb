//! The sections `probePolicy` and `waitDeployment` of the configuration file.

mod allow;
#[cfg(any(test, fuzzing))]
#[path = "settings/tests/fuzz.rs"]
pub mod fuzz;
mod network;

#[cfg(test)]
mod tests;

use mainstay::config::{Duration, Problem, Section, is_dns_name, is_namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use allow::{AllowEntry, AllowRule};
pub use network::Network;

/// The name of the section [`ProbePolicy`] in the configuration file.
pub const PROBE_POLICY: &str = "probePolicy";
/// The name of the section [`WaitDeploymentSettings`] in the configuration file.
pub const WAIT_DEPLOYMENT: &str = "waitDeployment";

/// The kind Job as `probePolicy.resources` lists it.
pub const JOBS: &str = "Job.batch";

/// The default of `probePolicy.resources`: kinds that other objects commonly wait for, and that report
/// readiness or completion in a condition.
const DEFAULT_RESOURCES: [&str; 3] = ["Deployment.apps", JOBS, "WaitDeployment.apps.mainstay.dev"];

/// The targets that probes may connect to, and limits on probes. The author of a WaitDeployment chooses the
/// address, so a policy that allows more than Services lets authors explore the network from the manager's
/// position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ProbePolicy {
    /// `ServicesOnly`: Services in the object's own namespace. `AllowList`: also the entries of allow. Any:
    /// every address, for clusters with one tenant.
    pub mode: ProbeMode,
    /// The entries of `AllowList`: networks (10.8.0.0/16), addresses, hosts (db.example.com) and domains
    /// (.example.com). An entry is valid for the objects of all namespaces except those that enforce the Pod
    /// Security level baseline or restricted. To allow a target for such a namespace, or for a few namespaces
    /// only, list the namespaces: `{to: 10.8.0.0/16, namespaces: [shop]}`. At least one entry with
    /// `AllowList`, none otherwise.
    #[schemars(extend("uniqueItems" = true))]
    pub allow: Vec<AllowEntry>,
    /// Namespaces with Services that objects of other namespaces may name, as in billing.pay.svc; "*" is
    /// every namespace, as with mode Any.
    #[schemars(
        inner(regex(pattern = r"^(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$")),
        extend("uniqueItems" = true)
    )]
    pub cross_namespace: Vec<String>,
    /// Domains with names that dns checks may look up: example.com is that name and all names below it. With
    /// mode Any, every name.
    #[schemars(
        inner(regex(pattern = concat!(
            r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            r"(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$"
        ))),
        extend("uniqueItems" = true)
    )]
    pub dns_suffixes: Vec<String>,
    /// Kinds of objects that resource checks may read, with their group. The manager needs the right to watch
    /// them.
    #[schemars(inner(regex(pattern = "^[A-Z][A-Za-z0-9.-]*$")), extend("uniqueItems" = true))]
    pub resources: Vec<String>,
    /// Whether probes may connect to loopback addresses, which are those of the manager's own Pod. For
    /// development.
    pub allow_loopback: bool,
    /// Networks (10.8.0.0/16) and addresses that probes never connect to, in any mode and also as endpoints
    /// of Services; for example nodes. The addresses of the API server, of the manager and of metadata
    /// services are always denied.
    #[schemars(extend("uniqueItems" = true))]
    pub denied: Vec<Network>,
    /// Ports that probes never connect to, in any mode and also as ports of endpoints of Services. From 1 to
    /// 65535.
    #[schemars(inner(range(min = 1, max = 65535)), extend("uniqueItems" = true))]
    pub denied_ports: Vec<u16>,
    /// The shortest period between two probes of a target; a shorter period in an object is raised to this
    /// one.
    #[schemars(extend("x-mainstay-range" = ["1s", "1h"]))]
    pub min_period: Duration,
    /// The most probes per second for all targets together. One probe opens at most four connections, because
    /// a name may have several addresses.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_per_second: u32,
    /// The most probes per second for the objects of one namespace.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_per_second_per_namespace: u32,
    /// The most probes per second for the objects of one namespace at one address: a host as written and a
    /// port, for all checks together. Another name of the same machine, and another namespace, have limits of
    /// their own.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_per_second_per_address: u32,
    /// The most targets probed at the same time for the objects of one namespace; further targets wait.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_targets_per_namespace: u32,
}

/// The kinds of addresses that probes may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProbeMode {
    /// Services in the object's own namespace.
    ServicesOnly,
    /// Services, and the entries of `allow`.
    AllowList,
    /// Any address; for clusters with one tenant.
    Any,
}

/// Which labels and annotations of a WaitDeployment are not copied to its Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct WaitDeploymentSettings {
    /// Keys of labels and annotations that are not copied to the Deployment, such as team or
    /// example.com/team; example.com/* is every key of that domain. The keys by which kubectl, Helm, Argo CD
    /// and Flux track their objects are never copied.
    #[schemars(
        inner(regex(
            pattern = concat!(
                r"^([a-z0-9][a-z0-9.-]*/(\*|[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)|",
                r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)$"
            )
        )),
        extend("uniqueItems" = true)
    )]
    pub not_passed_on: Vec<String>,
}

// === impl ProbePolicy ===

impl Default for ProbePolicy {
    fn default() -> Self {
        Self {
            mode: ProbeMode::ServicesOnly,
            allow: Vec::new(),
            cross_namespace: Vec::new(),
            dns_suffixes: Vec::new(),
            resources: DEFAULT_RESOURCES.map(str::to_owned).into(),
            allow_loopback: false,
            denied: Vec::new(),
            denied_ports: Vec::new(),
            // Half the period that an object has by default.
            min_period: Duration::from_secs(5),
            // Serves thousands of objects, and is a small load for any network.
            max_per_second: 200,
            // A quarter of all, so that one namespace alone cannot slow down the rest.
            max_per_second_per_namespace: 50,
            // Less than the load of a server's usual clients. Ten checks need a fifth of it at the default
            // `min_period`.
            max_per_second_per_address: 10,
            // The number of targets that the rate of a namespace serves with the default period of 10 s.
            max_targets_per_namespace: 500,
        }
    }
}

impl Section for ProbePolicy {
    fn validate(&self) -> Vec<Problem> {
        let namespace = |name: &str| name == "*" || is_namespace(name);
        let cross = wrong_items(
            "crossNamespace",
            &self.cross_namespace,
            namespace,
            "the name of a namespace, or \"*\" for every one",
        );
        let suffixes =
            wrong_items("dnsSuffixes", &self.dns_suffixes, is_dns_name, "a domain such as example.com");
        let kinds = wrong_items("resources", &self.resources, is_kind, "a kind such as Pod or Job.batch");
        let mut problems: Vec<Problem> = cross.chain(suffixes).chain(kinds).collect();
        let (mode, reads_list) = (self.mode, self.mode == ProbeMode::AllowList);
        if reads_list && self.allow.is_empty() {
            let expected = "at least one entry with mode AllowList, or mode ServicesOnly";
            problems.push(Problem::new("allow", &self.allow, expected));
        } else if !reads_list && !self.allow.is_empty() {
            let expected = format!("[] with mode {mode:?}, which does not read it, or mode AllowList");
            problems.push(Problem::new("allow", &self.allow, expected));
        }
        problems
    }
}

// === impl WaitDeploymentSettings ===

impl Section for WaitDeploymentSettings {
    // A live change would not reach existing Deployments until their WaitDeployments change; a start
    // reconciles all.
    const RESTART: &'static [&'static str] = &["notPassedOn"];

    fn validate(&self) -> Vec<Problem> {
        let expected =
            "a key such as team or example.com/team, or a domain with all its keys, such as example.com/*";
        wrong_items("notPassedOn", &self.not_passed_on, is_key_or_domain, expected).collect()
    }
}

fn wrong_items<'a>(
    key: &'a str,
    items: &'a [String],
    accepts: impl Fn(&str) -> bool + 'a,
    expected: &'a str,
) -> impl Iterator<Item = Problem> + 'a {
    let wrong = items.iter().enumerate().filter(move |(_, item)| !accepts(item));
    wrong.map(move |(index, item)| Problem::new(format!("{key}[{index}]"), item, expected))
}

/// Returns whether a text looks like a kind with its group, such as `Deployment.apps`.
fn is_kind(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
}

/// Returns whether a text is the key of a label or an annotation, or a pattern for all keys of a domain.
fn is_key_or_domain(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_name = (1..=63).contains(&name.len())
        && is_end(name.bytes().next())
        && is_end(name.bytes().last())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    domain.is_none_or(is_dns_name) && (is_name || domain.is_some() && name == "*")
}
