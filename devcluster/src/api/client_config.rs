//! The calls of webhooks, by the field `clientConfig` of their configuration.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

use super::Api;
use super::object;
use crate::kinds::{go, json, quoted};
use crate::outgoing::{self, Server};
use crate::store::{At, GroupResource, Key};

/// The port of a Service or URL that names none.
const HTTPS: u16 = 443;
/// The largest part of a response that an error quotes, in bytes.
const QUOTED: usize = 2048;

/// Where a webhook listens.
struct Place {
    /// The server; an error if it cannot be found.
    server: Result<Server, String>,
    /// The authority of its URL, such as `127.0.0.1:8443`.
    authority: String,
    path: String,
}

/// The failure of a call.
#[derive(Debug)]
pub(super) enum CallError {
    /// The configuration allows no call.
    Client(String),
    /// The call failed.
    Request(String),
}

// === impl CallError ===

impl CallError {
    /// Returns the text of the real server; `call` introduces the failure of a call.
    pub(super) fn text(&self, call: &str) -> String {
        match self {
            Self::Client(error) => format!("could not get REST client: {error}"),
            Self::Request(error) => format!("{call}: {error}"),
        }
    }
}

// === impl Api ===

impl Api {
    /// Posts a review to a webhook and returns the decoded response. `timeout` is in seconds.
    pub(super) async fn post_review(
        &self,
        client_config: &Value,
        review: &Value,
        timeout: u64,
    ) -> Result<Value, CallError> {
        let place = self.place(client_config).map_err(CallError::Client)?;
        let url = format!("https://{}{}?timeout={timeout}s", place.authority, place.path);
        let failed = |error: String| CallError::Request(format!("Post {}: {error}", quoted(&url)));
        let server = place.server.map_err(failed)?;
        let path = format!("{}?timeout={timeout}s", place.path);
        let limit = Duration::from_secs(timeout);
        let body = review.to_string().into_bytes();
        let answer = outgoing::post(&server, &place.authority, &path, body, limit).await.map_err(failed)?;
        read(&answer).map_err(CallError::Request)
    }

    fn place(&self, client_config: &Value) -> Result<Place, String> {
        let bundle = STANDARD.decode(object::text(client_config, "caBundle")).unwrap_or_default();
        if !bundle.is_empty() && !is_pem(&bundle) {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
        let Some(service) = client_config.get("service").filter(|service| service.is_object()) else {
            return Ok(of_url(object::text(client_config, "url"), bundle));
        };
        let (namespace, name) = (object::text(service, "namespace"), object::text(service, "name"));
        let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let port = port.unwrap_or(HTTPS);
        let host = format!("{name}.{namespace}.svc");
        let server = self.endpoint(namespace, name, port).map(|(address, port)| Server {
            host: address,
            port,
            name: host.clone(),
            authorities: bundle,
        });
        let path = object::text(service, "path");
        Ok(Place { server, authority: format!("{host}:{port}"), path: clean(path) })
    }

    /// Returns the host and port behind a port of a Service. The cluster has no network of its own, so only
    /// endpoints on loopback are reachable, and external names.
    fn endpoint(&self, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
        let service = self.shared.store.get(&GroupResource::new("", "services"), &Key::new(namespace, name));
        let service = service.ok_or_else(|| format!("service {} not found", quoted(name)))?;
        let spec = service.value().get("spec").unwrap_or(&Value::Null);
        let address = object::text(spec, "clusterIP");
        match (object::text(spec, "type"), address) {
            ("ExternalName", _) => return Ok((object::text(spec, "externalName").to_owned(), port)),
            (_, "None") => return Err("cannot route to service with ClusterIP \"None\"".to_owned()),
            _ => {}
        }
        let declared = items(spec, "ports").find(|of| of.get("port") == Some(&port.into()));
        let missing = || format!("no service port {port} found for service {}", quoted(name));
        let port_name = object::text(declared.ok_or_else(missing)?, "name");
        let refused = || format!("dial tcp {address}:{port}: connect: connection refused");
        self.loopback_endpoint(namespace, name, port_name).ok_or_else(refused)
    }

    /// Returns an address on loopback of a Service's EndpointSlices or Endpoints.
    fn loopback_endpoint(&self, namespace: &str, name: &str, port_name: &str) -> Option<(String, u16)> {
        let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
        let slices = self.shared.store.list(&slices, Some(namespace), None, At::Newest).ok()?.items;
        let of_slices = slices.iter().filter_map(|slice| {
            let slice = slice.value();
            let labels = object::meta_value(slice, "labels")?;
            if object::text(labels, "kubernetes.io/service-name") != name {
                return None;
            }
            let ready =
                |endpoint: &&Value| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false));
            let addresses = items(slice, "endpoints").filter(ready).flat_map(|of| items(of, "addresses"));
            Some((addresses.into_iter().find_map(loopback)?, port_of(slice, port_name)?))
        });
        let endpoints = GroupResource::new("", "endpoints");
        let endpoints = self.shared.store.get(&endpoints, &Key::new(namespace, name));
        let of_endpoints =
            endpoints.iter().flat_map(|of| items(of.value(), "subsets")).filter_map(|subset| {
                let addresses = items(subset, "addresses").filter_map(|address| loopback(address.get("ip")?));
                Some((addresses.into_iter().next()?, port_of(subset, port_name)?))
            });
        of_slices.chain(of_endpoints).next()
    }
}

