//! The resources that the controllers read and write.

use std::sync::Arc;

use crate::store::GroupResource;

macro_rules! resources {
    ($($name:ident: $group:literal $plural:literal;)*) => {
        $(pub(super) fn $name() -> GroupResource {
            GroupResource { group: Arc::from($group), resource: Arc::from($plural) }
        })*
    };
}

resources! {
    cluster_roles: "rbac.authorization.k8s.io" "clusterroles";
    config_maps: "" "configmaps";
    cron_jobs: "batch" "cronjobs";
    custom_resource_definitions: "apiextensions.k8s.io" "customresourcedefinitions";
    deployments: "apps" "deployments";
    endpoint_slices: "discovery.k8s.io" "endpointslices";
    endpoints: "" "endpoints";
    events: "" "events";
    jobs: "batch" "jobs";
    namespaces: "" "namespaces";
    nodes: "" "nodes";
    pods: "" "pods";
    replica_sets: "apps" "replicasets";
    service_accounts: "" "serviceaccounts";
    services: "" "services";
}
