//! The real programs of a control plane, on loopback, removed without a trace at their end.

mod cluster;
mod command_line;

mod programs;
mod progress;

mod certificates;
mod folder;
mod https;
mod process;

pub use certificates::CertificateError;
pub use cluster::{ApiServer, ControlPlane, Options, StartError};
pub use programs::ProgramsError;
pub use progress::Progress;
