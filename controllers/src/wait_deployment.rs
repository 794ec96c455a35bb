//! The controller `wait-deployment`: lets a Deployment into the world once its prerequisite answers, and keeps it
//! as its WaitDeployment says.
//!
//! The decision is [`gate::decide`]'s, the words are [`gate::report`]'s; here is only what reads and writes. What waits
//! for a prerequisite is left to the probe engine, which has this controller look again when a result changes.
//!
//! # Invariants
//! 1. A Deployment that the cache does not show is only ever created, and one that it shows is only changed while it is
//!    the same one: a stale cache can cost a 409, never somebody else's Deployment.
//! 2. A status reaches only the version of the object that it was computed from.
//! 3. What the server refused as invalid is not sent again before the object, or the live Deployment, has changed.

mod written;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use mainstay::cache::Store;
use mainstay::client::{Applier, EventType, WriteError, refusal};
use mainstay::key::{Key, Request};
use mainstay::reconcile::{Action, Context, Outcome, ReconcileError, Reconciler};
use mainstay_api::{Condition, ProbeCheck, WaitDeployment};
use tracing::info;

use crate::deployment::{LiveDeployment, desired, guarded};
use crate::gate::{self, Applied, Decision, GateStatus};
use crate::probe::{Engine, Target, Want};
use crate::reasons::{self, condition};
use written::{Attempt, Memory};

/// Name in metrics, logs and configuration.
pub const NAME: &str = "wait-deployment";

/// How long a refusal by RBAC, quota or admission rests: somebody has to change something elsewhere, and no event
/// tells when they have.
const FORBIDDEN_RETRY: Duration = Duration::from_mins(1);

/// Reconciles WaitDeployments.
#[derive(Debug)]
pub struct WaitDeploymentReconciler {
    objects: Store<WaitDeployment>,
    deployments: Store<LiveDeployment>,
    write_deployment: Applier<LiveDeployment>,
    write_status: Applier<WaitDeployment>,
    engine: Engine,
    memory: Memory,
    clock: fn() -> Timestamp,
}

/// The write of a Deployment, and the error to end the run with after the status has told it.
struct Written {
    applied: Applied,
    error: Option<ReconcileError>,
}

// === impl WaitDeploymentReconciler ===

impl WaitDeploymentReconciler {
    /// Makes the reconciler. The appliers are in the name of
    /// [`FIELD_MANAGER`](crate::deployment::FIELD_MANAGER); `engine` must wake the controller when a
    /// result changes.
    pub fn new(
        objects: &Store<WaitDeployment>,
        deployments: &Store<Deployment>,
        write_deployment: &Applier<Deployment>,
        write_status: Applier<WaitDeployment>,
        engine: Engine,
    ) -> Self {
        Self {
            objects: objects.clone(),
            deployments: deployments.view(),
            write_deployment: write_deployment.view(),
            write_status,
            engine,
            memory: Memory::default(),
            clock: Timestamp::now,
        }
    }

    fn decide(&self, request: &Request, object: &WaitDeployment, live: Option<&LiveDeployment>) -> Decision {
        let decision = gate::decide(object, live, |address, timing| {
            let namespace = request.namespace().unwrap_or_default();
            let want = Want {
                target: Target::new(namespace, ProbeCheck::Tcp(address.clone())),
                period: timing.period,
                timeout: timing.timeout,
                initial_delay: Duration::ZERO,
                success_threshold: 1,
                failure_threshold: 1,
                held: false,
            };
            self.engine.watch(request, vec![want]);
            self.engine.verdicts(request).pop()?.result
        });
        if !decision.keeps_probing() {
            self.engine.forget(request);
        }
        decision
    }

