//! What a refusal of the API server means for the next try.

use std::error::Error;

use kube::core::Status;
use mainstay::client::{WriteError, refusal};

/// Returns whether another try with the same body would be refused again: invalid (422), malformed (400), or with a
/// key or a type that the schema does not have, which server-side apply answers with a plain 500.
///
/// A 422 about the uid is none: another Deployment has taken the name, and the cache will show it soon. A denial by
/// admission is none either, though most come with these codes.
pub(super) fn is_rejection(error: &WriteError) -> bool {
    let details = refusal(error).and_then(|status| status.details.as_ref());
    let replaced =
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"));
    let no_schema = || words_of(error).contains("failed to create typed patch object");
    match error.code() {
        _ if is_denial(error) => false,
        Some(422) => !replaced,
        Some(400) => !is_no_dry_run(error),
        Some(500) => no_schema(),
        _ => false,
    }
}

/// Returns whether an admission policy or an admission webhook denied the object. The code is their author's choice: 422
/// for a policy and 400 for a webhook that names none. They may admit the same body later: a policy is being rolled out, the
/// namespace lacks a label, there is a change freeze.
pub(super) fn is_denial(error: &(dyn Error + 'static)) -> bool {
    refusal(error).is_some_and(denies)
}

/// The same of the status that the API server answered with.
pub(super) fn denies(status: &Status) -> bool {
    let is_told = |words: &str| status.message.contains(words);
    // The words of the API server for a ValidatingAdmissionPolicy, and for a webhook. No field of the status marks a denial.
    (400..500).contains(&status.code) && (is_told("denied request: ") || is_told("denied the request"))
}

/// Returns whether it is a refusal that may pass without an edit of the object: by RBAC, a quota or admission.
pub(super) fn may_pass(error: &(dyn Error + 'static)) -> bool {
    refusal(error).is_some_and(|status| status.code == 403 || denies(status))
}

/// Returns whether nobody can say without doing it: an admission webhook with side effects cannot be asked, which the
/// server answers with 400.
pub(super) fn is_no_dry_run(error: &WriteError) -> bool {
    error.code() == Some(400) && words_of(error).contains("does not support dry run")
}

/// Returns the server's own words.
pub(super) fn words_of(error: &WriteError) -> String {
    refusal(error).map_or_else(|| error.to_string(), |status| status.message.clone())
}

#[cfg(test)]
mod tests;
