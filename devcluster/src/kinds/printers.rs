//! Tables: the columns of a kind and the cells of its objects, as `kubectl get` prints them.
//!
//! The columns of built-in kinds are data (`data/columns.jsonl`): a line with all descriptions, then a line
//! for each kind with a printer. The line of a kind is parsed when a table of that kind is asked for. Cells
//! are functions of an object and the current time, in one file for each area.

mod access;
mod apps;
mod autoscaling;
mod cluster;
mod core;
mod custom;
mod duration;
mod json_path;
mod network;
mod nodes;
mod pods;
mod policy;
mod storage;
mod text;
mod view;

use std::sync::LazyLock;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::custom::Column;
use super::kind::Kind;
use custom::CustomCells;
use view::View;

static COLUMNS: &str = include_str!("../../data/columns.jsonl");

/// The descriptions of columns, in the order in which lines of kinds refer to them.
static DESCRIPTIONS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let line = COLUMNS.lines().next().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_default()
});

/// Makes the rows of a table from objects of one kind.
#[derive(Debug)]
pub struct Printer {
    columns: Vec<Value>,
    cells: Cells,
}

#[derive(Debug)]
enum Cells {
    BuiltIn(BuiltInCells),
    Custom(CustomCells),
    /// The name and the time of the creation.
    Plain,
}

/// Returns the cells of an object as a JSON array.
type BuiltInCells = fn(&View<'_>) -> Value;

/// The line of a kind. A column has a name, a type, a format, the index of its description, and a priority.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    columns: Vec<(&'a str, &'a str, &'a str, usize, i64)>,
}

// === impl Printer ===

impl Printer {
    /// Returns the printer of a built-in kind. A kind without its own columns shows the name and the time of
    /// the creation.
    pub fn built_in(kind: &Kind) -> Self {
        Self::find(&kind.group, &kind.kind).unwrap_or_else(Self::plain)
    }

    /// Returns a printer of the name and the time of the creation.
    pub fn plain() -> Self {
        Self { columns: vec![name_column(), created_column()], cells: Cells::Plain }
    }

    /// Returns the printer of a custom resource with these columns.
    pub fn custom(columns: &[Column]) -> Self {
        let cells = CustomCells::new(columns);
        let mut headers = vec![name_column()];
        headers.extend(columns.iter().take(cells.len()).map(custom::header));
        Self { columns: headers, cells: Cells::Custom(cells) }
    }

    /// Returns the printer of the subresource `scale`, which differs for custom resources.
    pub fn scale(custom: bool) -> Self {
        let built_in = if custom { None } else { Self::find("autoscaling", "Scale") };
        built_in.unwrap_or_else(|| Self::custom(&custom::scale_columns()))
    }

    /// Returns the definitions of the columns.
    pub fn columns(&self) -> &[Value] {
        &self.columns
    }

    /// Returns a row for each object. Ages are those at the time `now`.
    pub fn rows<'a>(&self, objects: impl Iterator<Item = &'a Value>, now: Timestamp) -> Value {
        let rows: Vec<Value> = objects.map(|object| self.row(object, now)).collect();
        match self.cells {
            // Go writes a list that was never filled as null.
            Cells::Plain if rows.is_empty() => Value::Null,
            _ => rows.into(),
        }
    }

    fn row(&self, object: &Value, now: Timestamp) -> Value {
        let view = View::new(object, now);
        let (cells, conditions) = match &self.cells {
            Cells::BuiltIn(cells) => (cells(&view), pods::completed(&view)),
            Cells::Custom(cells) => (cells.row(&view), None),
            Cells::Plain => (json!([view.name(), view.text("/metadata/creationTimestamp")]), None),
        };
        match conditions {
            Some(condition) => json!({"cells": cells, "conditions": [condition]}),
            None => json!({"cells": cells}),
        }
    }

    fn find(group: &str, kind: &str) -> Option<Self> {
        let cells = cells_of(group, kind)?;
        let prefix = format!(r#"{{"group":"{group}","kind":"{kind}","#);
        let line = COLUMNS.lines().find(|line| line.starts_with(&prefix))?;
        let line: Line<'_> = serde_json::from_str(line).ok()?;
        let column = |(name, column_type, format, place, priority): (&str, &str, &str, usize, i64)| {
            column(name, column_type, format, DESCRIPTIONS.get(place).map_or("", String::as_str), priority)
        };
        let columns = line.columns.into_iter().map(column).collect();
        Some(Self { columns, cells: Cells::BuiltIn(cells) })
    }
}

