//! The base and its components, and the one file of all documents.

use std::fmt::Write as _;
use std::time::Duration;

use super::template::{Values, template};
use super::{Files, Sizes, Source, rules, schemas};
use crate::config::BindAddress;
use crate::program::Failure;
use crate::program::rbac::yaml;

/// The name and the text of a file.
type File = (&'static str, String);

/// Time for the container to end after `shutdown.gracePeriod`, before the kubelet kills it.
const MARGIN: Duration = Duration::from_secs(15);

// === impl Source ===

impl Source<'_> {
    /// Returns the values of all templates.
    pub(super) fn values(&self) -> Values {
        let elects = self.configuration.leader_election.enabled;
        let grace = *self.configuration.shutdown.grace_period;
        let (repository, tag) =
            self.image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).unwrap_or((&self.image, ""));
        let Sizes { cpu, memory, memory_limit } = self.sizes;
        let resources =
            format!("requests: {{cpu: {cpu}, memory: {memory}}}\nlimits: {{memory: {memory_limit}}}");
        Values::default()
            .with("name", self.name)
            .with("version", self.version)
            .with("namespace", &*self.namespace)
            .with("lease_namespace", &*self.lease_namespace)
            .with("repository", repository)
            .with("tag", tag)
            .with("cpu", cpu)
            .with("memory", memory)
            .with("memory_limit", memory_limit)
            .with("image", &*self.image)
            .with("replicas", if elects { "2" } else { "1" })
            .with("strategy", if elects { ROLLING } else { "strategy: {type: Recreate}" })
            .with("grace", format!("{} s", grace.as_secs()))
            .with("termination", (grace + MARGIN).as_secs().to_string())
            .with("resources", resources)
            .with("class", "")
            .with("config", &*self.text)
            .with("metrics_port", port(self.configuration.metrics.bind_address))
            .with("inspect", self.inspect())
            .with("token", if self.configuration.metrics.auth { TOKEN } else { "" })
            .with("ports", self.ports())
            .with("probes", self.probes("probes"))
            .with("pod_probes", self.probes(&port(self.configuration.health.bind_address)))
    }

    /// Returns the ports that other Pods may connect to.
    fn ports(&self) -> String {
        let configuration = &self.configuration;
        let all = [
            ("metrics", configuration.metrics.bind_address),
            ("probes", configuration.health.bind_address),
            ("inspect", configuration.inspect.bind_address),
        ];
        let mut text = String::new();
        for (name, address) in all {
            if is_reachable(address) {
                writeln!(text, "  - {{name: {name}, containerPort: {}}}", port(address)).ok();
            }
        }
        if text.is_empty() { text } else { format!("ports:\n{text}") }
    }

    fn probes(&self, port: &str) -> String {
        let are_served = is_reachable(self.configuration.health.bind_address);
        let probes = || Values::default().with("port", port).fill(template!("probes.yaml"));
        are_served.then(probes).unwrap_or_default()
    }

    /// Returns the rule of the `NetworkPolicy` for the debug pages.
    fn inspect(&self) -> String {
        let port = port(self.configuration.inspect.bind_address);
        if port.is_empty() {
            return port;
        }
        Values::default().with("name", self.name).with("port", port).fill(INSPECT)
    }

    /// Returns whether there are metrics that a scraper can reach.
    pub(super) fn has_metrics(&self) -> bool {
        is_reachable(self.configuration.metrics.bind_address)
    }

    /// Returns the definitions of the program's custom resources.
    pub(super) fn definitions(&self) -> Result<String, Failure> {
        self.crds.iter().map(yaml).collect()
    }

    /// Returns the files of the base, in the order in which they are applied.
    pub(super) fn base(&self) -> Result<Vec<File>, Failure> {
        let values = self.values();
        let mut files = vec![("namespace.yaml", values.fill(template!("namespace.yaml")))];
        if !self.crds.is_empty() {
            files.push(("crd.yaml", self.definitions()?));
        }
        files.push(("service_account.yaml", values.fill(template!("service_account.yaml"))));
        let own = self.own.iter().map(|(file, text)| (*file, values.fill(text))).collect();
        files.extend(self.shared(&values, &rules::roles(&self.rights, &values), own));
        Ok(files)
    }

    /// Returns the files that the base and the chart have in common. `own` are those that the program adds.
    pub(super) fn shared(&self, values: &Values, roles: &str, own: Vec<File>) -> Vec<File> {
        let mut files = vec![("rbac.yaml", roles.to_owned())];
        if !self.crds.is_empty() {
            files.push(("user_roles.yaml", rules::user_roles(self.crds, values)));
        }
        files.extend(own);
        if self.configuration.leader_election.enabled {
            files.push(("flow_schema.yaml", values.fill(template!("flow_schema.yaml"))));
        }
        files.push(("config.yaml", values.fill(template!("config.yaml"))));
        files.push(("deployment.yaml", values.fill(template!("deployment.yaml"))));
        if self.has_metrics() {
            files.push(("service.yaml", values.fill(template!("service.yaml"))));
        }
        files.push(("pod_disruption_budget.yaml", values.fill(template!("pod_disruption_budget.yaml"))));
        files
    }

    /// Returns the files that only some clusters want, each with the name of its component.
    pub(super) fn optional(&self, values: &Values) -> Vec<(&'static str, &'static str, String)> {
        let mut files =
            vec![("network-policy", "network_policy.yaml", values.fill(template!("network_policy.yaml")))];
        if self.has_metrics() {
            files.push((
                "monitoring",
                "service_monitor.yaml",
                values.fill(template!("service_monitor.yaml")),
            ));
        }
        files.push(("priority", "priority_class.yaml", values.fill(template!("priority_class.yaml"))));
        files
    }

    /// Returns one file of all documents of the base.
    pub(super) fn install(&self) -> Result<Files, Failure> {
        let documents: Vec<String> =
            self.base()?.into_iter().map(|(_, text)| text.trim_start_matches("---\n").to_owned()).collect();
        Ok(Files::from([("install.yaml".to_owned(), documents.join("---\n"))]))
    }

    /// Returns the base, the components and the static Pod.
    pub(super) fn kustomize(&self) -> Result<Files, Failure> {
        let (base, values) = (self.base()?, self.values());
        let names: Vec<String> = base.iter().map(|(name, _)| format!("- {name}")).collect();
        let kustomization =
            values.clone().with("files", names.join("\n")).fill(template!("kustomization.yaml"));
        let mut files = Files::from([("base/kustomization.yaml".to_owned(), kustomization)]);
        files.extend(base.into_iter().map(|(name, text)| (format!("base/{name}"), text)));
        for (component, name, text) in self.optional(&values) {
            let patches = if component == "priority" { PRIORITY_PATCH } else { "" };
            self.component(component, name, patches, &mut files);
            files.insert(format!("components/{component}/{name}"), text);
        }
        self.namespaced(&values, &mut files)?;
        files.insert("static-pod/pod.yaml".into(), values.fill(template!("static_pod.yaml")));
        let schemas = schemas::schemas(self.crds).into_iter();
        files.extend(schemas.map(|(path, text)| (format!("schemas/{path}"), text)));
        Ok(files)
    }

    /// Adds the component of a manager that serves only its own namespace. There is none if the code names
    /// the namespaces itself.
    fn namespaced(&self, values: &Values, files: &mut Files) -> Result<(), Failure> {
        let (cluster_role, roles) = rules::namespaced(&self.rights_namespaced, &self.rights, values);
        if roles.is_empty() {
            return Ok(());
        }
        let config = values.clone().with("config", self.text_namespaced()?).fill(template!("config.yaml"));
        let cluster_patch = if cluster_role.is_empty() { "" } else { "  - path: cluster_role.yaml\n" };
        let patches = format!("patches:\n  - path: config.yaml\n{cluster_patch}");
        self.component("namespaced", "role.yaml", &patches, files);
        for (name, text) in
            [("config.yaml", config), ("cluster_role.yaml", cluster_role), ("role.yaml", roles)]
        {
            if !text.is_empty() {
                files.insert(format!("components/namespaced/{name}"), text);
            }
        }
        Ok(())
    }

    /// Adds the kustomization of a component with one resource.
    fn component(&self, component: &str, resource: &str, patches: &str, files: &mut Files) {
        let values = self.values();
        let patches = values.fill(patches);
        let text = values.with("file", resource).with("patches", patches).fill(template!("component.yaml"));
        files.insert(format!("components/{component}/kustomization.yaml"), text);
    }

    /// Returns the configuration of a manager that serves only its own namespace.
    fn text_namespaced(&self) -> Result<String, Failure> {
        let mut tree: serde_json::Value = serde_saphyr::from_str(&self.text).map_err(Failure::other)?;
        tree["cache"]["namespaces"] = serde_json::json!([self.namespace]);
        serde_saphyr::to_string(&tree).map_err(Failure::other)
    }
}

/// The update of replicas that elect a leader.
const ROLLING: &str = "strategy:\n  rollingUpdate: {maxUnavailable: 0, maxSurge: 1}";

/// The token of a scraper, for metrics with `metrics.auth`: that of the `ServiceAccount` of Prometheus.
const TOKEN: &str = "bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token";

/// Lets standbys ask the leader for its pages.
const INSPECT: &str = "\
# The leader's pages, for standbys, where inspect.peers is on; else nothing listens there but on loopback.
- from:
    - podSelector:
        matchLabels:
          app.kubernetes.io/name: @name@
  ports: [{port: @port@}]
";

/// The patch that gives the Deployment the priority class.
const PRIORITY_PATCH: &str = "\
patches:
  - target: {kind: Deployment, name: @name@}
    patch: |-
      - op: add
        path: /spec/template/spec/priorityClassName
        value: @name@
";

/// Returns whether other Pods and the kubelet can connect to a server.
fn is_reachable(address: BindAddress) -> bool {
    address.socket().is_some_and(|address| !address.ip().is_loopback())
}

/// Returns the port of a server as text; empty if the server is off.
fn port(address: BindAddress) -> String {
    address.socket().map_or_else(String::new, |address| address.port().to_string())
}
