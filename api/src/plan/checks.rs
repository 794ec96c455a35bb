//! Makes a planned dependency from a dependency of a manifest.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::names;
use super::{
    Check, DnsCheck, GrpcCheck, HttpCheck, InvalidSpec, Objects, PlannedDependency, PortReference,
    ProbeCheck, ResourceCheck, ResourceState, ServiceCheck, TlsCheck,
};
use crate::address::{Address, Host};
use crate::json_path::InvalidPath;
use crate::refusal::At;
use crate::wait_for::{
    ConfigMapKey, Dependency, DnsDependency, FORBIDDEN_HEADER_PREFIXES, FORBIDDEN_HEADERS, GrpcDependency,
    HttpDependency, HttpHeader, ResourceDependency, ServiceDependency, TcpDependency, TlsDependency,
};

/// Default key of the certificate authorities in their `ConfigMap`.
const DEFAULT_CA_KEY: &str = "ca.crt";
const DEFAULT_PERIOD: i32 = 10;
const DEFAULT_TIMEOUT: i32 = 3;
const DEFAULT_FAILURES: i32 = 3;
/// Maximum length of a condition with its status (TYPE=STATUS), in bytes.
const MAX_CONDITION: usize = 330;
/// Maximum length of the value expected at a JSON path, in characters.
const MAX_VALUE: usize = 256;
/// Maximum number of headers, and of expected statuses, of one HTTP GET; and of labels, of expressions, and
/// of values of one expression, of a label selector.
const MAX_PARTS: usize = 16;

const HOST: &str =
    "a Service by name, a DNS name, an IPv4 address of four decimal numbers, or an IPv6 address";

/// Checks the fields of the dependency at the path `at` and fills in defaults.
pub(super) fn planned(at: &At, dependency: &Dependency) -> Result<PlannedDependency, InvalidSpec> {
    let expected = "lower-case letters, digits and - inside, at most 63, such as database";
    let name = at.text("name", &dependency.name, names::is_label, expected)?;
    let number =
        |field, value: Option<i32>, default, range| at.field(field).number(value.unwrap_or(default), range);
    let period_seconds = dependency.period_seconds.unwrap_or(DEFAULT_PERIOD);
    let period = at.field("periodSeconds").seconds(period_seconds, 1..=3600)?;
    let timeout_seconds = dependency.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT.min(period_seconds));
    let at_timeout = at.field("timeoutSeconds");
    let timeout = at_timeout.seconds(timeout_seconds, 1..=60)?;
    let expected = format!("at most periodSeconds, {period_seconds}");
    at_timeout.needs(timeout <= period, timeout_seconds, &expected)?;
    let (delay, failures) = (dependency.initial_delay_seconds, dependency.failure_threshold);
    Ok(PlannedDependency {
        name,
        initial_delay: at.field("initialDelaySeconds").seconds(delay.unwrap_or(0), 0..=3600)?,
        check: check(at, dependency)?,
        period,
        timeout,
        success_threshold: number("successThreshold", dependency.success_threshold, 1, 1..=10)?,
        failure_threshold: number("failureThreshold", failures, DEFAULT_FAILURES, 1..=100)?,
        optional: dependency.optional,
    })
}

/// Splits a condition TYPE=STATUS into type and status; the status of TYPE alone is True. `None` if the text
/// is invalid.
pub(super) fn condition(text: &str) -> Option<(&str, &str)> {
    let (type_, status) = text.split_once('=').unwrap_or((text, "True"));
    let is_status = matches!(status, "True" | "False" | "Unknown");
    (is_status && text.len() <= MAX_CONDITION && names::is_condition_type(type_)).then_some((type_, status))
}

