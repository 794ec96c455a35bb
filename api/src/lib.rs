//! The custom resources of mainstay: types and validation, without any client.
//!
//! One group and version, `apps.mainstay.dev/v1alpha1`, with one kind: [`WaitDeployment`], a Deployment that
//! starts only once its dependencies hold. The CRD ([`crd::crd`]) contains all rules that the API server can
//! check; functions here check the others and return errors fit for a status condition.

pub mod wait_deployment;

pub mod wait_probe;

pub mod wait_for;

pub mod json_path;

pub mod plan;

#[cfg(any(test, fuzzing))]
#[path = "tests/fuzz.rs"]
pub mod fuzz;

pub mod address;

pub mod status;

pub mod crd;
mod refusal;

pub use address::{Address, Host};
pub use plan::{Check, InvalidSpec, Plan, PlannedDependency, ProbeCheck};
pub use status::{Condition, DependencyStatus, DeploymentReference, WaitDeploymentStatus};
pub use wait_deployment::{GROUP, KIND, PLURAL, VERSION, WaitDeployment, WaitDeploymentSpec};
pub use wait_for::{Dependency, WaitFor};
pub use wait_probe::{ProbeTiming, Timeout, WaitProbe};
