use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams, WatchEvent, WatchParams,
};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::*;
use crate::server::{Fault, FaultRule};

async fn in_process() -> Embedded {
    Embedded::start().await.expect("a server")
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": "value"}}))
        .expect("a ConfigMap")
}

fn code(error: &Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("no answer: {other}"),
    }
}

/// Creates, lists in pages, watches, patches, applies, deletes and reads `ConfigMap` objects.
async fn use_config_maps(client: Client) {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "c"] {
        let created = api.create(&PostParams::default(), &config_map(name)).await.expect("created");
        assert!(created.metadata.uid.is_some() && created.metadata.resource_version.is_some());
    }
    let again = api.create(&PostParams::default(), &config_map("a")).await.expect_err("exists");
    assert_eq!(code(&again), 409);

    let mut names = Vec::new();
    let mut page = ListParams::default().limit(2);
    loop {
        let list = api.list(&page).await.expect("a page");
        names.extend(list.items.into_iter().filter_map(|item| item.metadata.name));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    names.retain(|name| name != "kube-root-ca.crt");
    assert_eq!(names, ["a", "b", "c"]);

    let list = api.list(&ListParams::default()).await.expect("a list");
    let from = list.metadata.resource_version.expect("a revision");
    let events = api.watch(&WatchParams::default().timeout(60), &from).await.expect("a watch");
    let mut events = std::pin::pin!(events);
    let merge = Patch::Merge(json!({"data": {"key": "merged"}}));
    let patched = api.patch("a", &PatchParams::default(), &merge).await.expect("patched");
    assert_eq!(patched.data.expect("data")["key"], "merged");
    let apply =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"x": "1"}});
    api.patch("d", &PatchParams::apply("tests"), &Patch::Apply(&apply)).await.expect("applied");
    api.delete("b", &DeleteParams::default()).await.expect("deleted");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match events.next().await.expect("an event").expect("readable") {
            WatchEvent::Added(it) => seen.push(("added", it.metadata.name.unwrap_or_default())),
            WatchEvent::Modified(it) => seen.push(("modified", it.metadata.name.unwrap_or_default())),
            WatchEvent::Deleted(it) => seen.push(("deleted", it.metadata.name.unwrap_or_default())),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => panic!("{error:?}"),
        }
    }
    let expected = [("modified", "a"), ("added", "d"), ("deleted", "b")];
    assert_eq!(seen, expected.map(|(event, name)| (event, name.to_owned())));
    assert_eq!(code(&api.get("b").await.expect_err("deleted")), 404);
    assert!(api.get_opt("b").await.expect("no error").is_none());
    let metadata = api.get_metadata("a").await.expect("metadata");
    assert_eq!(metadata.metadata.name.as_deref(), Some("a"));
    let metadata = api.list_metadata(&ListParams::default()).await.expect("metadata");
    assert!(metadata.items.len() >= 3);
}

#[tokio::test]
async fn a_client_works_in_process() {
    let cluster = in_process().await;
    use_config_maps(cluster.client()).await;
    cluster.stop().await;
}

fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer", "default": 3}}}},
            }}}],
        },
    })
}

#[tokio::test]
async fn custom_resources_are_served_and_discovered() {
    let cluster = in_process().await;
    let client = cluster.client();
    let crds = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &crds);
    let definition = serde_json::from_value(widgets()).expect("an object");
    crds.create(&PostParams::default(), &definition).await.expect("created");

    let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let (resource, _) = kube::discovery::pinned_kind(&client, &gvk).await.expect("discovered");
    assert_eq!(resource.plural, "widgets");
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
    let widget = serde_json::from_value(widget).expect("an object");
    let created = widgets.create(&PostParams::default(), &widget).await.expect("created");
    assert_eq!(created.data["spec"]["size"], 3);
    let bad = Patch::Merge(json!({"spec": {"size": "large"}}));
    let refused = widgets.patch("w", &PatchParams::default(), &bad).await.expect_err("refused");
    assert_eq!(code(&refused), 422);
    let discovery = kube::Discovery::new(client).run_aggregated().await.expect("discovered");
    assert!(discovery.has_group("example.com") && discovery.has_group("apps"));
}

#[tokio::test]
async fn a_client_acts_as_its_user() {
    let cluster = in_process().await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())
        .expect("a request");
    let answer: Value = cluster.client_as("alice", ["devs"]).request(request).await.expect("an answer");
    let expected = json!({"username": "alice", "groups": ["devs", "system:authenticated"]});
    assert_eq!(answer["status"]["userInfo"], expected);
}

#[tokio::test]
async fn faults_and_compaction_reach_clients() {
    let cluster = in_process().await;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let events = api.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
    drop(events);
    cluster.faults().add(FaultRule::new(Fault::ServerError(503)).verb("list").times(1));
    assert_eq!(code(&api.list(&ListParams::default()).await.expect_err("a fault")), 503);
    cluster.compact();
    let mut events = api.watch(&WatchParams::default(), "1").await.expect("a watch").boxed();
    let event = events.next().await.expect("an event").expect("readable");
    assert!(matches!(event, WatchEvent::Error(error) if error.code == 410));
}

