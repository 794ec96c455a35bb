//! Which errors of a write are refusals of the API server, and whether a retry can help.

use std::error::Error;

use kube::core::Status;
use mainstay::client::{WriteError, refusal};

use super::gate::{Refusal, RefusalKind};

/// Returns the refusal of a write by the API server if a retry with the same body would be refused again:
/// invalid (422), malformed (400), or with a field or type that is not in the schema, which server-side apply
/// answers with a plain 500.
///
/// A 422 about the uid is excluded: another Deployment has taken the name, and the cache will show it soon. A
/// denial by admission is excluded as well, although most have one of these codes.
pub(super) fn invalid_refusal(error: &WriteError) -> Option<Refusal> {
    let status = refusal(error).filter(|status| !denies(status))?;
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let is_invalid = match status.code {
        422 => causes.into_iter().all(|cause| cause.field != "metadata.uid"),
        400 => !is_dry_run_unsupported(error),
        500 => status.message.contains("failed to create typed patch object"),
        _ => false,
    };
    is_invalid.then(|| Refusal { kind: RefusalKind::Invalid, message: status.message.clone() })
}

/// Returns the refusal of a write by the API server if it may pass without an edit of the object: by
/// admission, RBAC or a quota.
pub(super) fn refusal_that_may_pass(error: &(dyn Error + 'static)) -> Option<Refusal> {
    let status = refusal(error)?;
    let kind = match status.code {
        _ if denies(status) => RefusalKind::Denied,
        403 => RefusalKind::Forbidden,
        _ => return None,
    };
    Some(Refusal { kind, message: status.message.clone() })
}

/// Returns whether an admission policy or an admission webhook denied the object. The author of the policy or
/// webhook chooses the code: 422 for a policy and 400 for a webhook unless set. Admission may accept the same
/// body later: a policy is being rolled out, the namespace lacks a label, or a change freeze ends.
pub(super) fn denies(status: &Status) -> bool {
    // The API server's phrases for a ValidatingAdmissionPolicy and for a webhook. No field of the status
    // marks a denial.
    let phrases = ["denied request: ", "denied the request"];
    (400..500).contains(&status.code) && phrases.iter().any(|phrase| status.message.contains(phrase))
}

/// Returns whether the error means that a dry run is impossible: the API server answers 400 if an admission
/// webhook has side effects.
pub(super) fn is_dry_run_unsupported(error: &WriteError) -> bool {
    let is_unsupported = |status: &Status| status.message.contains("does not support dry run");
    error.code() == Some(400) && refusal(error).is_some_and(is_unsupported)
}

#[cfg(test)]
mod tests;
