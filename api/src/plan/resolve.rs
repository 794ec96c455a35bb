//! Makes a plan from the fields of a manifest.

use std::time::Duration;

use serde_json::{Value, json};

use super::checks::planned;
use super::{Check, Gates, InvalidSpec, Plan, PlannedDependency, ProbeCheck};
use crate::refusal::At;
use crate::wait_deployment::{WaitDeployment, WaitDeploymentSpec};
use crate::wait_for::{Adoption, Gate, MAX_DEPENDENCIES, OnDeadline, OnLoss, WaitFor};
use crate::wait_probe::{DEFAULT_DEPENDENCY, WaitProbe};

/// Longest valid `deadlineSeconds` and `recoveryDeadlineSeconds`, in seconds: a year.
const MAX_DEADLINE: i32 = 31_536_000;
/// Longest valid `lossGraceSeconds`, in seconds: a day.
const MAX_GRACE: i32 = 86_400;

// === impl WaitDeployment ===

impl WaitDeployment {
    /// Returns the checked dependencies and policies of this object, from `waitProbe` or `spec.waitFor`; a
    /// plan without dependencies if it has neither.
    ///
    /// # Errors
    /// Returns the first invalid field.
    pub fn plan(&self) -> Result<Plan, InvalidSpec> {
        match (&self.wait_probe, self.spec.wait_for()?) {
            (None, None) => Ok(Plan::default()),
            (Some(probe), None) => plan_of_probe(probe),
            (None, Some(wait_for)) => plan_of_wait_for(&self.spec, &wait_for),
            (Some(probe), Some(_)) => {
                let address = probe.address.as_deref().unwrap_or_default();
                At::new("waitProbe").refuse(address, "spec.waitFor alone, with tcpSocket for this address")
            }
        }
    }
}

// === impl WaitDeploymentSpec ===

impl WaitDeploymentSpec {
    /// Returns the decoded fields of `spec.waitFor`; `None` if it is absent.
    ///
    /// # Errors
    /// Returns the first field that cannot be decoded. The CRD refuses such fields, so a newer version wrote
    /// it.
    pub fn wait_for(&self) -> Result<Option<WaitFor>, InvalidSpec> {
        let Some(value) = self.wait_for.as_ref().filter(|value| !value.is_null()) else { return Ok(None) };
        serde_path_to_error::deserialize(value).map(Some).map_err(|error| {
            let path = error.path();
            let found = path.iter().try_fold(value, |value, segment| match segment {
                serde_path_to_error::Segment::Seq { index } => value.get(index),
                serde_path_to_error::Segment::Map { key } => value.get(key),
                _ => None,
            });
            let at = match path.iter().next() {
                None => At::new("spec.waitFor"),
                Some(_) => At::new("spec.waitFor").field(&path.to_string()),
            };
            let expected = format!("a value that this version understands; {}", error.inner());
            at.refusal(found.cloned().unwrap_or(Value::Null), &expected)
        })
    }

    /// Returns the changes of the Deployment to hold back, even if other fields of `waitFor` are invalid: an
    /// invalid field must not open the gate. A list with values unknown to this version holds back at least
    /// the creation, and a value that is not a list holds back all changes.
    pub fn gates(&self) -> Gates {
        let Some(given) = self.field("gates") else { return Gates::default() };
        let Some(given) = given.as_array() else {
            return Gates { create: true, update: true, scale_from_zero: true };
        };
        let has = |gate: Gate| given.contains(&json!(gate));
        let others = [json!(Gate::Update), json!(Gate::ScaleFromZero)];
        Gates {
            create: given.is_empty() || given.iter().any(|gate| !others.contains(gate)),
            update: has(Gate::Update),
            scale_from_zero: has(Gate::ScaleFromZero),
        }
    }

    /// Returns the policy for an existing Deployment of the same name, even if other fields of `waitFor` are
    /// invalid. A policy unknown to this version counts as [`Adoption::Never`], the safest one.
    pub fn adoption(&self) -> Adoption {
        let Some(given) = self.field("adoption") else { return Adoption::default() };
        serde_json::from_value(given.clone()).unwrap_or(Adoption::Never)
    }

    /// Returns whether the loss of a dependency scales the Deployment to zero, even if other fields of
    /// `waitFor` are invalid.
    pub fn scales_on_loss(&self) -> bool {
        self.field("onLoss") == Some(&json!(OnLoss::ScaleToZero))
    }

    fn field(&self, name: &str) -> Option<&Value> {
        self.wait_for.as_ref()?.get(name).filter(|value| !value.is_null())
    }
}

// === private ===

