use mainstay_api::plan::PortReference;

use super::*;

fn check(port: Option<PortReference>, min_ready: usize, found: Endpoints) -> String {
    match evaluate("shop", &ServiceCheck { name: "db".to_owned(), port, min_ready }, found) {
        Ok(Observation { state, reason, message }) => format!("{state:?} {reason}: {message}"),
        Err(probe) => format!("{probe:?}"),
    }
}

#[test]
fn a_service_holds_once_enough_endpoints_are_ready() {
    let sql = || Some(PortReference::Name("sql".to_owned()));
    let text = "Ready EndpointsReady: Service shop/db has a ready endpoint";
    assert_eq!(check(None, 1, Endpoints::Ready(1)), text);
    assert_eq!(check(None, 1, Endpoints::Ready(7)), text, "the count is not in the message");
    let text = "Ready EndpointsReady: Service shop/db has 3 ready endpoints for port sql";
    assert_eq!(check(sql(), 3, Endpoints::Ready(3)), text);
    let text = "NotReady TooFewEndpoints: Service shop/db does not have 3 ready endpoints for port sql yet";
    assert_eq!(check(sql(), 3, Endpoints::Ready(2)), text);
    let text = "NotReady NoEndpoints: Service shop/db has no ready endpoint";
    assert_eq!(check(None, 3, Endpoints::Ready(0)), text);
}

#[test]
fn a_check_without_endpoints_has_a_reason() {
    let port = || Some(PortReference::Number(5432));
    let text = "NotReady PortNotFound: Service shop/db has no port 5432";
    assert_eq!(check(port(), 1, Endpoints::NoPort), text);
    let text = "NotReady ServiceNotFound: Service shop/db does not exist";
    assert_eq!(check(port(), 1, Endpoints::NotFound), text);
    let text = "Blind ServicesUnknown: Services cannot be read: the watch is down";
    assert_eq!(check(port(), 1, Endpoints::Unknown("the watch is down".to_owned())), text);
}

#[test]
fn an_external_name_needs_a_probe_with_a_port_number() {
    let text = r#"Tcp(Address { host: Name("db"), port: 5432 })"#;
    assert_eq!(check(None, 1, Endpoints::External(Some(5432))), text);
    let text = "NotReady PortNotFound: Service shop/db is an ExternalName; give the port as a number";
    assert_eq!(check(None, 1, Endpoints::External(None)), text);
    assert_eq!(check(None, 1, Endpoints::External(Some(0))), text);
    let text = "NotReady TooFewEndpoints: Service shop/db is an ExternalName, which counts as one endpoint; \
                expected 2";
    assert_eq!(check(None, 2, Endpoints::External(Some(5432))), text);
}
