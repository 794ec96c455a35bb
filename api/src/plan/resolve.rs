//! From the fields of a manifest to a plan.

use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::{
    Check, DnsCheck, Gates, GrpcCheck, HttpCheck, InvalidSpec, Plan, PlannedDependency, PortReference,
    ProbeCheck, ResourceCheck, ResourceState, ServiceCheck, TlsCheck, Which,
};
use crate::address::Address;
use crate::wait_deployment::WaitDeployment;
use crate::wait_for::{
    Dependency, DnsDependency, Gate, GrpcDependency, HttpDependency, MAX_DEPENDENCIES, OnLoss,
    ResourceDependency, ServiceDependency, TlsDependency, WaitFor,
};
use crate::wait_probe::{DEFAULT_DEPENDENCY, InvalidProbe, WaitProbe};

/// Key of a `ConfigMap` that holds authorities, where none is given.
const DEFAULT_CA_KEY: &str = "ca.crt";
const DEFAULT_PERIOD: i32 = 10;
const DEFAULT_TIMEOUT: i32 = 3;
const DEFAULT_FAILURES: i32 = 3;

impl WaitDeployment {
    /// Returns what this object waits for, defaults filled in.
    ///
    /// # Errors
    /// The first field that cannot be acted on.
    pub fn plan(&self) -> Result<Plan, InvalidSpec> {
        match (&self.wait_probe, &self.spec.wait_for) {
            (None, None) => Ok(Plan::default()),
            (Some(probe), None) => of_probe(probe),
            (None, Some(wait_for)) => of_wait_for(self, wait_for),
            (Some(_), Some(_)) => Err(invalid(
                "waitProbe",
                "beside spec.waitFor",
                "only one of the two; spec.waitFor can say all of it",
            )),
        }
    }
}

fn of_probe(probe: &WaitProbe) -> Result<Plan, InvalidSpec> {
    let (address, timing) = probe.resolve().map_err(InvalidSpec::from)?;
    let dependency = PlannedDependency {
        name: DEFAULT_DEPENDENCY.to_owned(),
        check: Check::Probe(ProbeCheck::Tcp(address)),
        initial_delay: Duration::ZERO,
        period: timing.period,
        timeout: timing.timeout,
        success_threshold: 1,
        failure_threshold: 1,
        optional: false,
    };
    Ok(Plan { dependencies: vec![dependency], on_loss: OnLoss::Ignore, ..Plan::default() })
}

fn of_wait_for(object: &WaitDeployment, wait_for: &WaitFor) -> Result<Plan, InvalidSpec> {
    let path = "spec.waitFor";
    let count = wait_for.dependencies.len();
    if !(1..=MAX_DEPENDENCIES).contains(&count) {
        return Err(invalid(&format!("{path}.dependencies"), format!("{count} entries"), "1 to 16 entries"));
    }
    let mut dependencies: Vec<PlannedDependency> = Vec::with_capacity(count);
    for dependency in &wait_for.dependencies {
        if dependencies.iter().any(|earlier| earlier.name == dependency.name) {
            return Err(invalid(&format!("{path}.dependencies"), &dependency.name, "each name once"));
        }
        dependencies.push(planned(&format!("{path}.dependencies[{}]", dependency.name), dependency)?);
    }
    if wait_for.on_loss == OnLoss::ScaleToZero {
        if wait_for.loss_grace_seconds.is_none() {
            return Err(invalid(&format!("{path}.onLoss"), "ScaleToZero", "lossGraceSeconds beside it"));
        }
        if object.spec.replicas.is_none() {
            return Err(invalid(
                &format!("{path}.onLoss"),
                "ScaleToZero",
                "spec.replicas to be set, to know what to scale back to",
            ));
        }
    }
    if wait_for.recovery_deadline_seconds.is_some() && wait_for.on_loss == OnLoss::Ignore {
        return Err(invalid(
            &format!("{path}.recoveryDeadlineSeconds"),
            "beside onLoss Ignore",
            "onLoss that looks",
        ));
    }
    let gates = |gate| wait_for.gates.as_deref().unwrap_or(&[Gate::Create]).contains(&gate);
    let optional = |field: &str, value: Option<i32>, range| {
        let found = |value: i32| seconds(&format!("{path}.{field}"), value, range);
        value.map(found).transpose()
    };
    Ok(Plan {
        dependencies,
        match_policy: wait_for.match_policy,
        gates: Gates {
            create: gates(Gate::Create),
            update: gates(Gate::Update),
            scale_from_zero: gates(Gate::ScaleFromZero),
        },
        deadline: optional("deadlineSeconds", wait_for.deadline_seconds, 1..=31_536_000)?,
        on_deadline: wait_for.on_deadline,
        on_loss: wait_for.on_loss,
        loss_grace: optional("lossGraceSeconds", wait_for.loss_grace_seconds, 0..=86_400)?
            .unwrap_or_default(),
        recovery_deadline: optional(
            "recoveryDeadlineSeconds",
            wait_for.recovery_deadline_seconds,
            1..=31_536_000,
        )?,
        adoption: wait_for.adoption,
    })
}

