//! The observation of a `service` check, from the endpoints of its Service.

use mainstay_api::plan::ServiceCheck;
use mainstay_api::{Address, Host, ProbeCheck};

use super::observation::{Observation, State};
use crate::dependency::service::Endpoints;
use crate::reasons::probe;

/// Evaluates a `service` check by the endpoints that the cache has for its Service. Fails if these are not
/// enough, as for an `ExternalName` Service: then the returned probe decides, if the policy admits it.
pub(super) fn evaluate(
    namespace: &str,
    check: &ServiceCheck,
    found: Endpoints,
) -> Result<Observation, ProbeCheck> {
    let ServiceCheck { name, min_ready, port } = check;
    let service = format!("Service {namespace}/{name}");
    let of_port = port.as_ref().map(|port| format!(" for port {port}")).unwrap_or_default();
    let (reason, message) = match found {
        // The message leaves the count out: with it each new Pod would need a status update.
        Endpoints::Ready(count) if count >= *min_ready => {
            let message = format!("{service} has {}{of_port}", at_least(*min_ready));
            return Ok(Observation::new(State::Ready, probe::ENDPOINTS_READY, message));
        }
        Endpoints::Ready(0) => (probe::NO_ENDPOINTS, format!("{service} has no ready endpoint{of_port}")),
        Endpoints::Ready(_) => {
            let expected = at_least(*min_ready);
            (probe::TOO_FEW_ENDPOINTS, format!("{service} does not have {expected}{of_port} yet"))
        }
        Endpoints::External(_) if *min_ready > 1 => (
            probe::TOO_FEW_ENDPOINTS,
            format!("{service} is an ExternalName, which counts as one endpoint; expected {min_ready}"),
        ),
        Endpoints::External(Some(port)) if port > 0 => {
            return Err(ProbeCheck::Tcp(Address { host: Host::Name(name.to_ascii_lowercase()), port }));
        }
        Endpoints::External(_) => {
            (probe::PORT_NOT_FOUND, format!("{service} is an ExternalName; give the port as a number"))
        }
        Endpoints::NoPort => {
            let port = port.as_ref().map(ToString::to_string).unwrap_or_default();
            (probe::PORT_NOT_FOUND, format!("{service} has no port {port}"))
        }
        Endpoints::NotFound => (probe::SERVICE_NOT_FOUND, format!("{service} does not exist")),
        Endpoints::Unknown(cause) => {
            let message = format!("Services cannot be read: {cause}");
            return Ok(Observation::blind(probe::SERVICES_UNKNOWN, message));
        }
    };
    Ok(Observation::not_ready(reason, message))
}

fn at_least(count: usize) -> String {
    if count == 1 { "a ready endpoint".to_owned() } else { format!("{count} ready endpoints") }
}

#[cfg(test)]
mod tests;