fn check(at: &At, dependency: &Dependency) -> Result<Check, InvalidSpec> {
    let Dependency { service, tcp_socket, http_get, grpc, tls, dns, resource, .. } = dependency;
    let tcp = |at: &At, tcp: &TcpDependency| address(at, &tcp.host, tcp.port);
    let mut found = [
        of("service", at, service.as_ref(), of_service, Check::Service),
        of("tcpSocket", at, tcp_socket.as_ref(), tcp, |check| Check::Probe(ProbeCheck::Tcp(check))),
        of("httpGet", at, http_get.as_ref(), of_http, |check| Check::Probe(ProbeCheck::Http(check))),
        of("grpc", at, grpc.as_ref(), of_grpc, |check| Check::Probe(ProbeCheck::Grpc(check))),
        of("tls", at, tls.as_ref(), of_tls, |check| Check::Probe(ProbeCheck::Tls(check))),
        of("dns", at, dns.as_ref(), of_dns, |check| Check::Probe(ProbeCheck::Dns(check))),
        of("resource", at, resource.as_ref(), of_resource, Check::Resource),
    ]
    .into_iter()
    .flatten();
    match (found.next(), found.next()) {
        (Some((_, check)), None) => check,
        (first, second) => {
            let set: Vec<_> = first.into_iter().chain(second).chain(found).map(|(name, _)| name).collect();
            at.refuse(set, "exactly one of service, tcpSocket, httpGet, grpc, tls, dns and resource")
        }
    }
}

/// Returns the field's name and the check that the field `name` of a dependency declares; `None` if the field
/// is absent.
fn of<T, C>(
    name: &'static str,
    at: &At,
    given: Option<&T>,
    read: impl Fn(&At, &T) -> Result<C, InvalidSpec>,
    wrap: impl Fn(C) -> Check,
) -> Option<(&'static str, Result<Check, InvalidSpec>)> {
    Some((name, read(&at.field(name), given?).map(wrap)))
}

fn of_service(at: &At, service: &ServiceDependency) -> Result<ServiceCheck, InvalidSpec> {
    let expected = "the name of a Service in the same namespace";
    let name = at.text("name", &service.name, names::is_label, expected)?;
    let port = match &service.port {
        None => None,
        Some(IntOrString::Int(number)) => Some(PortReference::Number(port(at, *number)?)),
        Some(IntOrString::String(name)) => {
            let is_name =
                |name: &str| names::is_label(name) && !name.bytes().all(|byte| byte.is_ascii_digit());
            let expected = "a number from 1 to 65535 without quotes, or the name of a port of the Service";
            Some(PortReference::Name(at.text("port", name, is_name, expected)?))
        }
    };
    let min_ready = service.min_ready_endpoints.unwrap_or(1);
    let min_ready = at.field("minReadyEndpoints").number(min_ready, 1..=1000)?;
    Ok(ServiceCheck { name, port, min_ready: min_ready as usize })
}

fn of_http(at: &At, http: &HttpDependency) -> Result<HttpCheck, InvalidSpec> {
    let is_path = |path: &str| names::is_path(path) && path.len() <= 1024;
    let expected = "a path that begins with / and is percent-encoded, at most 1024 characters";
    let path = at.text("path", http.path.as_deref().unwrap_or("/"), is_path, expected)?;
    let at_headers = at.field("httpHeaders");
    at_headers.at_most(http.http_headers.len(), MAX_PARTS)?;
    for (index, header) in http.http_headers.iter().enumerate() {
        of_header(&at_headers.item(index), header)?;
    }
    let at_statuses = at.field("expectedStatuses");
    at_statuses.at_most(http.expected_statuses.len(), MAX_PARTS)?;
    let mut statuses = Vec::new();
    for (index, status) in http.expected_statuses.iter().enumerate() {
        let number = at_statuses.item(index).number(*status, 200..=599)?;
        statuses.push(u16::try_from(number).unwrap_or_default());
    }
    statuses.sort_unstable();
    statuses.dedup();
    Ok(HttpCheck {
        address: address(at, &http.host, http.port)?,
        scheme: http.scheme.unwrap_or_default(),
        path,
        headers: http.http_headers.clone(),
        statuses,
    })
}

fn of_header(at: &At, header: &HttpHeader) -> Result<(), InvalidSpec> {
    let at_name = at.field("name");
    let name = header.name.to_ascii_lowercase();
    let is_name = names::is_token(&name) && name.len() <= 128;
    at_name.needs(is_name, header.name.as_str(), "the name of a header, without colon and spaces")?;
    let begins = |prefix: &&str| name.starts_with(prefix);
    let is_forbidden =
        FORBIDDEN_HEADERS.contains(&name.as_str()) || FORBIDDEN_HEADER_PREFIXES.iter().any(begins);
    let expected =
        "a header that carries no credentials and belongs neither to the connection nor to proxies";
    at_name.needs(!is_forbidden, header.name.as_str(), expected)?;
    let is_value = names::is_header_value(&header.value) && header.value.len() <= 1024;
    let expected = "printable ASCII without spaces at its ends, at most 1024 characters";
    // The value may be a secret, so it is not quoted in the status.
    at.field("value").needs(is_value, format!("of {} bytes", header.value.len()), expected)
}

