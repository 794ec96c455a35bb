//! The HTTP layer of the embedded server: URL paths, media types, discovery, users and injected faults.
//!
//! [`ApiService`] is a [`tower::Service`]. kube's `Client::new` accepts it directly, without a socket; the
//! feature `http` serves it on loopback with TLS.

mod accept;
mod answer;
mod audit;
mod auth;
mod content;
mod discovery;
mod faults;
#[cfg(any(test, fuzzing))]
#[path = "server/tests/fuzz.rs"]
pub mod fuzz;
mod health;
#[cfg(feature = "http")]
mod identity;
mod impersonation;
#[cfg(feature = "http")]
mod listen;
mod openapi;
mod path;
mod represent;
mod route;
mod service;
mod stream;
mod table;
mod yaml;

pub use answer::AnswerBody;
pub use audit::Audit;
pub use faults::{Fault, FaultRule, Faults};
#[cfg(feature = "http")]
pub use identity::IdentityError;
pub use service::ApiService;

#[cfg(feature = "http")]
pub(crate) use {
    identity::{Identity, Saved},
    listen::Listener,
};

#[cfg(test)]
mod tests;
