//! Applies the shipped ServiceAccount and RBAC rules in a test's own namespace.
//!
//! The manager under test runs with these rights and no others. The test's name is appended to the names of
//! cluster-scoped objects, so that concurrent tests neither share nor take away each other's rights.

mod documents;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use self::documents::{in_namespace, name_of, role, rules};
use crate::cluster::{TestCluster, delete_namespace};
use crate::wait::{PATIENCE, until, until_gone};

pub use self::documents::{documents_of, documents_of_base};

/// The name of the Role with rights that a test adds to the shipped ones.
const MORE: &str = "more";
/// The name of the Role with rights that a test grants and revokes.
const GRANTED: &str = "granted";

/// Pause between two access reviews of whether a rule is in force.
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// An object outside the test's namespace, or the namespace, that a test leaves behind in the shared cluster.
#[derive(Debug)]
pub(crate) enum Cleanup {
    Namespace(String),
    ClusterRole(String),
    ClusterRoleBinding(String),
    Definition(String),
    FlowSchema(String),
}

/// The identity with which the manager under test connects to the API server.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name of the identity's ServiceAccount, in the test's namespace.
    pub service_account: String,
    /// Path of a kubeconfig with a token of the ServiceAccount, and the test's namespace as the default one.
    pub kubeconfig: PathBuf,
}

// === impl Cleanup ===

impl Cleanup {
    pub(crate) async fn run(self, admin: &Client) {
        let background = DeleteParams::background();
        let done = match &self {
            Self::Namespace(name) => delete_namespace(admin, name).await,
            Self::ClusterRole(name) => {
                Api::<ClusterRole>::all(admin.clone()).delete(name, &background).await.map(drop)
            }
            Self::ClusterRoleBinding(name) => {
                Api::<ClusterRoleBinding>::all(admin.clone()).delete(name, &background).await.map(drop)
            }
            Self::FlowSchema(name) => {
                Api::<FlowSchema>::all(admin.clone()).delete(name, &background).await.map(drop)
            }
            Self::Definition(name) => {
                Api::<CustomResourceDefinition>::all(admin.clone()).delete(name, &background).await.map(drop)
            }
        };
        if let Err(error) = done {
            tracing::warn!(left = ?self, %error, "a test's remains stay until the cluster ends");
        }
    }
}

// === impl Identity ===

impl Identity {
    /// Returns the same identity with another address of the API server in its kubeconfig, such as that of a
    /// middlebox, or `host:port`.
    #[must_use]
    pub fn through(&self, address: impl Display) -> Self {
        let path = self.kubeconfig.with_extension("through.kubeconfig");
        let moved = || -> anyhow::Result<()> {
            let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
            config["clusters"][0]["cluster"]["server"] = format!("https://{address}").into();
            Ok(std::fs::write(&path, config.to_string())?)
        };
        if let Err(error) = moved() {
            panic!("{}: {error:#}", path.display());
        }
        Self { service_account: self.service_account.clone(), kubeconfig: path }
    }
}

// === impl TestCluster ===

impl TestCluster {
    /// Creates the ServiceAccount and the rights of the manager from the YAML files of `deploy/base`, and
    /// returns the identity.
    pub async fn install_base(&self) -> Identity {
        self.install(&documents_of_base()).await
    }

    /// Creates the same objects as [`TestCluster::install_base`], and further ServiceAccounts that have the
    /// same rights: one per replica, so that the audit log distinguishes the replicas.
    pub async fn install_base_for(&self, others: &[&str]) {
        let mut documents = documents_of_base();
        for document in &mut documents {
            if let Some(subjects) = document.get_mut("subjects").and_then(Value::as_array_mut) {
                let of = |name: &&str| {
                    let mut subject = subjects[0].clone();
                    subject["name"] = (*name).into();
                    subject
                };
                let more: Vec<Value> = others.iter().map(of).collect();
                subjects.extend(more);
            }
        }
        let account =
            |name: &&str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        documents.extend(others.iter().map(account));
        self.install(&documents).await;
    }

    /// Creates the same objects as [`TestCluster::install_base`], and these additional rules, as a Role lists
    /// them, in the test's namespace. Returns the identity.
    pub async fn install_base_with(&self, rules: &Value) -> Identity {
        let mut documents = documents_of_base();
        documents.extend(role(MORE, rules));
        self.install(&documents).await
    }