fn of_grpc(at: &At, grpc: &GrpcDependency) -> Result<GrpcCheck, InvalidSpec> {
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic()) && name.len() <= 253;
    let expected = "the name of a gRPC service, such as shop.v1.Orders";
    let service = at.text("service", grpc.service.as_deref().unwrap_or_default(), is_name, expected)?;
    let tls = grpc.tls_mode.unwrap_or_default();
    Ok(GrpcCheck { address: address(at, &grpc.host, grpc.port)?, service, tls })
}

fn of_tls(at: &At, tls: &TlsDependency) -> Result<TlsCheck, InvalidSpec> {
    let address = address(at, &tls.host, tls.port)?;
    let server_name = match &tls.server_name {
        None => address.host.clone(),
        Some(name) => host(name).or_else(|problem| {
            let expected = format!("the name in the certificate, or an address; {problem}");
            at.field("serverName").refuse(name.as_str(), &expected)
        })?,
    };
    let ca = tls.ca_config_map.as_ref().map(|ca| of_config_map(&at.field("caConfigMap"), ca)).transpose()?;
    Ok(TlsCheck { address, server_name: server_name.to_string(), ca })
}

fn of_config_map(at: &At, reference: &ConfigMapKey) -> Result<ConfigMapKey, InvalidSpec> {
    let expected = "the name of a ConfigMap in the same namespace";
    let name = at.text("name", &reference.name, names::is_subdomain, expected)?;
    let key = reference.key.as_deref().unwrap_or(DEFAULT_CA_KEY);
    let expected = "letters, digits, -, _ and ., such as ca.crt";
    let key = at.text("key", key, names::is_config_map_key, expected)?;
    Ok(ConfigMapKey { name, key: Some(key) })
}

fn of_dns(at: &At, dns: &DnsDependency) -> Result<DnsCheck, InvalidSpec> {
    let min_records = at.field("minRecords").number(dns.min_records.unwrap_or(1), 1..=100)?;
    let Ok(Host::Name(name)) = Host::parse(&dns.name) else {
        let expected = "a complete DNS name and not an address, such as db.example.com";
        return at.field("name").refuse(dns.name.as_str(), expected);
    };
    Ok(DnsCheck { name, record: dns.record.unwrap_or_default(), min_records: min_records as usize })
}

fn of_resource(at: &At, resource: &ResourceDependency) -> Result<ResourceCheck, InvalidSpec> {
    let expected = "a version, after its group and a slash except in the core group, such as batch/v1";
    let api_version = at.text("apiVersion", &resource.api_version, names::is_api_version, expected)?;
    let kind = at.text("kind", &resource.kind, names::is_kind, "letters and digits, such as Job")?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    Ok(ResourceCheck {
        group: group.to_owned(),
        version: version.to_owned(),
        kind,
        objects: objects(at, resource)?,
        state: state(at, resource)?,
    })
}

fn objects(at: &At, resource: &ResourceDependency) -> Result<Objects, InvalidSpec> {
    match (&resource.name, &resource.selector) {
        (Some(name), None) => {
            let expected = "the name of an object, without / and %";
            at.text("name", name, names::is_path_segment, expected).map(Objects::Name)
        }
        (None, Some(selector)) => {
            of_selector(&at.field("selector"), selector)?;
            Ok(Objects::Selector(selector.clone()))
        }
        (name, _) => at.refuse(both("name", "selector", name.is_some()), "exactly one of name and selector"),
    }
}

