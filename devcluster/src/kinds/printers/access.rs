//! Bindings of roles, and requests for certificates.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::duration;
use super::view::View;

pub(super) fn role_binding(binding: &View<'_>) -> Value {
    let role = binding.part("/roleRef");
    let named = |kind: &str| {
        let subjects = binding.list("/subjects").filter(|subject| subject.text("/kind") == kind);
        let name = |subject: View<'_>| match kind {
            "ServiceAccount" => format!("{}/{}", subject.text("/namespace"), subject.text("/name")),
            _ => subject.text("/name").to_owned(),
        };
        subjects.map(name).collect::<Vec<_>>().join(", ")
    };
    json!([
        binding.name(),
        format!("{}/{}", role.text("/kind"), role.text("/name")),
        binding.age(),
        named("User"),
        named("Group"),
        named("ServiceAccount"),
    ])
}

pub(super) fn signing_request(request: &View<'_>) -> Value {
    let lifetime = request.get("/spec/expirationSeconds").and_then(Value::as_i64);
    let lifetime = lifetime
        .map_or_else(|| "<none>".to_owned(), |seconds| duration::human(SignedDuration::from_secs(seconds)));
    let is = |name: &str| request.condition("/status/conditions", name).is_some();
    let mut status = match (is("Denied"), is("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if is("Failed") {
        status.push_str(",Failed");
    }
    if !request.text("/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    json!([
        request.name(),
        request.age(),
        request.text_or("/spec/signerName", "<none>"),
        request.text("/spec/username"),
        lifetime,
        status,
    ])
}
