//! Kubernetes clusters on this machine for development and tests: an API server inside the process, or the
//! real programs of a control plane.
//!
//! # The embedded server
//!
//! [`Embedded`] is an API server in this process that keeps its objects in memory and needs no other
//! programs. kube clients call it directly, other clients over TLS on loopback. It serves the built-in kinds
//! and custom resources with lists, watches, patches and server-side apply; [`Embedded::faults`] injects
//! errors. It has no RBAC, no Tables, no schemas in `OpenAPI` and no webhooks yet, and runs only the
//! controllers that [`EmbeddedOptions::controllers`] names.
//! `mainstay dev` uses it. It is experimental until [`DevCluster`] unites both halves.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, ListParams, ObjectMeta, PostParams};
//! use mainstay_devcluster::Embedded;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Embedded::start().await?;
//! let config_maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
//!
//! let metadata = ObjectMeta { name: Some("settings".to_owned()), ..ObjectMeta::default() };
//! let settings = ConfigMap { metadata, ..ConfigMap::default() };
//! config_maps.create(&PostParams::default(), &settings).await?;
//!
//! let list = config_maps.list(&ListParams::default()).await?;
//! assert!(list.items.iter().any(|item| item.metadata.name == settings.metadata.name));
//! cluster.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The real programs
//!
//! [`DevCluster`] is a private cluster of the real programs on loopback, in a temporary folder that is
//! removed at its end. [`DevCluster::start`] finds or builds etcd, kube-apiserver, kube-controller-manager,
//! kube-scheduler and kwok, starts them and returns once they work together; `mainstay dev --server real`,
//! the examples and the tests use it. There are no kubelets: kwok simulates them, so Pods become ready
//! without any container.
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
//!
//! # Features
//!
//! `http` adds the listener and the real programs, `workloads` the controllers. Both are on by default;
//! neither is needed for clients in this process.

pub mod api;
pub mod kinds;
pub mod server;
pub mod store;
#[cfg(feature = "workloads")]
pub mod workloads;

#[cfg(feature = "http")]
mod authority;
mod embedded;
#[cfg(feature = "http")]
mod real;

pub use embedded::{Embedded, EmbeddedError, EmbeddedOptions};
#[cfg(feature = "http")]
pub use real::{ApiServer, CertificateError, DevCluster, Options, ProgramsError, Progress, StartError};
