//! A private cluster: the real programs of a control plane, on loopback, removed without a trace at its end.
//!
//! [`DevCluster::start`] finds or builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
//! kwok, starts them in a temporary folder and returns once they work together; `mainstay dev`, the examples
//! and the tests use it. There are no kubelets: kwok simulates them, so Pods become ready without any
//! container.
//!
//! ```no_run
//! use mainstay_devcluster::{DevCluster, Options};
//!
//! # async fn example() -> Result<(), mainstay_devcluster::StartError> {
//! let cluster = DevCluster::start(Options::default()).await?;
//! println!("export KUBECONFIG={}", cluster.kubeconfig_path().display());
//! cluster.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod api;
pub mod kinds;
pub mod server;
pub mod store;
pub mod workloads;

mod embedded;
mod real;

pub use embedded::{Embedded, EmbeddedError, EmbeddedOptions};
pub use real::{ApiServer, CertificateError, DevCluster, Options, ProgramsError, Progress, StartError};
