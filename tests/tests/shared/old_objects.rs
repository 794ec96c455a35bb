//! Stored objects stay valid: manifests of the article's form, objects that a newer definition would refuse,
//! and fields that this version does not know.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use mainstay_api::crd::crd;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::{TestCluster, wait};
use serde_json::{Value, json};

/// The definition under a name of the test's own, so that it can be changed beside the other tests.
struct Definition {
    /// Owns the namespace of the objects.
    _cluster: TestCluster,
    group: String,
    definitions: Api<CustomResourceDefinition>,
    objects: Api<DynamicObject>,
}

// === impl Definition ===

impl Definition {
    /// Creates the definition, changed by `alter`, and waits until it is served.
    async fn serve(alter: impl FnOnce(&mut Value)) -> Option<Self> {
        let cluster = TestCluster::shared().await?;
        let group = format!("{}.mainstay.dev", cluster.namespace());
        let kind = GroupVersionKind::gvk(&group, "v1alpha1", "WaitDeployment");
        let resource = ApiResource::from_gvk_with_plural(&kind, "waitdeployments");
        let objects = Api::namespaced_with(cluster.client(), cluster.namespace(), &resource);
        let definitions = Api::all(cluster.client());
        let served = Self { _cluster: cluster, group, definitions, objects };
        served.replace(alter).await;
        Some(served)
    }

    fn name(&self) -> String {
        format!("waitdeployments.{}", self.group)
    }