    /// Grants the manager these rights in the test's namespace, and waits until they are in force.
    pub async fn grant(&self, identity: &Identity, rules: &Value) {
        for document in in_namespace(&role(GRANTED, rules), self.namespace()) {
            self.create(&document).await;
        }
        self.all_in_force(identity, rules, true).await;
    }

    /// Revokes the rights that [`TestCluster::grant`] granted, and waits until that is in force.
    pub async fn revoke(&self, identity: &Identity, rules: &Value) {
        let now = DeleteParams::default();
        let binding = self.api::<RoleBinding>().delete(GRANTED, &now).await.map(drop);
        if let Err(error) = binding.and(self.api::<Role>().delete(GRANTED, &now).await.map(drop)) {
            panic!("the granted rights cannot be revoked: {error}");
        }
        self.all_in_force(identity, rules, false).await;
    }

    async fn all_in_force(&self, identity: &Identity, rules: &Value, granted: bool) {
        let rules: Vec<PolicyRule> = serde_json::from_value(rules.clone())
            .unwrap_or_else(|error| panic!("{rules} are no rules: {error}"));
        for rule in &rules {
            self.in_force(&identity.service_account, Some(self.namespace()), rule, granted).await;
        }
    }

    /// Creates a `ClusterRole` with these rules, aggregated to the roles of every manager under test, and
    /// deleted after this test. Not for rights that other tests must not have.
    pub async fn aggregate(&self, rules: &Value) {
        let labels = json!({"mainstay.dev/aggregate-to-manager": "true"});
        let name = format!("aggregated-{}", self.namespace());
        let role =
            json!({"kind": "ClusterRole", "metadata": {"name": name, "labels": labels}, "rules": rules});
        self.create(&role).await;
    }

