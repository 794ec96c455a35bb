//! Kubernetes clusters on this machine for development and tests: an API server inside the process, or the
//! real programs of a control plane.
//!
//! [`DevCluster::start`] starts the embedded server with its controllers, within milliseconds and without any
//! program:
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, ListParams, ObjectMeta, PostParams};
//! use mainstay_devcluster::DevCluster;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = DevCluster::start().await?;
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
//! [`DevCluster::real`] finds or builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
//! kwok, starts them on loopback and returns once they work together. There are no kubelets: kwok simulates
//! them, so Pods become ready without any container.
//!
//! [`Embedded`] and [`ControlPlane`] are the two clusters behind it, with what only one of them has:
//! [`Embedded::faults`] injects errors, [`Embedded::advance`] lets time pass, [`ControlPlane::kill_etcd`]
//! kills a program. The embedded server serves the built-in kinds and custom resources with lists, watches,
//! patches and server-side apply, the tables of `kubectl get` and `OpenAPI`; users have the rights that Roles
//! and `ClusterRoles` give them, and webhooks of admission and conversion are called.
//!
//! # Features
//!
//! `http` adds the listener and the real programs, `workloads` the controllers, and both together
//! [`DevCluster`]. Both are on by default; neither is needed for clients in this process. `command` adds the
//! binary `mainstay-cluster`, whose commands other programs may have too.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod api;
pub mod kinds;
pub mod server;
pub mod store;
#[cfg(feature = "workloads")]
pub mod workloads;

#[cfg(feature = "command")]
pub mod command;

#[cfg(feature = "http")]
mod authority;
#[cfg(all(feature = "http", feature = "workloads"))]
mod dev_cluster;
mod embedded;
mod outgoing;
#[cfg(feature = "http")]
mod port;
#[cfg(feature = "http")]
mod real;

#[cfg(all(feature = "http", feature = "workloads"))]
pub use dev_cluster::{DevCluster, DevClusterError};
pub use embedded::{Embedded, EmbeddedError, EmbeddedOptions};
#[cfg(feature = "http")]
pub use real::{ApiServer, CertificateError, ControlPlane, Options, ProgramsError, Progress, StartError};
