//! Dispatch of requests for subresources, and the reviews, which are never stored.

mod eviction;
mod log;
mod pods;
mod reviews;
mod tokens;

use super::call::Call;
use super::request::Verb;
use super::{Api, Response, Status};

pub(super) use tokens::Tokens;

// === impl Api ===

impl Api {
    /// Executes a request for a subresource.
    pub(super) async fn subresource(&self, call: &mut Call) -> Result<Response, Status> {
        let kind = std::sync::Arc::clone(&call.served.kind);
        let name = call.target.subresource.clone();
        if name == "status" && kind.status {
            return match call.verb {
                Verb::Get => self.get(call).await,
                Verb::Update => self.update(call).await,
                Verb::Patch(patch_type) => self.patch(call, patch_type).await,
                _ => Err(Status::method_not_allowed(&kind, call.verb.as_str())),
            };
        }
        if name == "scale"
            && let Some(scale) = &kind.scale
        {
            return self.scale(call, scale).await;
        }
        let Some(known) = kind.subresources.iter().find(|known| known.name == name) else {
            return Err(Status::not_found(&kind, &call.target.name));
        };
        if !known.verbs.iter().any(|verb| verb == call.verb.as_str()) {
            return Err(Status::method_not_allowed(&kind, call.verb.as_str()));
        }
        match (kind.plural.as_str(), name.as_str(), call.verb) {
            ("pods", "binding", Verb::Create) => self.bind(call).await,
            ("pods", "eviction", Verb::Create) => self.evict(call).await,
            ("serviceaccounts", "token", Verb::Create) => self.create_token(call),
            // No kubelet keeps logs; the real server fails in the same way to find the Node of the Pod.
            ("pods", "log", Verb::Get) => self.log(call),
            // Subresources with the kind of the object, such as `finalize` of a Namespace,
            // change a part of it.
            (_, _, Verb::Get) if known.kind == kind.kind => self.get(call).await,
            (_, _, Verb::Update) if known.kind == kind.kind => self.update(call).await,
            (_, _, Verb::Patch(patch_type)) if known.kind == kind.kind => self.patch(call, patch_type).await,
            _ => Err(Status::method_not_allowed(&kind, call.verb.as_str())),
        }
    }
}