#[cfg(feature = "http")]
mod over_tcp {
    use std::time::Duration;

    use hyper_util::client::legacy::Client as HttpClient;
    use hyper_util::rt::TokioExecutor;
    use k8s_openapi::api::core::v1::ServiceAccount;
    use k8s_openapi::api::rbac::v1::ClusterRole;
    use k8s_openapi::api::rbac::v1::RoleBinding;
    use kube::Config;
    use kube::client::ConfigExt as _;
    use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpStream;

    use super::*;

    async fn config(cluster: &Embedded) -> Config {
        let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig()).expect("a kubeconfig");
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config")
    }

    #[tokio::test]
    async fn a_client_works_over_http1() {
        let cluster = Embedded::start().await.expect("a server");
        use_config_maps(Client::try_from(config(&cluster).await).expect("a client")).await;
        cluster.stop().await;
    }

    #[tokio::test]
    async fn a_client_works_over_http2() {
        let cluster = Embedded::start().await.expect("a server");
        let config = config(&cluster).await;
        let tls = config.rustls_client_config().expect("TLS");
        let mut tcp = hyper_util::client::legacy::connect::HttpConnector::new();
        tcp.enforce_http(false);
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http2()
            .wrap_connector(tcp);
        let http = HttpClient::builder(TokioExecutor::new()).http2_only(true).build(https);
        let service = tower::ServiceBuilder::new().layer(config.base_uri_layer()).service(http);
        use_config_maps(Client::new(service, "default")).await;
        cluster.stop().await;
    }

    #[tokio::test]
    async fn a_cluster_goes_on_in_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = || EmbeddedOptions {
            data: Some(folder.path().join("cluster")),
            crds: vec![widgets()],
            ..EmbeddedOptions::default()
        };
        let cluster = Embedded::start_with(options()).await.expect("a server");
        let (url, before) = (cluster.url(), config(&cluster).await);
        let client = Client::try_from(before.clone()).expect("a client");
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let map = maps.create(&PostParams::default(), &config_map("a")).await.expect("created");
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
        let widgets: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
        let widget = DynamicObject::new("w", &kind);
        widgets.create(&PostParams::default(), &widget).await.expect("created");
        let roles: Api<ClusterRole> = Api::all(cluster.client());
        let role = serde_json::from_value(json!({"metadata": {"name": "own"}, "rules": []})).expect("a role");
        roles.create(&PostParams::default(), &role).await.expect("created");
        let busy = Embedded::start_with(options()).await.expect_err("the file is in use");
        assert!(busy.to_string().ends_with("/cluster: it is in use by another server"), "{busy}");
        cluster.stop().await;

        let again = Embedded::start_with(options()).await.expect("a server");
        assert_eq!(again.url(), url, "the port is free and stays");
        let client = Client::try_from(before).expect("a client");
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        assert_eq!(maps.get("a").await.expect("found"), map);
        let widgets: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
        widgets.get("w").await.expect("found");
        let roles: Api<ClusterRole> = Api::all(again.client());
        for name in ["own", "cluster-admin"] {
            roles.get(name).await.expect(name);
        }
        let old = map.metadata.resource_version.expect("a revision");
        let mut events = std::pin::pin!(maps.watch(&WatchParams::default(), &old).await.expect("a watch"));
        let event = events.next().await.expect("an event").expect("an event");
        assert!(matches!(&event, WatchEvent::Error(error) if error.code == 410), "{event:?}");
        let next = maps.create(&PostParams::default(), &config_map("b")).await.expect("created");
        let next = next.metadata.resource_version.expect("a revision");
        assert!(next.parse::<u64>().expect("a number") > old.parse::<u64>().expect("a number"));
        again.stop().await;
    }

    /// Returns a client with a token of a new `ServiceAccount` that may edit the objects of its namespace.
    async fn service_account(cluster: &Embedded, name: &str) -> Client {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"});
        let subjects = json!([{"kind": "ServiceAccount", "name": name}]);
        let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects});
        let binding = serde_json::from_value(binding).expect("a binding");
        let bindings: Api<RoleBinding> = Api::default_namespaced(cluster.client());
        bindings.create(&PostParams::default(), &binding).await.expect("created");
        let account = json!({"metadata": {"name": name}});
        let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
        let account = serde_json::from_value(account).expect("an account");
        accounts.create(&PostParams::default(), &account).await.expect("created");
        let request = serde_json::from_value(json!({"spec": {"audiences": []}})).expect("a request");
        let token = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let mut config = config(cluster).await;
        let token = token.expect("a token").status.expect("a status").token;
        config.auth_info = AuthInfo { token: token.map(Into::into), ..AuthInfo::default() };
        Client::try_from(config).expect("a client")
    }

    #[tokio::test]
    async fn the_audit_log_has_the_writes_of_service_accounts() {
        let options = EmbeddedOptions { audit: true, ..EmbeddedOptions::default() };
        let cluster = Embedded::start_with(options).await.expect("a server");
        let maps: Api<ConfigMap> = Api::default_namespaced(service_account(&cluster, "robot").await);
        maps.create(&PostParams::default(), &config_map("a")).await.expect("created");
        maps.get("a").await.expect("read");
        maps.create(&PostParams::default(), &config_map("a")).await.expect_err("exists");
        let log = std::fs::read_to_string(cluster.folder().join("audit.log")).expect("a log");
        let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let codes: Vec<_> = lines.iter().map(|line| line["responseStatus"]["code"].clone()).collect();
        assert_eq!(codes, [201, 409]);
        assert_eq!(lines[0]["user"]["username"], "system:serviceaccount:default:robot");
        assert_eq!(lines[0]["verb"], "create");
        let object = json!({"apiVersion": "v1", "namespace": "default", "resource": "configmaps"});
        assert_eq!(lines[0]["objectRef"], object);
        assert_eq!(lines[0]["requestObject"]["data"]["key"], "value");
        cluster.stop().await;
    }

    #[tokio::test]
    async fn a_closed_port_opens_again_with_the_same_address_and_objects() {
        let cluster = Embedded::start().await.expect("a server");
        let (url, config) = (cluster.url(), config(&cluster).await);
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).expect("a client"));
        maps.create(&PostParams::default(), &config_map("a")).await.expect("created");
        cluster.close_port(Duration::ZERO).await;
        maps.get("a").await.expect_err("the port is closed");
        cluster.open_port().await.expect("opened");
        assert_eq!(cluster.url(), url);
        maps.get("a").await.expect("read");
        let folder = cluster.folder().to_owned();
        cluster.stop().await;
        assert!(!folder.exists(), "nothing is left");
    }

    #[tokio::test]
    async fn a_stop_ends_open_watches_and_idle_connections() {
        let cluster = Embedded::start().await.expect("a server");
        let url = cluster.url();
        let address = url.trim_start_matches("https://").to_owned();
        let client = Client::try_from(config(&cluster).await).expect("a client");
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let mut events = api.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
        let mut idle = TcpStream::connect(&address).await.expect("a connection");
        tokio::time::timeout(Duration::from_secs(1), cluster.stop()).await.expect("a stop without delay");
        while events.next().await.is_some_and(|event| event.is_ok()) {}
        assert_eq!(idle.read(&mut [0]).await.unwrap_or(0), 0, "the idle connection is closed");
        assert!(TcpStream::connect(&address).await.is_err(), "the port is closed");
    }
}