fn state(at: &At, resource: &ResourceDependency) -> Result<ResourceState, InvalidSpec> {
    match (&resource.condition, &resource.json_path) {
        (Some(_), None) if resource.value.is_some() => at
            .field("value")
            .refuse(resource.value.clone(), "no value beside condition: it belongs to jsonPath"),
        (Some(text), None) => {
            let expected = "TYPE, or TYPE=STATUS with the status True, False or Unknown";
            let found = condition(text).ok_or_else(|| at.field("condition").refusal(text.as_str(), expected));
            let (type_, status) = found?;
            Ok(ResourceState::Condition { type_: type_.to_owned(), status: status.to_owned() })
        }
        (None, Some(text)) => {
            let path = text.parse().or_else(|invalid: InvalidPath| {
                let expected = format!("a path such as {{.status.phase}}; {invalid}");
                at.field("jsonPath").refuse(text.as_str(), &expected)
            })?;
            match &resource.value {
                Some(value) if (1..=MAX_VALUE).contains(&value.chars().count()) => {
                    Ok(ResourceState::JsonPath { path, value: value.clone() })
                }
                value => at.field("value").refuse(value.clone(), "1 to 256 characters to compare with"),
            }
        }
        (condition, _) => {
            let found = both("condition", "jsonPath", condition.is_some());
            at.refuse(found, "exactly one of condition and jsonPath")
        }
    }
}

fn of_selector(at: &At, selector: &LabelSelector) -> Result<(), InvalidSpec> {
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.as_deref().unwrap_or_default();
    let (label_count, at_expressions) = (labels.clone().count(), at.field("matchExpressions"));
    let expected = "at least one label: an empty selector selects every object of the kind";
    at.needs(label_count + expressions.len() > 0, serde_json::json!({}), expected)?;
    at.field("matchLabels").at_most(label_count, MAX_PARTS)?;
    at_expressions.at_most(expressions.len(), MAX_PARTS)?;
    for (key, value) in labels {
        check_key(&at.field("matchLabels"), key)?;
        check_value(&at.field("matchLabels").field(key), value)?;
    }
    for (index, expression) in expressions.iter().enumerate() {
        let at = at_expressions.item(index);
        check_key(&at.field("key"), &expression.key)?;
        let values = expression.values.as_deref().unwrap_or_default();
        let at_values = at.field("values");
        at_values.at_most(values.len(), MAX_PARTS)?;
        match (expression.operator.as_str(), values) {
            ("In" | "NotIn", []) => return at_values.refuse(Vec::<&str>::new(), "at least one value"),
            ("In" | "NotIn", values) => {
                for (index, value) in values.iter().enumerate() {
                    check_value(&at_values.item(index), value)?;
                }
            }
            ("Exists" | "DoesNotExist", []) => {}
            ("Exists" | "DoesNotExist", values) => {
                return at_values.refuse(values, "no values beside Exists and DoesNotExist");
            }
            (operator, _) => {
                return at.field("operator").refuse(operator, "In, NotIn, Exists or DoesNotExist");
            }
        }
    }
    Ok(())
}

fn check_key(at: &At, key: &str) -> Result<(), InvalidSpec> {
    let expected = "the key of a label, such as app or example.com/app";
    at.needs(names::is_label_key(key), key, expected)
}

fn check_value(at: &At, value: &str) -> Result<(), InvalidSpec> {
    let expected = "the value of a label: at most 63 letters and digits, with -, _ and . inside";
    at.needs(names::is_label_value(value), value, expected)
}

/// Returns the names of two fields if both are set, or an empty list if neither is set. For the error about
/// two fields of which exactly one must be set.
fn both(one: &'static str, other: &'static str, are_set: bool) -> Vec<&'static str> {
    if are_set { vec![one, other] } else { Vec::new() }
}

fn address(at: &At, text: &str, number: i32) -> Result<Address, InvalidSpec> {
    let port = port(at, number)?;
    match host(text) {
        Ok(host) => Ok(Address { host, port }),
        Err(problem) => at.field("host").refuse(text, &format!("{HOST}; {problem}")),
    }
}

/// Parses the host of a dependency. An IPv6 address may have brackets, but needs none as no port follows.
fn host(text: &str) -> Result<Host, &'static str> {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if inside.is_some() || text.contains(':') {
        return Host::parse_ipv6(inside.unwrap_or(text));
    }
    Host::parse(text)
}

fn port(at: &At, number: i32) -> Result<u16, InvalidSpec> {
    let number = at.field("port").number(number, 1..=65535)?;
    Ok(u16::try_from(number).unwrap_or_default())
}
