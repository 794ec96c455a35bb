//! The reconciler with an API server in memory.

use mainstay::key::KindId;
use mainstay::metrics::Registry;
use mainstay::reconcile::Retry;
use mainstay::testing::{TestContext, reconcile_once};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::deployment::{DECODED_SHARE, FIELD_MANAGER};
use crate::status::StatusLocks;

const STATUS: &str = "apply waitdeployments.apps.mainstay.dev/status shop/web";
const DEPLOYMENT: &str = "apply deployments.apps shop/web";

fn web() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

/// Makes the reconciler of one WaitDeployment with these fields of its spec; no probe ever has a result.
fn gate(spec: &Value) -> (WaitDeploymentReconciler, Store<WaitDeployment>, TestContext) {
    gate_beside(spec, None)
}

/// Makes the reconciler as [`gate`] does, with an existing Deployment in the cache.
fn gate_beside(
    spec: &Value,
    deployment: Option<Value>,
) -> (WaitDeploymentReconciler, Store<WaitDeployment>, TestContext) {
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    });
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    let objects = Store::from_values(&KindId::of::<WaitDeployment>(), [object]);
    let deployments = Store::from_values(&KindId::of::<Deployment>(), deployment);
    let cx = Context::for_test().with_store(&objects).with_store(&deployments);
    let gate = WaitDeploymentReconciler::new(
        &objects,
        &deployments,
        &Applier::new(KindId::of::<Deployment>(), FIELD_MANAGER),
        StatusWriter::new(
            &objects,
            &Applier::new(KindId::of::<WaitDeployment>(), FIELD_MANAGER),
            &StatusLocks::default(),
        ),
        Dependencies::for_test(),
        Vec::new(),
        GateMetrics::register(&Registry::new(), watch::Sender::new(true).subscribe()),
    );
    (gate, objects, cx)
}

fn closed() -> Value {
    json!({"waitFor": {"dependencies": [{"name": "db", "tcpSocket": {"host": "192.0.2.1", "port": 1}}]}})
}

#[tokio::test]
async fn a_deployment_is_written_once_per_term() {
    let (gate, _, cx) = gate(&json!({}));
    let cx = cx.with_term(1);
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.action(), Action::Done);
    assert_eq!(run.wrote(), [DEPLOYMENT, STATUS]);
    let reasons: Vec<_> = run.events.iter().map(|event| &*event.reason).collect();
    assert_eq!(reasons, ["DeploymentCreated"]);
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [""; 0], "nothing has changed");
    // Another replica has led meanwhile, and may have written.
    let cx = cx.with_term(2);
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.wrote(), [DEPLOYMENT]);
    assert!(run.events.is_empty(), "the write changed nothing: {:?}", run.events);
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [""; 0]);
}

#[tokio::test]
async fn a_closed_gate_runs_one_dry_run() {
    let (gate, objects, cx) = gate(&closed());
    let cx = cx.with_term(1);
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.wrote(), ["apply deployments.apps shop/web (dry run)", STATUS]);
    let shown = objects.get(&web()).unwrap().unwrap();
    assert_eq!(shown.condition("TemplateAccepted").unwrap().status, "True");
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [""; 0], "nothing has changed");
    let cx = cx.with_term(2);
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [""; 0], "the status shows the result");
}

