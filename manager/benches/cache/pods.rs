//! Pods as in a real cluster: a few hundred applications, each with replicas that differ in little.
//!
//! Deterministic: the same number and version give the same bytes. The random parts of a real cluster (uids,
//! container ids, addresses, times) come from a generator seeded with the number, because no dictionary can
//! compress them.

#![expect(clippy::format_push_string, reason = "shorter than write!, and the writing is not measured")]

use fastrand::Rng;

/// Pods of one application.
const REPLICAS: u32 = 50;
/// Applications of one namespace.
const NEIGHBOURS: u32 = 5;

/// One Pod of the bench's cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod {
    number: u32,
}

/// The parts that the replicas of an application share.
struct App {
    name: String,
    hash: String,
    random: Rng,
}

// === impl Pod ===

impl Pod {
    /// Returns the Pod of this number.
    pub(crate) fn new(number: u32) -> Self {
        Self { number }
    }

    /// Returns its namespace, which has `REPLICAS * NEIGHBOURS` Pods.
    pub(crate) fn namespace(self) -> String {
        format!("team-{:03}", self.app() / NEIGHBOURS)
    }

    /// Returns its name.
    pub(crate) fn name(self) -> String {
        let app = App::new(self.app());
        format!("{}-{}-{}", app.name, app.hash, letters(&mut self.random(), 5))
    }

    /// Returns its JSON as the API server writes it, with this resourceVersion.
    pub(crate) fn json(self, version: u64) -> String {
        let mut app = App::new(self.app());
        let mut random = self.random();
        let suffix = letters(&mut random, 5);
        let name = format!("{}-{}-{suffix}", app.name, app.hash);
        let created = time(&mut random, 0);
        let started = time(&mut random, 1);
        let address = format!("10.{}.{}.{}", random.u8(0..=250), random.u8(..), random.u8(1..=250));
        let node = format!("ip-10-0-{}-{}.eu-central-1.compute.internal", random.u8(0..32), random.u8(0..8));
        let mut out = String::with_capacity(7500);
        out.push_str(r#"{"kind":"Pod","apiVersion":"v1","metadata":"#);
        self.metadata(&mut out, &mut app, &mut random, &name, &created, &started, version);
        out.push_str(r#","spec":"#);
        spec(&mut out, &mut app, &node, &suffix);
        out.push_str(r#","status":"#);
        status(&mut out, &mut app, &mut random, &address, &started, version);
        out.push('}');
        out
    }

    fn app(self) -> u32 {
        self.number / REPLICAS
    }

    fn random(self) -> Rng {
        Rng::with_seed(0x9e37_79b9 + u64::from(self.number))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one text")]
    fn metadata(
        self,
        out: &mut String,
        app: &mut App,
        random: &mut Rng,
        name: &str,
        created: &str,
        started: &str,
        version: u64,
    ) {
        let App { name: owner, hash, .. } = &app;
        let namespace = self.namespace();
        let own_uid = uid(random);
        let owner_uid = uid(&mut app.random.clone());
        *out += &one_line(format!(
            r#"{{"name":"{name}","generateName":"{owner}-{hash}-","namespace":"{namespace}",
                "uid":"{own_uid}","resourceVersion":"{version}","generation":1,
                "creationTimestamp":"{created}","labels":{{"app.kubernetes.io/component":"server",
                "app.kubernetes.io/instance":"{owner}","app.kubernetes.io/managed-by":"Helm",
                "app.kubernetes.io/name":"{owner}","app.kubernetes.io/version":"2.14.{patch}",
                "helm.sh/chart":"{owner}-0.9.{patch}","pod-template-hash":"{hash}"}},
                "annotations":{{"checksum/config":"{checksum}","prometheus.io/path":"/metrics",
                "prometheus.io/port":"9090","prometheus.io/scrape":"true"}},
                "ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{owner}-{hash}",
                "uid":"{owner_uid}","controller":true,"blockOwnerDeletion":true}}],"managedFields":["#,
            patch = self.app() % 10,
            checksum = hex(&mut app.random.clone(), 64),
        ));
        *out += &one_line(format!(
            r#"{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1",
                "time":"{created}","fieldsType":"FieldsV1",
                "fieldsV1":{{"f:metadata":{{"f:annotations":{{".":{{}},"f:checksum/config":{{}},
                "f:prometheus.io/path":{{}},"f:prometheus.io/port":{{}},"f:prometheus.io/scrape":{{}}}},
                "f:generateName":{{}},"f:labels":{{".":{{}},"f:app.kubernetes.io/component":{{}},
                "f:app.kubernetes.io/instance":{{}},"f:app.kubernetes.io/managed-by":{{}},
                "f:app.kubernetes.io/name":{{}},"f:app.kubernetes.io/version":{{}},"f:helm.sh/chart":{{}},
                "f:pod-template-hash":{{}}}},"f:ownerReferences":{{".":{{}},
                "k:{{\"uid\":\"{owner_uid}\"}}":{{}}}}}},
                "f:spec":{{"f:containers":{{"k:{{\"name\":\"server\"}}":{{".":{{}},"f:env":{{".":{{}},
                "k:{{\"name\":\"LOG_LEVEL\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}},
                "k:{{\"name\":\"POD_NAME\"}}":{{".":{{}},"f:name":{{}},"f:valueFrom":{{".":{{}},
                "f:fieldRef":{{}}}}}}}},"f:image":{{}},"f:imagePullPolicy":{{}},
                "f:livenessProbe":{{".":{{}},"f:failureThreshold":{{}},"f:httpGet":{{".":{{}},
                "f:path":{{}},"f:port":{{}},"f:scheme":{{}}}},"f:periodSeconds":{{}}}},"f:name":{{}},
                "f:ports":{{".":{{}},"k:{{\"containerPort\":8080,\"protocol\":\"TCP\"}}":{{".":{{}},
                "f:containerPort":{{}},"f:name":{{}},"f:protocol":{{}}}}}},"f:resources":{{".":{{}},
                "f:limits":{{".":{{}},"f:memory":{{}}}},"f:requests":{{".":{{}},"f:cpu":{{}},
                "f:memory":{{}}}}}}}}}},"f:dnsPolicy":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}},
                "f:terminationGracePeriodSeconds":{{}}}}}}}},"#,
        ));
        *out += &one_line(format!(
            r#"{{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"{started}",
                "fieldsType":"FieldsV1",
                "fieldsV1":{{"f:status":{{"f:conditions":{{"k:{{\"type\":\"ContainersReady\"}}":{{".":{{}},
                "f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}},
                "k:{{\"type\":\"Initialized\"}}":{{".":{{}},"f:lastProbeTime":{{}},
                "f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}},
                "k:{{\"type\":\"Ready\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},
                "f:status":{{}},"f:type":{{}}}}}},"f:containerStatuses":{{}},"f:hostIP":{{}},
                "f:hostIPs":{{}},"f:phase":{{}},"f:podIP":{{}},"f:podIPs":{{}},"f:startTime":{{}}}}}},
                "subresource":"status"}}]}}"#,
        ));
    }
}