    /// Replaces the served definition by the current one, changed by `alter`.
    async fn replace(&self, alter: impl FnOnce(&mut Value)) {
        let mut definition = serde_json::to_value(crd()).expect("JSON");
        definition["metadata"]["name"] = json!(self.name());
        definition["spec"]["group"] = json!(self.group);
        definition["spec"]["names"]["shortNames"] = json!([]);
        definition["spec"]["names"]["categories"] = json!([]);
        alter(&mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        let params = PatchParams::apply("test").force();
        let mut applied =
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
        for part in ["metadata", "spec"] {
            applied[part] = definition[part].clone();
        }
        self.definitions.patch(&self.name(), &params, &Patch::Apply(applied)).await.expect("a definition");
        wait::until(&self.definitions, &self.name(), "the definition to be served", |definition| {
            let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions
                .into_iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
    }

    fn object(&self, name: &str, fields: &Value) -> DynamicObject {
        let mut object: Value = wait_deployment("web", fields);
        object["apiVersion"] = json!(format!("{}/v1alpha1", self.group));
        object["metadata"]["name"] = json!(name);
        serde_json::from_value(object).expect("an object")
    }

    /// Retries until the server applies the new definition, which happens some time after the update.
    async fn until_refused(&self, fields: &Value, words: &str) {
        wait::until_so("the new definition to be in force", async || {
            let params = PostParams { dry_run: true, ..PostParams::default() };
            match self.objects.create(&params, &self.object("probe", fields)).await {
                Err(kube::Error::Api(refusal)) => refusal.message.contains(words),
                _ => false,
            }
        })
        .await;
    }

    async fn edit(&self, name: &str, patch: &Value) -> Result<DynamicObject, String> {
        let edited = self.objects.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        edited.map_err(|error| error.to_string())
    }

    async fn end(self) {
        self.definitions.delete(&self.name(), &DeleteParams::default()).await.expect("deleted");
    }
}

/// Removes every rule and bound, as in an old definition without them.
fn without_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let kept = [
                "x-kubernetes-preserve-unknown-fields",
                "x-kubernetes-list-type",
                "x-kubernetes-list-map-keys",
            ];
            let is_bound = |key: &str| {
                [
                    "x-kubernetes-validations",
                    "maxLength",
                    "minLength",
                    "maxItems",
                    "minItems",
                    "minimum",
                    "maximum",
                    "enum",
                    "maxProperties",
                ]
                .contains(&key)
            };
            fields.retain(|key, value| kept.contains(&key.as_str()) || !is_bound(key) || value.is_object());
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_new_rules_would_refuse_can_be_edited_elsewhere() {
    let Some(served) = Definition::serve(without_rules).await else { return };
    let old = json!({"spec": {"replicas": 1, "waitFor": {
        "dependencies": [
            {"name": "Data Base", "tcpSocket": {"host": "0x7f.1", "port": 70_000}, "timeoutSeconds": 90},
            {"name": "both", "dns": {"name": "10.0.0.1"}, "service": {"name": "Db"}},
        ],
        "gates": ["Someday"],
        "onLoss": "ScaleToZero",
    }}});
    wait::until_so("the loose definition to be in force", async || {
        served.objects.create(&PostParams::default(), &served.object("old", &old)).await.is_ok()
    })
    .await;
    served.replace(|_| {}).await;
    served.until_refused(&old, "spec.waitFor.gates[0]").await;

    let elsewhere = [
        json!({"metadata": {"labels": {"team": "shop"}}}),
        json!({"spec": {"replicas": 3}}),
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "b"}]}}}}),
    ];
    for patch in elsewhere {
        assert_eq!(served.edit("old", &patch).await.err(), None, "{patch}");
    }
    // A changed field must become valid; a rule over several fields is checked when one of them changes.
    let refused = served.edit("old", &json!({"spec": {"waitFor": {"deadlineSeconds": 60}}})).await;
    assert!(
        refused.as_ref().is_err_and(|words| words.contains("spec.waitFor.lossGraceSeconds")),
        "{refused:?}"
    );
    let refused = served.edit("old", &json!({"spec": {"waitFor": {"gates": ["Never"]}}})).await;
    assert!(refused.as_ref().is_err_and(|words| words.contains("spec.waitFor.gates[0]")), "{refused:?}");
    let good = json!({"spec": {"waitFor": {
        "dependencies": [{"name": "db", "tcpSocket": {"host": "db", "port": 5432}}],
        "gates": ["Create"], "lossGraceSeconds": 60,
    }}});
    assert_eq!(served.edit("old", &good).await.err(), None);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_of_the_articles_form_is_admitted_and_stored_completely() {
    let Some(served) = Definition::serve(|_| {}).await else { return };
    wait::until_so("the definition to be served", async || {
        served.objects.list(&kube::api::ListParams::default()).await.is_ok()
    })
    .await;
    // As Go's encoder writes it, with fields of a newer cluster below the template.
    let article = json!({
        "metadata": {"creationTimestamp": null},
        "waitProbe": {"address": "postgres:5432", "timeout": 3_000_000_000_i64},
        "spec": {
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "10%", "newKnob": [1, {"a": null}]}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "newMark": {"x": 1}},
                "spec": {
                    "containers": [{"name": "main", "image": "a", "newResources": {"quantum": 1.5}}],
                    "newGate": {"deep": [{"deeper": "x"}]},
                },
            },
            "podReplacementPolicy": "TerminationComplete",
        },
    });
    let object = served.object("article", &article);
    let made = served.objects.create(&PostParams::default(), &object).await.expect("admitted");
    assert_eq!(made.data["waitProbe"], article["waitProbe"]);
    for (key, value) in article["spec"].as_object().expect("fields") {
        assert_eq!(&made.data["spec"][key], value, "{key}");
    }
    // Decoded into the types of this version, and written back.
    let read: mainstay_api::WaitDeployment =
        serde_json::from_value(serde_json::to_value(&made).expect("JSON")).expect("decodes");
    assert_eq!(read.plan().expect("a plan").dependencies.len(), 1);
    let mut written = serde_json::to_value(&read).expect("JSON");
    written["apiVersion"] = json!(format!("{}/v1alpha1", served.group));
    let mut written: DynamicObject = serde_json::from_value(written).expect("an object");
    let back = served.objects.replace("article", &PostParams::default(), &written).await.expect("written");
    assert_eq!((&back.data, back.metadata.generation), (&made.data, made.metadata.generation));
    // The first write stores the defaults of the status: a create drops the status of its request.
    written.metadata.resource_version = back.resource_version();
    let again = served.objects.replace("article", &PostParams::default(), &written).await.expect("written");
    assert_eq!(again.resource_version(), back.resource_version(), "the second write changes nothing");

    for waits in [json!({}), json!({"address": ""}), json!({"address": ":1", "timeout": 3}), json!(null)] {
        let name = format!("odd-{}", waits.to_string().len());
        let odd = served.object(&name, &json!({"waitProbe": waits}));
        served
            .objects
            .create(&PostParams::default(), &odd)
            .await
            .unwrap_or_else(|error| panic!("{waits}: {error}"));
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_null_counts_as_absent_and_sets_do_not_grow_by_themselves() {
    let Some(served) = Definition::serve(|_| {}).await else { return };
    let wait_for = |gates: Value| {
        json!({"spec": {"waitFor": {
            "dependencies": [{"name": "db", "service": {"name": "db", "port": null},
                "tcpSocket": null, "periodSeconds": null}],
            "gates": gates, "onLoss": null,
        }}})
    };
    wait::until_so("the definition to be served", async || {
        let web = served.object("web", &wait_for(Value::Null));
        served.objects.create(&PostParams::default(), &web).await.is_ok()
    })
    .await;
    let web = served.objects.get("web").await.expect("the object");
    let found = &web.data["spec"]["waitFor"];
    assert_eq!(found["dependencies"][0]["periodSeconds"], 10);
    assert_eq!((&found["onLoss"], &found["gates"]), (&json!("Report"), &Value::Null));
    // A default would have become a set member without an owner, which no apply could remove.
    let gates = json!({"spec": {"waitFor": {
        "dependencies": [{"name": "db", "service": {"name": "db"}}], "gates": ["Update"],
    }}});
    let params = PatchParams::apply("user");
    let applied = served.objects.patch("web", &params, &Patch::Apply(served.object("web", &gates))).await;
    assert_eq!(applied.expect("applied").data["spec"]["waitFor"]["gates"], json!(["Update"]));
    served.end().await;
}