#[tokio::test]
async fn an_invalid_template_is_reported_while_the_gate_is_closed_and_sent_once() {
    let (gate, objects, cx) = gate(&closed());
    cx.api().refuse_next(422, "Invalid", "no container");
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.action(), Action::Done, "the dependency may still become ready");
    let shown = objects.get(&web()).unwrap().unwrap();
    let accepted = shown.condition("TemplateAccepted").unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_deref()), ("False", Some("Invalid")));
    assert_eq!(shown.condition("Ready").unwrap().message.as_deref(), Some("no container"));
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_refused_by_a_quota_is_retried_slowly() {
    let (gate, objects, cx) = gate(&closed());
    cx.api().refuse_next(403, "Forbidden", "exceeded quota: few");
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.action(), Action::RequeueAfter(memory::DRY_RUN_RETRY));
    let shown = objects.get(&web()).unwrap().unwrap();
    assert_eq!(shown.condition("TemplateAccepted").unwrap().reason.as_deref(), Some("QuotaExceeded"));
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [""; 0], "not before the retry is due");
    tokio::time::advance(memory::DRY_RUN_RETRY).await;
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.wrote(), ["apply deployments.apps shop/web (dry run)", STATUS]);
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_admission_has_its_own_reason_and_is_retried_slowly() {
    const POLICY: &str =
        "ValidatingAdmissionPolicy 'freeze' with binding 'freeze' denied request: change freeze";
    const WEBHOOK: &str = "admission webhook \"a.example.com\" denied the request: not signed";
    for (code, reason, message) in
        [(422, "Invalid", POLICY), (403, "Forbidden", POLICY), (400, "BadRequest", WEBHOOK)]
    {
        let (gate, objects, cx) = gate(&json!({}));
        let reason_of = |type_: &str| {
            let shown = objects.get(&web()).unwrap().unwrap();
            shown.condition(type_).unwrap().reason.clone().unwrap()
        };
        cx.api().refuse_next(code, reason, message);
        let run = reconcile_once(&gate, &web(), &cx).await;
        assert_eq!(run.outcome.unwrap_err().retry(), Retry::After(write::FORBIDDEN_RETRY), "{code}");
        for type_ in ["Ready", "Stalled", "TemplateAccepted"] {
            assert_eq!(reason_of(type_), "AdmissionDenied", "{code} {type_}");
        }
        assert_eq!(run.events[0].reason, "AdmissionDenied");
        // The policy is gone before the retry.
        let run = reconcile_once(&gate, &web(), &cx).await;
        assert_eq!(run.wrote()[0], DEPLOYMENT, "{code}");
        assert_eq!(reason_of("TemplateAccepted"), "Accepted");
    }
}

#[tokio::test]
async fn a_denied_comparison_does_not_prove_another_template() {
    let there = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "d1"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
    });
    let spec = json!({"waitFor": {"dependencies": [], "adoption": "IfIdentical"}});
    let (gate, objects, cx) = gate_beside(&spec, Some(there));
    cx.api().refuse_next(422, "Invalid", "denied request: change freeze");
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.outcome.unwrap_err().retry(), Retry::After(write::FORBIDDEN_RETRY));
    let shown = objects.get(&web()).unwrap().unwrap();
    assert_eq!(shown.condition("Ready").unwrap().reason.as_deref(), Some("AdmissionDenied"));
    // Elsewhere the run goes on without the comparison.
    let found = gate.deployments.entry(&web()).unwrap().unwrap();
    let run = Run { reconciler: &gate, request: &web(), object: &shown, cx: &cx };
    let desired = run.desired();
    cx.api().refuse_next(403, "Forbidden", "exceeded quota: few");
    assert!(!run.has_same_template(&found, &desired).await.unwrap());
    cx.api().refuse_next(500, "InternalError", "etcd is away");
    run.has_same_template(&found, &desired).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_denied_dry_run_is_retried_slowly() {
    let (gate, objects, cx) = gate(&closed());
    cx.api().refuse_next(
        400,
        "BadRequest",
        "admission webhook \"a.example.com\" denied the request: not signed",
    );
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.action(), Action::RequeueAfter(memory::DRY_RUN_RETRY));
    let shown = objects.get(&web()).unwrap().unwrap();
    assert_eq!(shown.condition("TemplateAccepted").unwrap().reason.as_deref(), Some("AdmissionDenied"));
    tokio::time::advance(memory::DRY_RUN_RETRY).await;
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.wrote(), ["apply deployments.apps shop/web (dry run)", STATUS]);
}