fn planned(path: &str, dependency: &Dependency) -> Result<PlannedDependency, InvalidSpec> {
    let number = |field: &str, value: Option<i32>, default: i32, range| {
        in_range(&format!("{path}.{field}"), value.unwrap_or(default), range)
    };
    let period = number("periodSeconds", dependency.period_seconds, DEFAULT_PERIOD, 1..=3600)?;
    let default_timeout = i32::try_from(period).unwrap_or(DEFAULT_TIMEOUT).min(DEFAULT_TIMEOUT);
    let timeout = number("timeoutSeconds", dependency.timeout_seconds, default_timeout, 1..=60)?;
    if timeout > period {
        return Err(invalid(
            &format!("{path}.timeoutSeconds"),
            timeout,
            format!("at most periodSeconds, {period}"),
        ));
    }
    let delay = number("initialDelaySeconds", dependency.initial_delay_seconds, 0, 0..=3600)?;
    Ok(PlannedDependency {
        name: dependency.name.clone(),
        check: check(path, dependency)?,
        initial_delay: Duration::from_secs(delay.into()),
        period: Duration::from_secs(period.into()),
        timeout: Duration::from_secs(timeout.into()),
        success_threshold: number("successThreshold", dependency.success_threshold, 1, 1..=10)?,
        failure_threshold: number(
            "failureThreshold",
            dependency.failure_threshold,
            DEFAULT_FAILURES,
            1..=100,
        )?,
        optional: dependency.optional,
    })
}

fn check(path: &str, dependency: &Dependency) -> Result<Check, InvalidSpec> {
    let Dependency { service, tcp_socket, http_get, grpc, tls, dns, resource, .. } = dependency;
    let mut found = Vec::new();
    if let Some(service) = service {
        found.push(Check::Service(of_service(&format!("{path}.service"), service)?));
    }
    if let Some(tcp) = tcp_socket {
        let address = address(&format!("{path}.tcpSocket"), &tcp.host, tcp.port)?;
        found.push(Check::Probe(ProbeCheck::Tcp(address)));
    }
    if let Some(http) = http_get {
        found.push(Check::Probe(ProbeCheck::Http(of_http(&format!("{path}.httpGet"), http)?)));
    }
    if let Some(grpc) = grpc {
        found.push(Check::Probe(ProbeCheck::Grpc(of_grpc(&format!("{path}.grpc"), grpc)?)));
    }
    if let Some(tls) = tls {
        found.push(Check::Probe(ProbeCheck::Tls(of_tls(&format!("{path}.tls"), tls)?)));
    }
    if let Some(dns) = dns {
        found.push(Check::Probe(ProbeCheck::Dns(of_dns(&format!("{path}.dns"), dns)?)));
    }
    if let Some(resource) = resource {
        found.push(Check::Resource(of_resource(&format!("{path}.resource"), resource)?));
    }
    let count = found.len();
    match (found.pop(), count) {
        (Some(check), 1) => Ok(check),
        _ => Err(invalid(
            path,
            format!("with {count} checks"),
            "exactly one of service, tcpSocket, httpGet, grpc, tls, dns, resource",
        )),
    }
}

fn of_service(path: &str, service: &ServiceDependency) -> Result<ServiceCheck, InvalidSpec> {
    let port = match &service.port {
        None => None,
        Some(IntOrString::Int(number)) => {
            Some(PortReference::Number(port(&format!("{path}.port"), *number)?))
        }
        Some(IntOrString::String(name)) => Some(PortReference::Name(name.clone())),
    };
    let min_ready =
        in_range(&format!("{path}.minReadyEndpoints"), service.min_ready_endpoints.unwrap_or(1), 1..=1000)?;
    Ok(ServiceCheck { name: service.name.clone(), port, min_ready: min_ready as usize })
}

fn of_http(path: &str, http: &HttpDependency) -> Result<HttpCheck, InvalidSpec> {
    let target = http.path.clone().unwrap_or_else(|| "/".to_owned());
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid(&format!("{path}.path"), target, "a path that begins with / and is escaped"));
    }
    let mut statuses = Vec::new();
    for status in &http.expected_statuses {
        let status = in_range(&format!("{path}.expectedStatuses"), *status, 100..=599)?;
        statuses.push(u16::try_from(status).unwrap_or_default());
    }
    statuses.sort_unstable();
    Ok(HttpCheck {
        address: address(path, &http.host, http.port)?,
        scheme: http.scheme.unwrap_or_default(),
        path: target,
        headers: http.http_headers.clone(),
        statuses,
    })
}