#[cfg(feature = "workloads")]
#[tokio::test]
async fn moved_time_expires_tokens_and_events_and_ends_jobs() {
    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::api::core::v1::{Event, ServiceAccount};

    let controllers = Controller::ALL.into();
    let server = Embedded::start_with(EmbeddedOptions { controllers, ..EmbeddedOptions::default() });
    let server = server.await.expect("a server");
    let client = server.client();
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}});
    events
        .create(&PostParams::default(), &serde_json::from_value(event).expect("an Event"))
        .await
        .expect("e");
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let job = json!({"metadata": {"name": "j"}, "spec": {
        "ttlSecondsAfterFinished": 600,
        "template": {
            "metadata": {"annotations": {"devcluster.mainstay.dev/complete-after": "3000"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        },
    }});
    jobs.create(&PostParams::default(), &serde_json::from_value(job).expect("a Job")).await.expect("j");

    server.advance(Duration::from_secs(2990)).await;
    let job = jobs.get("j").await.expect("the Job").status.expect("a status");
    assert_eq!((job.ready, job.completion_time), (Some(1), None));
    server.advance(Duration::from_secs(20)).await;
    let job = jobs.get("j").await.expect("the Job").status.expect("a status");
    assert_eq!(job.succeeded, Some(1));
    assert!(events.get_opt("e").await.expect("an answer").is_some());
    server.advance(Duration::from_mins(10)).await;
    assert!(jobs.get_opt("j").await.expect("an answer").is_none(), "its time to live is over");
    assert!(events.get_opt("e").await.expect("an answer").is_none(), "an hour has passed");

    let accounts: Api<ServiceAccount> = Api::default_namespaced(client);
    let request = json!({"spec": {"audiences": [], "expirationSeconds": 600}});
    let request = serde_json::from_value(request).expect("a request");
    let token = accounts.create_token_request("default", &PostParams::default(), &request).await;
    let token = token.expect("a token").status.expect("a token").token;
    let asks = async || {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let target = Target::new("authentication.k8s.io", "v1", "tokenreviews");
        let response = server.api().call(Request::new(Verb::Create, target).with_body(review)).await;
        let crate::api::Content::Object(review) = response.expect("a review").content else { panic!() };
        review.value()["status"]["authenticated"] == true
    };
    assert!(asks().await);
    server.advance(Duration::from_secs(601)).await;
    assert!(!asks().await, "it has expired");
    server.stop().await;
}
