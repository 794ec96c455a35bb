//! Three operators that many people know, written with mainstay after their descriptions.
//!
//! Each module is a whole operator: the types of its custom resource, its reconciler, `setup`, which
//! registers the controller, and `program`, which makes a binary of it.
//!
//! | module | the original |
//! |---|---|
//! | [`foo`] | Kubernetes' sample-controller |
//! | [`memcached`] | operator-sdk's Memcached |
//! | [`cron_job`] | the `CronJob` of kubebuilder's tutorial |

pub mod cron_job;
pub mod foo;
pub mod memcached;

mod conditions;
