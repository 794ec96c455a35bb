//! What the endpoints of a Service come to for who waits for them.

use mainstay_api::plan::ServiceCheck;
use mainstay_api::{Address, Host, ProbeCheck};

use super::observation::{Observation, State};
use crate::dependency::service::Endpoints;
use crate::reasons::probe;

/// How a Service can be looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The cache knows.
    Known(Observation),
    /// It is another name for a host outside: only a connection tells, if the policy admits one.
    Probe(ProbeCheck),
}

/// Judges by what is known of the endpoints of the Service of `check`.
pub(super) fn judge(namespace: &str, check: &ServiceCheck, found: Endpoints) -> Look {
    let ServiceCheck { name, min_ready, port } = check;
    let service = format!("Service {namespace}/{name}");
    let of_port = port.as_ref().map(|port| format!(" for port {port}")).unwrap_or_default();
    let known = |state, reason, message| Look::Known(Observation { state, reason, message });
    let not_ready = |reason, message| known(State::NotReady, reason, message);
    match found {
        // Without the number that is there: that would be another status to write for each Pod.
        Endpoints::Ready(count) if count >= *min_ready => {
            let message = format!("{service} has {}{of_port}", at_least(*min_ready));
            known(State::Ready, probe::ENDPOINTS_READY, message)
        }
        Endpoints::Ready(0) => {
            not_ready(probe::NO_ENDPOINTS, format!("{service} has no ready endpoint{of_port}"))
        }
        Endpoints::Ready(_) => not_ready(
            probe::TOO_FEW_ENDPOINTS,
            format!("{service} does not have {}{of_port} yet", at_least(*min_ready)),
        ),
        Endpoints::External(_) if *min_ready > 1 => not_ready(
            probe::TOO_FEW_ENDPOINTS,
            format!(
                "{service} is a name for a host outside, which counts as one endpoint; expected {min_ready}"
            ),
        ),
        Endpoints::External(Some(port)) if port > 0 => {
            Look::Probe(ProbeCheck::Tcp(Address { host: Host::Name(name.to_ascii_lowercase()), port }))
        }
        Endpoints::External(_) => not_ready(
            probe::PORT_NOT_FOUND,
            format!("{service} is a name for a host outside; say by its number which port to connect to"),
        ),
        Endpoints::NoPort => {
            let port = port.as_ref().map(ToString::to_string).unwrap_or_default();
            not_ready(probe::PORT_NOT_FOUND, format!("{service} has no port {port}"))
        }
        Endpoints::NotFound => not_ready(probe::SERVICE_NOT_FOUND, format!("{service} does not exist")),
        Endpoints::Unknown(cause) => {
            known(State::Blind, probe::SERVICES_UNKNOWN, format!("Services cannot be read: {cause}"))
        }
    }
}

fn at_least(count: usize) -> String {
    if count == 1 { "a ready endpoint".to_owned() } else { format!("{count} ready endpoints") }
}

#[cfg(test)]
mod tests;