fn of_url(url: &str, authorities: Vec<u8>) -> Place {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let bare = |host: &str| host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let (host, port) = match authority.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
        Some((host, Ok(port))) => (bare(host), port),
        _ => (bare(authority), HTTPS),
    };
    let server = Server { name: host.clone(), host, port, authorities };
    Place { server: Ok(server), authority: authority.to_owned(), path: clean(path) }
}

/// Returns a path without empty steps, escaped as Go does it.
fn clean(path: &str) -> String {
    /// Characters that the path of a URL may not contain.
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~')
        .remove(b'$')
        .remove(b'&')
        .remove(b'+')
        .remove(b',')
        .remove(b':')
        .remove(b';')
        .remove(b'=')
        .remove(b'@');
    let steps = path.split('/').filter(|step| !step.is_empty());
    let escaped = steps.map(|step| {
        let step = percent_decode_str(step).decode_utf8_lossy();
        utf8_percent_encode(&step, ESCAPED).to_string()
    });
    format!("/{}", escaped.collect::<Vec<_>>().join("/"))
}

/// Returns the object of a response.
fn read(answer: &outgoing::Answer) -> Result<Value, String> {
    let text = String::from_utf8_lossy(&answer.body);
    if !(200..300).contains(&answer.code) {
        if let Ok(status) = serde_json::from_str::<Value>(&text)
            && object::text(&status, "kind") == "Status"
            && object::text(&status, "apiVersion") == "v1"
            && !object::text(&status, "message").is_empty()
        {
            return Err(object::text(&status, "message").to_owned());
        }
        let textual = answer.content_type.is_empty() || answer.content_type.starts_with("text/");
        let quoted = text.get(..QUOTED).unwrap_or(&text).trim();
        return Err(unexpected(answer.code, if textual { quoted } else { "unknown" }));
    }
    if answer.body.is_empty() {
        let (code, content_type) = (answer.code, &answer.content_type);
        return Err(format!("0-length response with status code: {code} and content type: {content_type}"));
    }
    match json::decode(&answer.body) {
        Ok(decoded) if decoded.value.is_object() => Ok(decoded.value),
        Ok(decoded) => Err(malformed(&wrong_type(go::json_type(&decoded.value)))),
        // Text without structure is a string in YAML, which the real server reads too.
        Err(_) if !text.contains(['{', '[', ':']) => Err(malformed(&wrong_type("string"))),
        Err(error) => Err(malformed(&error)),
    }
}

fn malformed(error: &str) -> String {
    format!("couldn't get version/kind; json parse error: {error}")
}

fn wrong_type(found: &str) -> String {
    format!(
        "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// Returns the text about a response with an error code, as Go's client writes it.
fn unexpected(code: u16, message: &str) -> String {
    let text = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 406 | 415 => message,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing \
             the request"
        }
        500.. => {
            return format!(
                "an error on the server ({}) has prevented the request from succeeding",
                quoted(message)
            );
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    text.to_owned()
}

fn is_pem(bundle: &[u8]) -> bool {
    memchr::memmem::find(bundle, b"-----BEGIN CERTIFICATE-----").is_some()
}

fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn loopback(address: &Value) -> Option<String> {
    let address: std::net::IpAddr = address.as_str()?.parse().ok()?;
    address.is_loopback().then(|| address.to_string())
}

/// Returns the port with a name; a Service with one port may leave it unnamed.
fn port_of(object: &Value, name: &str) -> Option<u16> {
    let port = items(object, "ports").find(|port| object::text(port, "name") == name)?;
    port.get("port")?.as_u64()?.try_into().ok()
}
