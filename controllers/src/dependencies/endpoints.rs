//! What the endpoints of a Service come to for who waits for them.

use mainstay_api::plan::ServiceCheck;
use mainstay_api::{Address, Host, ProbeCheck};

use super::{Observation, State};
use crate::reasons::probe;
use crate::services::Endpoints;

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
    let not_ready = |reason, message| Look::Known(Observation { state: State::NotReady, reason, message });
    match found {
        // Without the number that is there: that would be another status to write for each Pod.
        Endpoints::Ready(count) if count >= *min_ready => Look::Known(Observation {
            state: State::Ready,
            reason: probe::ENDPOINTS_READY,
            message: format!("{service} has {}{of_port}", at_least(*min_ready)),
        }),
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
        Endpoints::Unknown(cause) => Look::Known(Observation {
            state: State::Blind,
            reason: probe::SERVICES_UNKNOWN,
            message: format!("Services cannot be read: {cause}"),
        }),
    }
}

fn at_least(count: usize) -> String {
    if count == 1 { "a ready endpoint".to_owned() } else { format!("{count} ready endpoints") }
}

#[cfg(test)]
mod tests {
    use mainstay_api::plan::PortReference;

    use super::*;

    fn check(port: Option<PortReference>, min_ready: usize, found: Endpoints) -> String {
        match judge("shop", &ServiceCheck { name: "db".to_owned(), port, min_ready }, found) {
            Look::Known(Observation { state, reason, message }) => format!("{state:?} {reason}: {message}"),
            Look::Probe(check) => format!("{check:?}"),
        }
    }

    #[test]
    fn a_service_holds_once_enough_endpoints_are_ready() {
        let sql = || Some(PortReference::Name("sql".to_owned()));
        let text = "Ready EndpointsReady: Service shop/db has a ready endpoint";
        assert_eq!(check(None, 1, Endpoints::Ready(1)), text);
        assert_eq!(check(None, 1, Endpoints::Ready(7)), text, "no number that would change");
        let text = "Ready EndpointsReady: Service shop/db has 3 ready endpoints for port sql";
        assert_eq!(check(sql(), 3, Endpoints::Ready(3)), text);
        let text =
            "NotReady TooFewEndpoints: Service shop/db does not have 3 ready endpoints for port sql yet";
        assert_eq!(check(sql(), 3, Endpoints::Ready(2)), text);
        let text = "NotReady NoEndpoints: Service shop/db has no ready endpoint";
        assert_eq!(check(None, 3, Endpoints::Ready(0)), text);
    }

    #[test]
    fn what_has_no_endpoints_says_why() {
        let port = || Some(PortReference::Number(5432));
        let text = "NotReady PortNotFound: Service shop/db has no port 5432";
        assert_eq!(check(port(), 1, Endpoints::NoPort), text);
        let text = "NotReady ServiceNotFound: Service shop/db does not exist";
        assert_eq!(check(port(), 1, Endpoints::NotFound), text);
        let text = "Blind ServicesUnknown: Services cannot be read: the watch is down";
        assert_eq!(check(port(), 1, Endpoints::Unknown("the watch is down".to_owned())), text);
    }

    #[test]
    fn a_host_outside_is_left_to_a_probe_under_the_policy() {
        let text = r#"Tcp(Address { host: Name("db"), port: 5432 })"#;
        assert_eq!(check(None, 1, Endpoints::External(Some(5432))), text);
        let text = "NotReady PortNotFound: Service shop/db is a name for a host outside; say by its number which port \
                    to connect to";
        assert_eq!(check(None, 1, Endpoints::External(None)), text);
        assert_eq!(check(None, 1, Endpoints::External(Some(0))), text);
        let text = "NotReady TooFewEndpoints: Service shop/db is a name for a host outside, which counts as one \
                    endpoint; expected 2";
        assert_eq!(check(None, 2, Endpoints::External(Some(5432))), text);
    }
}