    /// Creates a CRD, deletes it after the test, and waits until its kind is served.
    pub async fn define(&self, definition: &Value) {
        let name = name_of(definition);
        self.leave(Cleanup::Definition(name.to_owned()));
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client());
        if let Err(error) = post(definitions.clone(), definition).await {
            panic!("{name} cannot be defined: {error:#}");
        }
        until(&definitions, name, "it is served", |definition| {
            let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True")
        })
        .await;
    }

    /// Deletes the CRD that [`TestCluster::define`] created, and waits until it is gone with all its objects.
    pub async fn undefine(&self, definition: &Value) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client());
        let name = name_of(definition);
        if let Err(error) = definitions.delete(name, &DeleteParams::background()).await {
            panic!("{name} cannot be taken back: {error}");
        }
        until_gone(&definitions, name).await;
    }

    /// Creates the ServiceAccount and the rights among `documents`, waits until the rules are in force and
    /// returns the identity.
    pub async fn install(&self, documents: &[Value]) -> Identity {
        let account = documents.iter().find(|document| document["kind"] == "ServiceAccount");
        let account = account.and_then(|account| account["metadata"]["name"].as_str());
        let Some(account) = account else { panic!("there is no ServiceAccount among the documents") };
        self.install_for(account, documents).await;
        Identity { service_account: account.to_owned(), kubeconfig: self.kubeconfig_of(account).await }
    }

    /// Creates the additional rights that a component of `deploy` gives this ServiceAccount, and waits until
    /// they are in force.
    pub async fn install_component(&self, identity: &Identity, component: &str) {
        let documents = documents_of(&format!("components/{component}"));
        self.install_for(&identity.service_account, &documents).await;
    }

    async fn install_for(&self, account: &str, documents: &[Value]) {
        let documents = in_namespace(documents, self.namespace());
        for document in &documents {
            self.create(document).await;
        }
        for (namespace, rule) in rules(&documents) {
            self.in_force(account, namespace.as_deref(), &rule, true).await;
        }
    }

    /// Creates the `FlowSchema` for elections from `deploy/base`, moved to the test's namespace. It is
    /// deleted after the test.
    pub async fn prefer_elections(&self) {
        let shipped = documents_of_base().into_iter().find(|document| document["kind"] == "FlowSchema");
        let Some(mut schema) = shipped else { panic!("deploy/base ships no FlowSchema") };
        let name = format!("{}-{}", name_of(&schema), self.namespace());
        let rule = &mut schema["spec"]["rules"][0];
        rule["subjects"][0]["serviceAccount"]["namespace"] = self.namespace().into();
        rule["resourceRules"][0]["namespaces"][0] = self.namespace().into();
        schema["metadata"]["name"] = name.clone().into();
        self.leave(Cleanup::FlowSchema(name));
        if let Err(error) = post::<FlowSchema>(Api::all(self.client()), &schema).await {
            panic!("the FlowSchema cannot be created: {error:#}");
        }
    }

    /// Returns a token of this ServiceAccount for these audiences, valid for an hour; an empty list means the
    /// API server.
    pub async fn token_of(&self, service_account: &str, audiences: &[&str]) -> String {
        self.token_in(self.namespace(), service_account, audiences).await
    }

    async fn token_in(&self, namespace: &str, service_account: &str, audiences: &[&str]) -> String {
        let audiences = Some(audiences.iter().map(|&audience| audience.to_owned()).collect());
        let spec =
            TokenRequestSpec { audiences, expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let token = accounts.create_token_request(service_account, &PostParams::default(), &request).await;
        let token = token.ok().and_then(|answer| answer.status).and_then(|status| status.token);
        token.unwrap_or_else(|| panic!("no token for ServiceAccount {service_account} in {namespace}"))
    }

    /// Writes a kubeconfig with a token of this ServiceAccount, valid for an hour, and returns its path.
    pub async fn kubeconfig_of(&self, service_account: &str) -> PathBuf {
        self.kubeconfig_in(self.namespace(), service_account).await
    }

    /// Writes a kubeconfig as [`TestCluster::kubeconfig_of`] does, of a ServiceAccount in any namespace.
    pub async fn kubeconfig_in(&self, namespace: &str, service_account: &str) -> PathBuf {
        let token = self.token_in(namespace, service_account, &[]).await;
        let path = self.scratch(&format!("{service_account}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context":
                {"cluster": "test", "user": service_account, "namespace": namespace}}],
            "clusters": [{"name": "test", "cluster":
                {"server": self.url(), "certificate-authority": self.authority_path()}}],
            "users": [{"name": service_account, "user": {"token": token}}],
        });
        match std::fs::write(&path, text.to_string()) {
            Ok(()) => path,
            Err(error) => panic!("{} cannot be written: {error}", path.display()),
        }
    }

    async fn create(&self, document: &Value) {
        let admin = self.client();
        let created = match document["kind"].as_str() {
            Some("ServiceAccount") => post::<ServiceAccount>(self.api(), document).await,
            Some("Role") => post::<Role>(self.api(), document).await,
            Some("RoleBinding") => post::<RoleBinding>(self.api(), document).await,
            Some("ClusterRole") => {
                self.leave(Cleanup::ClusterRole(name_of(document).to_owned()));
                post::<ClusterRole>(Api::all(admin), document).await
            }
            Some("ClusterRoleBinding") => {
                self.leave(Cleanup::ClusterRoleBinding(name_of(document).to_owned()));
                post::<ClusterRoleBinding>(Api::all(admin), document).await
            }
            other => panic!("a document of kind {other:?} passed the filter"),
        };
        if let Err(error) = created {
            panic!("{} {} cannot be created: {error:#}", document["kind"], name_of(document));
        }
    }

    /// Waits until the API server's authorizer, which watches the rules, allows the access of the rule, or
    /// refuses it if `granted` is false.
    async fn in_force(&self, account: &str, namespace: Option<&str>, rule: &PolicyRule, granted: bool) {
        let first = |names: &Option<Vec<String>>| names.iter().flatten().next().cloned();
        let (resource, subresource) = match first(&rule.resources) {
            Some(resource) => match resource.split_once('/') {
                Some((resource, subresource)) => (Some(resource.to_owned()), Some(subresource.to_owned())),
                None => (Some(resource), None),
            },
            // A rule about URLs is not reviewed; the rules of resources beside it are.
            None => return,
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{}:{account}", self.namespace())),
                resource_attributes: Some(ResourceAttributes {
                    group: first(&rule.api_groups),
                    resource,
                    subresource,
                    name: first(&rule.resource_names),
                    namespace: namespace.map(ToOwned::to_owned),
                    verb: rule.verbs.first().cloned(),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client());
        let agreed = async {
            loop {
                let answer = reviews.create(&PostParams::default(), &review).await;
                let status = answer.ok().and_then(|answer| answer.status);
                if status.is_some_and(|status| status.allowed == granted) {
                    return;
                }
                tokio::time::sleep(POLL_PERIOD).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, agreed).await.is_ok();
        assert!(in_time, "after {PATIENCE:?} it is not {granted} that {account} has the rule {rule:?}");
    }
}

// === private functions ===

async fn post<K>(api: Api<K>, document: &Value) -> anyhow::Result<()>
where
    K: Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let object: K = serde_json::from_value(document.clone())?;
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