fn column(name: &str, column_type: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({
        "name": name,
        "type": column_type,
        "format": format,
        "description": description,
        "priority": priority,
    })
}

fn name_column() -> Value {
    column("Name", "string", "name", text::NAME, 0)
}

fn created_column() -> Value {
    column("Created At", "date", "", super::custom::AGE, 0)
}

/// Returns the function for the cells of a built-in kind; `None` if it has no columns of its own.
fn cells_of(group: &str, kind: &str) -> Option<BuiltInCells> {
    let cells: BuiltInCells = match (group, kind) {
        ("", "Pod") => pods::pod,
        ("", "PodTemplate") => pods::template,
        ("", "ConfigMap") => core::config_map,
        ("", "Secret") => core::secret,
        ("", "ServiceAccount") => core::service_account,
        ("", "Namespace") => core::namespace,
        ("", "ResourceQuota") => core::resource_quota,
        ("", "ComponentStatus") => core::component_status,
        ("" | "events.k8s.io", "Event") => core::event,
        ("", "Node") => nodes::node,
        ("", "ReplicationController") => apps::replication_controller,
        ("apps", "ReplicaSet") => apps::replica_set,
        ("apps", "Deployment") => apps::deployment,
        ("apps", "StatefulSet") => apps::stateful_set,
        ("apps", "DaemonSet") => apps::daemon_set,
        ("apps", "ControllerRevision") => apps::controller_revision,
        ("batch", "Job") => apps::job,
        ("batch", "CronJob") => apps::cron_job,
        ("policy", "PodDisruptionBudget") => apps::disruption_budget,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler,
        ("autoscaling", "Scale") => autoscaling::scale,
        ("", "Service") => network::service,
        ("", "Endpoints") => network::endpoints,
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice,
        ("networking.k8s.io", "Ingress") => network::ingress,
        ("networking.k8s.io", "IngressClass") => network::ingress_class,
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy,
        ("networking.k8s.io", "ServiceCIDR") => network::service_cidr,
        ("networking.k8s.io", "IPAddress") => network::ip_address,
        ("", "PersistentVolume") => storage::volume,
        ("", "PersistentVolumeClaim") => storage::claim,
        ("storage.k8s.io", "StorageClass") => storage::class,
        ("storage.k8s.io", "VolumeAttachment") => storage::attachment,
        ("storage.k8s.io", "VolumeAttributesClass") => storage::attributes_class,
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver,
        ("storage.k8s.io", "CSINode") => storage::csi_node,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => access::role_binding,
        ("certificates.k8s.io", "CertificateSigningRequest") => access::signing_request,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => policy::webhooks,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => policy::validating,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => policy::mutating,
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => policy::binding,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => policy::flow_schema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => policy::priority_level,
        ("apiregistration.k8s.io", "APIService") => cluster::api_service,
        ("coordination.k8s.io", "Lease") => cluster::lease,
        ("node.k8s.io", "RuntimeClass") => cluster::runtime_class,
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class,
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => cluster::named,
        ("resource.k8s.io", "ResourceClaim") => cluster::resource_claim,
        ("resource.k8s.io", "ResourceSlice") => cluster::resource_slice,
        _ => return None,
    };
    Some(cells)
}

#[cfg(test)]
mod tests;