// === impl App ===

impl App {
    fn new(number: u32) -> Self {
        let mut random = Rng::with_seed(0xc0ff_ee00 + u64::from(number));
        let name = format!("{}-{}", WORDS[random.usize(..WORDS.len())], WORDS[random.usize(..WORDS.len())]);
        let hash = letters(&mut random, 10);
        Self { name: format!("{name}-{number}"), hash, random }
    }
}

fn spec(out: &mut String, app: &mut App, node: &str, suffix: &str) {
    let owner = &app.name;
    let random = &mut app.random;
    *out += &one_line(format!(
        r#"{{"volumes":[{{"name":"config","configMap":{{"name":"{owner}-config","defaultMode":420}}}},
            {{"name":"kube-api-access-{suffix}",
            "projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,
            "path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt",
            "path":"ca.crt"}}]}}}},{{"downwardAPI":{{"items":[{{"path":"namespace",
            "fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}}]}}}}],
            "defaultMode":420}}}}],"containers":["#,
    ));
    for (at, name) in ["server", "proxy"].iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        *out += &one_line(format!(
            r#"{comma}{{"name":"{name}","image":"registry.example.com/{owner}/{name}:2.14.{tag}",
                "args":["--config=/etc/{owner}/config.yaml","--listen=:8080"],"ports":[{{"name":"http",
                "containerPort":8080,"protocol":"TCP"}},{{"name":"metrics","containerPort":9090,
                "protocol":"TCP"}}],"env":[{{"name":"POD_NAME",
                "valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.name"}}}}}},
                {{"name":"POD_NAMESPACE","valueFrom":{{"fieldRef":{{"apiVersion":"v1",
                "fieldPath":"metadata.namespace"}}}}}},{{"name":"LOG_LEVEL","value":"info"}},
                {{"name":"UPSTREAM","value":"http://{upstream}.svc.cluster.local:8080"}},
                {{"name":"DATABASE_URL","valueFrom":{{"secretKeyRef":{{"name":"{owner}-db",
                "key":"url"}}}}}}],"resources":{{"limits":{{"memory":"{memory}Mi"}},
                "requests":{{"cpu":"{cpu}m","memory":"{memory}Mi"}}}},"volumeMounts":[{{"name":"config",
                "mountPath":"/etc/{owner}"}},{{"name":"kube-api-access-{suffix}","readOnly":true,
                "mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],
                "livenessProbe":{{"httpGet":{{"path":"/healthz","port":"http","scheme":"HTTP"}},
                "initialDelaySeconds":5,"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,
                "failureThreshold":3}},"readinessProbe":{{"httpGet":{{"path":"/readyz","port":"http",
                "scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":5,"successThreshold":1,
                "failureThreshold":3}},"terminationMessagePath":"/dev/termination-log",
                "terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent",
                "securityContext":{{"capabilities":{{"drop":["ALL"]}},"runAsNonRoot":true,
                "readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false}}}}"#,
            tag = random.u8(0..20),
            upstream = WORDS[random.usize(..WORDS.len())],
            memory = 64 << random.u8(0..5),
            cpu = 50 * random.u16(1..20),
        ));
    }
    *out += &one_line(format!(
        r#"],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",
            "serviceAccountName":"{owner}","serviceAccount":"{owner}","nodeName":"{node}",
            "securityContext":{{"fsGroup":2000}},"schedulerName":"default-scheduler",
            "tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists",
            "effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable",
            "operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,
            "enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}}"#,
    ));
}

fn status(out: &mut String, app: &mut App, random: &mut Rng, address: &str, started: &str, version: u64) {
    let host = format!("10.0.{}.{}", random.u8(0..32), random.u8(0..8));
    *out += &format!(r#"{{"phase":"Running","observedGeneration":{},"conditions":["#, version % 9 + 1);
    for (at, kind) in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .enumerate()
    {
        let comma = if at == 0 { "" } else { "," };
        *out += &one_line(format!(
            r#"{comma}{{"type":"{kind}","status":"True","lastProbeTime":null,
                "lastTransitionTime":"{started}"}}"#,
        ));
    }
    *out += &one_line(format!(
        r#"],"hostIP":"{host}","hostIPs":[{{"ip":"{host}"}}],"podIP":"{address}",
            "podIPs":[{{"ip":"{address}"}}],"startTime":"{started}","containerStatuses":["#,
    ));
    for (at, name) in ["server", "proxy"].iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        *out += &one_line(format!(
            r#"{comma}{{"name":"{name}","state":{{"running":{{"startedAt":"{started}"}}}},
                "lastState":{{}},"ready":true,"restartCount":{restarts},
                "image":"registry.example.com/{owner}/{name}:2.14.0",
                "imageID":"registry.example.com/{owner}/{name}@sha256:{image}",
                "containerID":"containerd://{id}","started":true}}"#,
            restarts = version % 3,
            owner = app.name,
            image = hex(&mut app.random, 64),
            id = hex(random, 64),
        ));
    }
    out.push_str(r#"],"qosClass":"Burstable"}"#);
}

/// Removes the line breaks, and the indentation after them, that keep the texts above readable.
fn one_line(mut text: String) -> String {
    let mut in_indentation = false;
    text.retain(|character| {
        in_indentation = character == '\n' || in_indentation && character == ' ';
        !in_indentation
    });
    text
}

fn time(random: &mut Rng, minute: u8) -> String {
    format!("2026-03-{:02}T{:02}:{:02}:{:02}Z", random.u8(1..29), random.u8(0..24), minute, random.u8(0..60))
}

fn letters(random: &mut Rng, count: usize) -> String {
    // The alphabet of Kubernetes' generated names.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..count).map(|_| char::from(ALPHABET[random.usize(..ALPHABET.len())])).collect()
}

fn hex(random: &mut Rng, count: usize) -> String {
    (0..count).map(|_| char::from(b"0123456789abcdef"[random.usize(..16)])).collect()
}

fn uid(random: &mut Rng) -> String {
    format!(
        "{}-{}-4{}-a{}-{}",
        hex(random, 8),
        hex(random, 4),
        hex(random, 3),
        hex(random, 3),
        hex(random, 12)
    )
}

const WORDS: [&str; 32] = [
    "checkout", "billing", "search", "catalog", "ledger", "session", "router", "mailer", "report", "invoice",
    "profile", "basket", "pricing", "stock", "carrier", "payment", "review", "gateway", "worker", "ingest",
    "export", "metrics", "audit", "token", "identity", "account", "media", "resize", "notify", "schedule",
    "archive", "replica",
];
