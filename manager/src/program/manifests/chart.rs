//! The chart: the same templates, with expressions of Helm for what an installation decides.

use serde_json::json;

use super::template::template;
use super::{Files, Source, rules};
use crate::program::Failure;

/// The namespace of the release.
pub(super) const NAMESPACE: &str = "{{ .Release.Namespace }}";

// === impl Source ===

impl Source<'_> {
    /// Returns the files of the chart.
    pub(super) fn chart(&self) -> Result<Files, Failure> {
        let lease_namespace =
            if self.lease_namespace == self.namespace { NAMESPACE } else { &self.lease_namespace };
        let class = self.values().fill(PRIORITY_CLASS);
        let values = self
            .values()
            .with("namespace", NAMESPACE)
            .with("lease_namespace", lease_namespace)
            .with(
                "image",
                "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}",
            )
            .with("replicas", "{{ .Values.replicas }}")
            .with("resources", "{{- toYaml .Values.resources | nindent 12 }}")
            .with("class", class)
            .with("config", "{{- .Values.config | nindent 4 }}");
        let roles = rules::roles(&self.rights_of_chart, &values);
        let mut files = Files::new();
        files.insert("chart/Chart.yaml".into(), values.fill(template!("chart_head.yaml")));
        let monitoring = if self.has_metrics() { MONITORING } else { "" };
        let defaults = self.values().with("monitoring", monitoring);
        files.insert("chart/values.yaml".into(), defaults.fill(template!("chart_values.yaml")));
        files.insert("chart/values.schema.json".into(), format!("{:#}\n", self.schema()));
        if !self.crds.is_empty() {
            files.insert("chart/crds/crd.yaml".into(), self.definitions()?);
        }
        let account = values.fill(template!("service_account.yaml"));
        files.insert("chart/templates/service_account.yaml".into(), account);
        let escaped = |text: &str| values.fill(&text.replace("{{", "{{ `{{` }}"));
        let own = self.own.iter().map(|(file, text)| (*file, escaped(text))).collect();
        for (name, text) in self.shared(&values, &roles, own) {
            files.insert(format!("chart/templates/{name}"), text);
        }
        for (component, name, text) in self.optional(&values) {
            let (switch, check) = match component {
                "monitoring" => ("serviceMonitor", NO_SERVICE_MONITOR),
                "priority" => ("priorityClass", ""),
                _ => ("networkPolicy", ""),
            };
            let text = format!("{{{{- if .Values.{switch}.enabled }}}}\n{check}{text}{{{{- end }}}}\n");
            files.insert(format!("chart/templates/{name}"), text);
        }
        Ok(files)
    }

    fn schema(&self) -> serde_json::Value {
        let switch = |description: &str| {
            json!({
                "description": description, "type": "object", "additionalProperties": false,
                "properties": {"enabled": {"type": "boolean"}},
            })
        };
        let mut schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": format!("Values of the chart of {}", self.name),
            "type": "object",
            "additionalProperties": false,
            "required": ["image", "replicas", "config"],
            "properties": {
                "global": {"type": "object"},
                "image": {
                    "type": "object", "additionalProperties": false, "required": ["repository"],
                    "properties": {
                        "repository": {"type": "string", "minLength": 1},
                        "tag": {"description": "Empty for the version of the chart.", "type": "string"},
                    },
                },
                "replicas": {"type": "integer", "minimum": 0},
                "resources": {
                    "type": "object", "additionalProperties": false,
                    "properties": {"requests": {"type": "object"}, "limits": {"type": "object"}},
                },
                "config": {"description": "The configuration file.", "type": "string"},
                "networkPolicy": switch("A NetworkPolicy for the Pods."),
                "priorityClass": switch("A PriorityClass for the Pods."),
            },
        });
        if self.has_metrics() {
            schema["properties"]["serviceMonitor"] = switch("A ServiceMonitor for the metrics.");
        }
        schema
    }
}

/// The priority class of the Pods, if the values switch it on.
const PRIORITY_CLASS: &str = "\
{{- if .Values.priorityClass.enabled }}
priorityClassName: @name@
{{- end }}
";

/// The switch of the `ServiceMonitor`.
const MONITORING: &str = "\
# For a Prometheus operator.
serviceMonitor:
  enabled: false
";

/// Refuses a cluster without the Prometheus operator, and names the switch.
const NO_SERVICE_MONITOR: &str = "\
{{- if not (.Capabilities.APIVersions.Has \"monitoring.coreos.com/v1/ServiceMonitor\") }}
{{- fail \"no ServiceMonitors here: install the Prometheus operator, or set serviceMonitor.enabled=false\" }}
{{- end }}
";
