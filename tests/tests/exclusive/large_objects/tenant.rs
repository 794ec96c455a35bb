//! The large objects of a tenant, as JSON text: the API server must decode them, the test need not.

use std::net::Ipv4Addr;

use super::{Form, READY, TENANT};

/// Bytes of the largest objects: just below the limit of etcd, which is 1.5 MiB.
pub(super) const LARGEST: usize = 1_400_000;
/// Just below `cache.maxObjectBytes`, in bytes.
const KEPT: usize = 255_000;
/// Just below the longest object that the gate decodes, in bytes.
const DECODED: usize = 62_000;
/// Number of addresses in a large Service; each takes about 13 bytes in etcd.
const ADDRESSES: u32 = 100_000;

/// The objects of the tenant, and how many of each sort there are.
#[derive(Default)]
pub(super) struct Tenant {
    /// The API path of the kind, and the object as JSON.
    pub(super) objects: Vec<(&'static str, String)>,
    /// WaitDeployments, Deployments and Services of which the cache keeps only metadata.
    pub(super) large_waiting: u32,
    pub(super) large_deployments: u32,
    pub(super) large_services: u32,
    /// WaitDeployments that are decoded: those with a closed gate, and those with an open gate.
    pub(super) closed: u32,
    pub(super) open: u32,
}

// === impl Tenant ===

impl Tenant {
    pub(super) fn of(form: &Form, text: &str) -> Self {
        let mut tenant = Self::default();
        for number in 0..form.large {
            tenant.add_large(&format!("large-{number}"), number, text);
        }
        // A map of one member takes as much memory as one of eleven, and six bytes.
        let nested = format!("{}0{}", r#"{"":"#.repeat(80), "}".repeat(80));
        let nested = list(&nested, DECODED);
        let variables: Vec<_> =
            (0..DECODED / 17).map(|number| format!(r#"{{"name":"E{number:04}"}}"#)).collect();
        let variables = variables.join(",");
        for number in 0..form.small {
            let name = format!("decoded-{number}");
            if number % 2 == 0 {
                tenant.closed += 1;
                tenant.waiting(&name, "nobody", "", Some(&nested));
            } else {
                tenant.open += 1;
                tenant.waiting(&name, READY, &variables, None);
            }
            tenant.deployment(&format!("kept-{number}"), &text[..KEPT]);
        }
        tenant
    }

    /// Adds an object that is too large for the cache. Only few contain lists: the API server keeps every
    /// object decoded, where a list takes many times the memory of its text.
    fn add_large(&mut self, name: &str, number: u32, text: &str) {
        match number {
            0..2 => self.large(name, &list("0", LARGEST)),
            2..4 => self.large(name, &list(r#"{"":0}"#, LARGEST)),
            4..8 => self.service(name),
            _ if number.is_multiple_of(8) => {
                self.large_deployments += 1;
                // This character takes one byte in etcd and six in the JSON of the API server.
                self.deployment(name, &"<".repeat(LARGEST));
            }
            _ if number.is_multiple_of(2) => {
                self.large_deployments += 1;
                self.deployment(name, text);
            }
            _ => self.large(name, &format!("{text:?}")),
        }
    }

    fn large(&mut self, name: &str, x: &str) {
        self.large_waiting += 1;
        self.waiting(name, "nobody", "", Some(x));
    }

    fn service(&mut self, name: &str) {
        self.large_services += 1;
        let addresses: Vec<_> =
            (0..ADDRESSES).map(|number| format!(r#""{}""#, Ipv4Addr::from((101 << 24) + number))).collect();
        let (metadata, addresses) = (metadata(name), addresses.join(","));
        let spec = format!(r#"{{"ports":[{{"port":80}}],"externalIPs":[{addresses}]}}"#);
        self.objects.push((
            "api/v1/namespaces/tenant/services",
            format!(r#"{{"apiVersion":"v1","kind":"Service",{metadata},"spec":{spec}}}"#),
        ));
    }

    fn waiting(&mut self, name: &str, service: &str, variables: &str, x: Option<&str>) {
        let pods = pods(variables);
        let metadata = metadata(name);
        let x = x.map(|x| format!(r#","x":{x}"#)).unwrap_or_default();
        let wait_for = format!(r#"{{"dependencies":[{{"name":"n","service":{{"name":"{service}"}}}}]}}"#);
        let spec = format!(r#"{{"replicas":0,{pods},"waitFor":{wait_for}{x}}}"#);
        let kind = r#""apiVersion":"apps.mainstay.dev/v1alpha1","kind":"WaitDeployment""#;
        self.objects.push((
            "apis/apps.mainstay.dev/v1alpha1/namespaces/tenant/waitdeployments",
            format!(r#"{{{kind},{metadata},"spec":{spec}}}"#),
        ));
    }

    fn deployment(&mut self, name: &str, text: &str) {
        let pods = pods(&format!(r#"{{"name":"E","value":"{text}"}}"#));
        let metadata = metadata(name);
        self.objects.push((
            "apis/apps/v1/namespaces/tenant/deployments",
            format!(
                r#"{{"apiVersion":"apps/v1","kind":"Deployment",{metadata},"spec":{{"replicas":0,{pods}}}}}"#
            ),
        ));
    }
}

fn metadata(name: &str) -> String {
    format!(r#""metadata":{{"name":"{name}","namespace":"{TENANT}"}}"#)
}

/// Returns the fields `selector` and `template` of Pods with these environment variables.
pub(super) fn pods(variables: &str) -> String {
    let container = format!(r#"{{"name":"c","image":"example.invalid/main:1","env":[{variables}]}}"#);
    let template =
        format!(r#"{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{container}]}}}}"#);
    format!(r#""selector":{{"matchLabels":{{"a":"b"}}}},"template":{template}"#)
}

/// Returns a JSON list of the same item, slightly shorter than `bytes`.
fn list(item: &str, bytes: usize) -> String {
    format!("[{}{item}]", format!("{item},").repeat(bytes / (item.len() + 1) - 1))
}

/// Returns text that does not compress, the same in every run.
pub(super) fn text(bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let draw = || {
        // xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(state % 64) as usize])
    };
    std::iter::repeat_with(draw).take(bytes).collect()
}