fn of_grpc(path: &str, grpc: &GrpcDependency) -> Result<GrpcCheck, InvalidSpec> {
    Ok(GrpcCheck {
        address: address(path, &grpc.host, grpc.port)?,
        service: grpc.service.clone().unwrap_or_default(),
        tls: grpc.tls_mode.unwrap_or_default(),
    })
}

fn of_tls(path: &str, tls: &TlsDependency) -> Result<TlsCheck, InvalidSpec> {
    let ca = tls.ca_config_map.clone().map(|mut ca| {
        ca.key.get_or_insert_with(|| DEFAULT_CA_KEY.to_owned());
        ca
    });
    let server_name = tls.server_name.as_ref().unwrap_or(&tls.host);
    let server_name = server_name.trim_end_matches('.').to_ascii_lowercase();
    Ok(TlsCheck { address: address(path, &tls.host, tls.port)?, server_name, ca })
}

fn of_dns(path: &str, dns: &DnsDependency) -> Result<DnsCheck, InvalidSpec> {
    let min_records = in_range(&format!("{path}.minRecords"), dns.min_records.unwrap_or(1), 1..=100)?;
    let name = dns.name.strip_suffix('.').unwrap_or(&dns.name).to_ascii_lowercase();
    Ok(DnsCheck { name, record: dns.record.unwrap_or_default(), min_records: min_records as usize })
}

fn of_resource(path: &str, resource: &ResourceDependency) -> Result<ResourceCheck, InvalidSpec> {
    let (group, version) = resource.api_version.rsplit_once('/').unwrap_or(("", &resource.api_version));
    let which = match (&resource.name, &resource.selector) {
        (Some(name), None) => Which::Name(name.clone()),
        (None, Some(selector)) => Which::Selector(selector.clone()),
        _ => return Err(invalid(path, "with or without both", "exactly one of name and selector")),
    };
    let state = match (&resource.condition, &resource.expression) {
        (Some(condition), None) => {
            let (type_, status) = condition.split_once('=').unwrap_or((condition, "True"));
            ResourceState::Condition { type_: type_.to_owned(), status: status.to_owned() }
        }
        (None, Some(expression)) => ResourceState::Expression(expression.clone()),
        _ => return Err(invalid(path, "with or without both", "exactly one of condition and expression")),
    };
    Ok(ResourceCheck {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: resource.kind.clone(),
        which,
        state,
    })
}

fn address(path: &str, host: &str, number: i32) -> Result<Address, InvalidSpec> {
    let number = port(&format!("{path}.port"), number)?;
    let bare_ipv6 = host.contains(':') && !host.starts_with('[');
    let text = if bare_ipv6 { format!("[{host}]:{number}") } else { format!("{host}:{number}") };
    let field = format!("{path}.host");
    Address::parse(&field, &text).map_err(|error| invalid(&field, Value::from(host), error.problem))
}

fn port(path: &str, number: i32) -> Result<u16, InvalidSpec> {
    match u16::try_from(number) {
        Ok(port @ 1..) => Ok(port),
        _ => Err(invalid(path, number, "a port from 1 to 65535")),
    }
}

fn seconds(path: &str, value: i32, range: std::ops::RangeInclusive<i32>) -> Result<Duration, InvalidSpec> {
    in_range(path, value, range).map(|seconds| Duration::from_secs(seconds.into()))
}

fn in_range(path: &str, value: i32, range: std::ops::RangeInclusive<i32>) -> Result<u32, InvalidSpec> {
    match u32::try_from(value) {
        Ok(number) if range.contains(&value) => Ok(number),
        _ => Err(invalid(path, value, format!("{} to {}", range.start(), range.end()))),
    }
}

fn invalid(path: &str, value: impl Display, expected: impl Into<String>) -> InvalidSpec {
    InvalidSpec {
        path: path.to_owned(),
        value: value.to_string(),
        expected: format!("expected {}", expected.into()),
    }
}

impl From<InvalidProbe> for InvalidSpec {
    fn from(invalid: InvalidProbe) -> Self {
        let text = invalid.to_string();
        let (head, expected) = text.split_once(": ").unwrap_or((&text, ""));
        let (path, value) = head.split_once(' ').unwrap_or((head, ""));
        Self { path: path.to_owned(), value: value.to_owned(), expected: expected.to_owned() }
    }
}
