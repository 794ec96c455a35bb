//! Which addresses probes connect to, in a network namespace of the test in which every address accepts
//! connections and counts them.
//!
//! An EndpointSlice must not contain a loopback address, so no other test can observe connections to the
//! endpoints of a Service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{lay_over, wait_deployment};
use mainstay_tests::manifests::Identity;
use mainstay_tests::network::{INSIDE, Network, OUTSIDE, PORT};
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};

/// Services with their endpoints. `denied` is part of the message if the probe is denied, and empty if the
/// probe connects. The API server listens on the first address of `INSIDE`, the manager on both; the probe
/// policy denies 10.78.0.0/16.
const SERVICES: [Case; 12] = [
    Case { name: "near", is_headless: true, endpoints: &["10.77.0.2"], denied: "" },
    Case { name: "near-six", is_headless: true, endpoints: &["fd77::2"], denied: "" },
    Case { name: "cluster", is_headless: false, endpoints: &["10.77.0.2"], denied: "" },
    Case { name: "listed", is_headless: true, endpoints: &["10.78.0.1"], denied: LISTED },
    Case { name: "hidden", is_headless: false, endpoints: &["10.78.0.1"], denied: LISTED },
    Case { name: "mixed", is_headless: true, endpoints: &["10.77.0.2", "10.78.0.1"], denied: LISTED },
    Case { name: "nat", is_headless: true, endpoints: &["64:ff9b::a4e:1"], denied: LISTED },
    Case { name: "api", is_headless: true, endpoints: &[INSIDE[0]], denied: "the API server" },
    Case { name: "api-hidden", is_headless: false, endpoints: &[INSIDE[0]], denied: "the API server" },
    Case { name: "own", is_headless: true, endpoints: &[INSIDE[1]], denied: "the manager itself" },
    Case { name: "own-hidden", is_headless: false, endpoints: &[INSIDE[1]], denied: "the manager itself" },
    Case {
        name: "metadata",
        is_headless: true,
        endpoints: &["100.100.100.200"],
        denied: "a metadata service",
    },
];
const LISTED: &str = "probePolicy.denied";
/// An address of no Service that no key of the probe policy denies.
const RAW: &str = "10.79.0.1";

struct Case {
    name: &'static str,
    is_headless: bool,
    endpoints: &'static [&'static str],
    denied: &'static str,
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_connect_only_to_endpoints_that_the_policy_allows() {
    let test = "network::probes_connect_only_to_endpoints_that_the_policy_allows";
    // The rest runs in another process inside the network, so this process gives its turn back.
    let turn = TestCluster::turn().await;
    let Some(network) = Network::enter(test).await else { return };
    drop(turn);
    let Some(cluster) = TestCluster::advertised(INSIDE[0]).await else { return };
    let identity = cluster.install_base().await;
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client(), "default");
    let of_api_server = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    wait::until_all(&slices, &of_api_server, "the API server to publish its address", |slices| {
        slices.iter().any(|slice| addresses(slice).any(|address| address == INSIDE[0]))
    })
    .await;
    for case in &SERVICES {
        create(&cluster, case).await;
    }
    let address_of = async |name: &str| -> IpAddr {
        let service = cluster.api::<Service>().get(name).await.expect("the Service exists");
        service.spec.and_then(|spec| spec.cluster_ip).expect("an address").parse().expect("one address")
    };
    let (near, hidden) = (address_of("cluster").await, address_of("hidden").await);
    let by_name = SERVICES.iter().map(|case| (case.name.to_owned(), case.name.to_owned(), case.denied));
    let raw = |denied: [&'static str; 4]| {
        let hosts = [RAW.to_owned(), hidden.to_string(), "10.78.0.1".to_owned(), INSIDE[1].to_owned()];
        let named = hosts.into_iter().enumerate().map(|(i, host)| (format!("raw-{i}"), host));
        named.zip(denied).map(|((name, host), denied)| (name, host, denied))
    };
    let mut reached: BTreeSet<IpAddr> = OUTSIDE.map(|address| address.parse().expect("an address")).into();
    reached.insert(near);

    let mode = "probePolicy.mode";
    let cases: Vec<_> = by_name.clone().chain(raw([mode; 4])).collect();
    let policy = json!({"mode": "ServicesOnly"});
    wait_until_judged(&cluster, &identity, &policy, &cases).await;
    assert_eq!(network.take_accepted().await, reached, "under {policy}");

    let cases: Vec<_> = by_name.chain(raw(["", LISTED, LISTED, "the manager itself"])).collect();
    reached.insert(RAW.parse().expect("an address"));
    for policy in [json!({"mode": "AllowList", "allow": ["0.0.0.0/0", "::/0"]}), json!({"mode": "Any"})] {
        wait_until_judged(&cluster, &identity, &policy, &cases).await;
        assert_eq!(network.take_accepted().await, reached, "under {policy}");
    }
    cluster.stop().await;
}

/// Runs a manager with one WaitDeployment that waits for all of these (name, host, part of the denial), until
/// the status has the expected result for each.
async fn wait_until_judged(
    cluster: &TestCluster,
    identity: &Identity,
    policy: &Value,
    cases: &[(String, String, &str)],
) {
    let mut changes = json!({"probePolicy": {"denied": ["10.78.0.0/16"]}});
    lay_over(&mut changes["probePolicy"], policy);
    let manager = LocalManager::start_unleashed(cluster, identity, &changes).await;
    let dependencies: Vec<Value> = cases
        .iter()
        .map(|(name, host, _)| {
            let socket = json!({"host": host, "port": PORT});
            json!({"name": name, "tcpSocket": socket, "periodSeconds": 1, "timeoutSeconds": 1})
        })
        .collect();
    let name = policy["mode"].as_str().unwrap_or_default().to_lowercase();
    let waits: WaitDeployment =
        wait_deployment(&name, &json!({"spec": {"waitFor": {"dependencies": dependencies}}}));
    let objects = cluster.api::<WaitDeployment>();
    objects.create(&PostParams::default(), &waits).await.expect("created");
    wait::until(&objects, &name, "a result for every address", |object| {
        cases.iter().all(|(name, _, denied)| {
            object.status.iter().flat_map(|status| &status.dependencies).any(|dependency| {
                let message = dependency.message.as_deref().unwrap_or_default();
                dependency.name == *name && dependency.ready == denied.is_empty() && message.contains(denied)
            })
        })
    })
    .await;
    objects.delete(&name, &DeleteParams::default()).await.expect("deleted");
    manager.stop().await.expect("stopped in order");
}

fn addresses(slice: &EndpointSlice) -> impl Iterator<Item = &String> {
    slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses)
}

async fn create(cluster: &TestCluster, case: &Case) {
    let mut spec = json!({"ports": [{"port": PORT}]});
    if case.is_headless {
        spec["clusterIP"] = "None".into();
    }
    let service = json!({"metadata": {"name": case.name}, "spec": spec});
    let service: Service = serde_json::from_value(service).expect("a Service");
    cluster.api().create(&PostParams::default(), &service).await.expect("a Service");
    let family = if case.endpoints[0].contains(':') { "IPv6" } else { "IPv4" };
    let slice = json!({
        "metadata": {"name": case.name, "labels": {"kubernetes.io/service-name": case.name}},
        "addressType": family,
        "ports": [{"port": PORT}],
        "endpoints": case.endpoints.iter().map(|address| json!({"addresses": [address]})).collect::<Vec<_>>(),
    });
    let slice: EndpointSlice = serde_json::from_value(slice).expect("an EndpointSlice");
    cluster.api().create(&PostParams::default(), &slice).await.expect("an EndpointSlice");
}