    /// Brings the Deployment to the current spec, unless it is there already.
    async fn write(
        &self,
        request: &Request,
        object: &WaitDeployment,
        live: Option<Arc<LiveDeployment>>,
        cx: &Context,
    ) -> Result<Written, ReconcileError> {
        let attempt = Attempt::new(object, desired(object), live, cx.term());
        if let Some(known) = self.memory.recall(request, &attempt) {
            return Ok(Written::of(known, None));
        }
        match self.write_deployment.apply(cx, &guarded(&attempt.desired, attempt.live.as_deref())).await {
            Ok(now) => {
                self.engine.forget(request);
                self.memory.remember_written(request, &attempt, &now);
                info!(deployment = %request, generation = object.generation(), "wrote the Deployment");
                Ok(Written::of(Applied::Current(Box::new((*now).clone())), None))
            }
            Err(error) if is_rejection(&error) => {
                let message = words_of(&error);
                self.memory.remember_rejected(request, &attempt, &message);
                Ok(Written::of(Applied::Rejected(message), Some(ReconcileError::terminal(error))))
            }
            Err(error) if error.is_forbidden() => {
                let applied = Applied::Forbidden(words_of(&error));
                Ok(Written::of(applied, Some(ReconcileError::retry_after(error, FORBIDDEN_RETRY))))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn tell(
        &self,
        object: &WaitDeployment,
        status: &GateStatus,
        cx: &Context,
    ) -> Result<(), ReconcileError> {
        if status.is_shown_by(object) {
            return Ok(());
        }
        match self.write_status.apply_status(cx, &status.to_apply(object)).await {
            Ok(_) => {
                record_transition(object, status, cx);
                Ok(())
            }
            // Gone: there is nobody left to tell.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Reconciler for WaitDeploymentReconciler {
    async fn reconcile(&self, request: &Request, cx: &Context) -> Outcome {
        let object = match self.objects.get(request) {
            Ok(Some(object)) => object,
            other => {
                self.engine.forget(request);
                self.memory.forget(request);
                return Ok(other.map(|_| Action::Done)?);
            }
        };
        let live = self.deployments.get(request)?;
        let decision = self.decide(request, &object, live.as_deref());
        let written = match decision {
            Decision::Leave => return Ok(Action::Done),
            _ if gate::is_still_told(&object, &decision) => return Ok(Action::Done),
            Decision::Open(_) => self.write(request, &object, live, cx).await?,
            _ => Written::of(Applied::NotTried, None),
        };
        let status = gate::report(&object, &decision, &written.applied, &Time((self.clock)()));
        self.tell(&object, &status, cx).await?;
        written.error.map_or(Ok(Action::Done), Err)
    }
}

// === impl Written ===

impl Written {
    fn of(applied: Applied, error: Option<ReconcileError>) -> Self {
        Self { applied, error }
    }
}

// === private ===

/// Returns whether another try with the same body would be refused again: invalid (422), malformed (400), or with a
/// key or a type that the schema does not have, which server-side apply answers with a plain 500.
///
/// A 422 about the uid is none: another Deployment has taken the name, and the cache will show it soon.
fn is_rejection(error: &WriteError) -> bool {
    let details = refusal(error).and_then(|status| status.details.as_ref());
    let replaced =
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"));
    let no_schema = || words_of(error).contains("failed to create typed patch object");
    match error.code() {
        Some(422) => !replaced,
        Some(400) => true,
        Some(500) => no_schema(),
        _ => false,
    }
}

/// Returns the server's own words.
fn words_of(error: &WriteError) -> String {
    refusal(error).map_or_else(|| error.to_string(), |status| status.message.clone())
}

/// Tells the reader of the object's Events once, when the reason of Ready changes.
fn record_transition(object: &WaitDeployment, status: &GateStatus, cx: &Context) {
    let find = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
    let Some(ready) = find(condition::READY) else { return };
    let reason = ready.reason.as_deref().unwrap_or_default();
    // Unknown is the moment before the first result; the result itself is the news.
    let known = |condition: &&Condition| condition.status != "Unknown";
    let before = object.condition(condition::READY).filter(known).and_then(|before| before.reason.as_deref());
    if !known(&ready) || before == Some(reason) || reason == reasons::ROLLOUT_IN_PROGRESS {
        return;
    }
    let is_true =
        |condition: Option<&Condition>| condition.is_some_and(|condition| condition.status == "True");
    let kind = if is_true(find(condition::STALLED)) { EventType::Warning } else { EventType::Normal };
    let note = ready.message.as_deref().unwrap_or_default();
    cx.events().event(&reference(object), kind, reason, "Gate", note);
}

fn reference(object: &WaitDeployment) -> ObjectReference {
    ObjectReference {
        api_version: Some(WaitDeployment::api_version(&()).into_owned()),
        kind: Some(WaitDeployment::kind(&()).into_owned()),
        name: object.metadata.name.clone(),
        namespace: object.metadata.namespace.clone(),
        uid: object.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use mainstay::config::ManagerConfiguration;
    use mainstay::key::KindId;
    use mainstay::metrics::Registry;
    use mainstay::testing::{TestContext, reconcile_once};
    use serde_json::{Value, json};

    use super::*;
    use crate::deployment::FIELD_MANAGER;
    use crate::probe::{NoServices, NoSurroundings, Seams, TokioDial, TokioResolve};

    /// A gate that is open, for there is nothing to wait for, and whose Deployment is to be made.
    fn open_gate() -> (WaitDeploymentReconciler, TestContext) {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
        });
        let seams = Seams {
            dial: Arc::new(TokioDial),
            resolve: Arc::new(TokioResolve::default()),
            services: Arc::new(NoServices),
            surroundings: Arc::new(NoSurroundings),
            random: Arc::new(|| 0.5),
        };
        let policy = ManagerConfiguration::default().probe_policy;
        let (engine, _driver) = Engine::new(policy, seams, |_| {}, &Registry::new());
        let objects = Store::from_values(&KindId::of::<WaitDeployment>(), [object]);
        let deployments = Store::from_objects([]);
        let cx = Context::for_test().with_store(&objects).with_store(&deployments);
        let gate = WaitDeploymentReconciler::new(
            &objects,
            &deployments,
            &Applier::new(KindId::of::<Deployment>(), FIELD_MANAGER),
            Applier::new(KindId::of::<WaitDeployment>(), FIELD_MANAGER),
            engine,
        );
        (gate, cx)
    }

    #[tokio::test]
    async fn a_deployment_is_written_once_a_term() {
        let (gate, cx) = open_gate();
        let (web, cx) = (Request::namespaced("shop", "web"), cx.with_term(1));
        let status = "apply waitdeployments.apps.mainstay.dev/status shop/web";
        let run = reconcile_once(&gate, &web, &cx).await;
        assert_eq!(run.action(), Action::Done);
        assert_eq!(run.wrote(), ["apply deployments.apps shop/web", status]);
        assert_eq!(reconcile_once(&gate, &web, &cx).await.wrote(), [""; 0], "nothing has changed");
        // Another replica has led in between: what it wrote is not known.
        let cx = cx.with_term(2);
        assert_eq!(reconcile_once(&gate, &web, &cx).await.wrote(), ["apply deployments.apps shop/web"]);
        assert_eq!(reconcile_once(&gate, &web, &cx).await.wrote(), [""; 0]);
    }

    fn refused(status: Value) -> WriteError {
        let status: Box<Status> = serde_json::from_value(status).unwrap();
        WriteError::Refused { what: "apply".to_owned(), status, retry_after: None }
    }

    #[test]
    fn only_a_refusal_that_would_come_again_is_a_rejection() {
        let about =
            |field: &str| json!({"causes": [{"reason": "FieldValueInvalid", "message": "", "field": field}]});
        let typed = "failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): .spec.x: field not declared in schema";
        let cases = [
            (json!({"code": 422, "details": about("spec.template")}), true, "an invalid template"),
            (json!({"code": 422}), true, "invalid without details"),
            (
                json!({"code": 422, "details": about("metadata.uid")}),
                false,
                "another Deployment of that name",
            ),
            (json!({"code": 400}), true, "malformed"),
            (json!({"code": 500, "message": typed}), true, "a key no schema knows"),
            (json!({"code": 500, "message": "etcdserver: request timed out"}), false, "an outage"),
            (json!({"code": 409}), false, "a conflict"),
            (json!({"code": 403}), false, "forbidden is tried again, slowly"),
        ];
        for (status, expected, what) in cases {
            assert_eq!(is_rejection(&refused(status)), expected, "{what}");
        }
    }
}