#[tokio::test]
async fn a_failed_dry_run_is_reported_and_retried_with_backoff() {
    let (gate, objects, cx) = gate(&closed());
    cx.api().refuse_next(500, "InternalError", "etcd is away");
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert!(run.outcome.unwrap_err().to_string().contains("etcd is away"));
    let shown = objects.get(&web()).unwrap().unwrap();
    assert_eq!(shown.condition("TemplateAccepted").unwrap().status, "Unknown");
    assert_eq!(shown.condition("Reconciling").unwrap().status, "True", "the status is written all the same");
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_gets_an_event_and_is_left_alone() {
    let (gate, _, cx) = gate(&json!({"replicas": "many"}));
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.wrote(), [""; 0]);
    let error = run.outcome.unwrap_err();
    assert_eq!(error.retry(), Retry::Never, "no retry: {error}");
    assert_eq!(run.events[0].reason, "Unreadable");
    assert!(run.events[0].note.contains("invalid type: string \"many\""), "{}", run.events[0].note);
}

#[tokio::test]
async fn a_deadline_requeues_without_any_event() {
    let mut spec = closed();
    spec["waitFor"]["deadlineSeconds"] = 60.into();
    let (gate, _, cx) = gate(&spec);
    let run = reconcile_once(&gate, &web(), &cx).await;
    let Action::RequeueAfter(wait) = run.action() else { panic!("not requeued") };
    assert!(wait.as_secs() >= 55 && wait.as_secs() <= 60, "{wait:?}");
}

#[test]
fn the_start_of_a_term_counts_as_an_outage() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut last = LastOutage::default();
    assert_eq!(last.update(1, false, at(10)), Some(at(10)), "no target has answered yet");
    assert_eq!(last.update(1, false, at(20)), Some(at(10)));
    assert_eq!(last.update(1, true, at(30)), Some(at(30)), "outage");
    assert_eq!(last.update(1, false, at(40)), Some(at(30)));
    assert_eq!(last.update(2, false, at(50)), Some(at(50)), "the next term");
}

/// Number of bytes of text that make an object too large for the gate.
const LARGE: usize = 2_700_000;

#[tokio::test]
async fn a_too_large_object_is_reported_once_and_reconciled_again_when_it_shrinks() {
    let container = json!({"name": "web", "image": "web:1", "args": ["x".repeat(LARGE)]});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let (mut gate, objects, cx) = gate(&json!({"template": template}));
    gate.objects = objects.limited_to_share(DECODED_SHARE);
    let cx = cx.with_term(1);
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!((run.action(), run.wrote()), (Action::Done, vec![STATUS.to_owned()]));
    let reasons: Vec<_> = run.events.iter().map(|event| &*event.reason).collect();
    assert_eq!(reasons, ["Unreadable"]);
    let shown = objects.get(&web()).unwrap().unwrap();
    for (type_, status) in [("Ready", "False"), ("Reconciling", "False"), ("Stalled", "True")] {
        let condition = shown.condition(type_).unwrap();
        assert_eq!((&*condition.status, condition.reason.as_deref()), (status, Some("TooLarge")), "{type_}");
        let message = condition.message.as_deref().unwrap();
        assert!(message.contains(" has 270") && message.contains("more than 2621440"), "{message}");
    }
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [""; 0], "nothing has changed");
    // Another replica may have led meanwhile.
    let cx = cx.with_term(2);
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [STATUS]);
    gate.objects = objects.clone();
    assert_eq!(reconcile_once(&gate, &web(), &cx).await.wrote(), [DEPLOYMENT, STATUS]);
    let shown = objects.get(&web()).unwrap().unwrap();
    assert_ne!(shown.condition("Ready").unwrap().reason.as_deref(), Some("TooLarge"));
}

#[tokio::test]
async fn a_too_large_deployment_is_left_alone_and_reported() {
    let live = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "d1"},
        "spec": {"selector": {}, "template": {"x": "x".repeat(LARGE)}},
    });
    let (mut gate, objects, cx) = gate_beside(&json!({}), Some(live));
    gate.deployments = gate.deployments.limited_to_share(DECODED_SHARE);
    let run = reconcile_once(&gate, &web(), &cx).await;
    assert_eq!(run.wrote(), [STATUS]);
    let shown = objects.get(&web()).unwrap().unwrap();
    let ready = shown.condition("Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("TooLarge"));
    assert!(ready.message.as_deref().unwrap().starts_with("Deployment.apps shop/web has 270"), "{ready:?}");
}