fn plan_of_probe(probe: &WaitProbe) -> Result<Plan, InvalidSpec> {
    let (address, timing) = probe.resolve()?;
    let dependency = PlannedDependency {
        name: DEFAULT_DEPENDENCY.to_owned(),
        check: Check::Probe(ProbeCheck::Tcp(address)),
        initial_delay: Duration::ZERO,
        period: timing.period,
        // An attempt never takes longer than the period. With the minimum here, equal probes compare equal
        // and are shared.
        timeout: timing.timeout.min(timing.period),
        success_threshold: 1,
        failure_threshold: 1,
        optional: false,
    };
    Ok(Plan { dependencies: vec![dependency], on_loss: OnLoss::Ignore, ..Plan::default() })
}

fn plan_of_wait_for(spec: &WaitDeploymentSpec, wait_for: &WaitFor) -> Result<Plan, InvalidSpec> {
    let at = At::new("spec.waitFor");
    let at_dependencies = at.field("dependencies");
    let count = wait_for.dependencies.len();
    let is_some = (1..=MAX_DEPENDENCIES).contains(&count);
    at_dependencies.needs(is_some, format!("{count} entries"), "1 to 16 entries")?;
    let mut dependencies: Vec<PlannedDependency> = Vec::with_capacity(count);
    for dependency in &wait_for.dependencies {
        let is_new = dependencies.iter().all(|earlier| earlier.name != dependency.name);
        at_dependencies.needs(is_new, dependency.name.as_str(), "each name once")?;
        dependencies.push(planned(&at_dependencies.item(&dependency.name), dependency)?);
    }
    check_combinations(&at, spec, wait_for)?;
    let seconds = |field: &str, value: Option<i32>, range| {
        value.map(|value| at.field(field).seconds(value, range)).transpose()
    };
    let loss_grace = seconds("lossGraceSeconds", wait_for.loss_grace_seconds, 0..=MAX_GRACE)?;
    Ok(Plan {
        match_policy: wait_for.match_policy,
        deadline: seconds("deadlineSeconds", wait_for.deadline_seconds, 1..=MAX_DEADLINE)?,
        on_deadline: wait_for.on_deadline,
        on_loss: wait_for.on_loss,
        loss_grace: loss_grace.unwrap_or_else(|| default_grace(&dependencies)),
        dependencies,
        recovery_deadline: seconds(
            "recoveryDeadlineSeconds",
            wait_for.recovery_deadline_seconds,
            1..=MAX_DEADLINE,
        )?,
    })
}

/// Returns the default of `lossGraceSeconds` for these dependencies. A probe fails several times before its
/// dependency is lost; the state of a watched dependency changes only once, so it gets the time that those
/// failures would take.
fn default_grace(dependencies: &[PlannedDependency]) -> Duration {
    let watched = dependencies.iter().filter(|dependency| !matches!(dependency.check, Check::Probe(_)));
    watched.map(|dependency| dependency.period * dependency.failure_threshold).max().unwrap_or_default()
}

/// Checks the rules between several fields of the spec and of `waitFor`, which the CRD has too.
fn check_combinations(at: &At, spec: &WaitDeploymentSpec, wait_for: &WaitFor) -> Result<(), InvalidSpec> {
    let (at_gates, at_loss) = (at.field("gates"), at.field("onLoss"));
    let no_gates = wait_for.gates.as_ref().is_some_and(Vec::is_empty);
    at_gates.needs(!no_gates, json!([]), "at least one of Create, Update and ScaleFromZero")?;
    let gates = wait_for.gates.as_deref().unwrap_or_default();
    at_gates.needs(
        spec.replicas.is_some() || !gates.contains(&Gate::ScaleFromZero),
        json!(gates),
        "spec.replicas beside ScaleFromZero: only replicas that the object sets can be held back",
    )?;
    if wait_for.on_loss == OnLoss::ScaleToZero {
        let has_grace = wait_for.loss_grace_seconds.is_some();
        at_loss.needs(has_grace, "ScaleToZero", "lossGraceSeconds beside it")?;
        let expected = "spec.replicas beside it: the number of replicas to restore after a loss";
        at_loss.needs(spec.replicas.is_some(), "ScaleToZero", expected)?;
    }
    let loss_fields = [
        ("lossGraceSeconds", wait_for.loss_grace_seconds),
        ("recoveryDeadlineSeconds", wait_for.recovery_deadline_seconds),
    ];
    for (field, value) in loss_fields {
        if let (OnLoss::Ignore, Some(value)) = (wait_for.on_loss, value) {
            return at.field(field).refuse(value, "no value beside onLoss: Ignore");
        }
    }
    let has_deadline = wait_for.on_deadline == OnDeadline::Fail || wait_for.deadline_seconds.is_some();
    at.field("onDeadline").needs(has_deadline, json!(wait_for.on_deadline), "deadlineSeconds beside it")
}
