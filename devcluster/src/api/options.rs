//! The options of requests, parsed from the query or body; errors have the texts of kube-apiserver.

use serde_json::Value;

use super::Status;
use super::request::{Body, Query};
use crate::kinds::{FieldError, metadata};

/// The options of a create, update or patch.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteOptions {
    /// Whether no change is stored.
    pub(super) dry_run: bool,
    /// The field manager; empty for the one of the User-Agent.
    pub(super) field_manager: String,
    pub(super) validation: FieldValidation,
    /// Whether an apply takes over fields of other managers; `None` if the option is missing.
    pub(super) force: Option<bool>,
}

/// The treatment of unknown and duplicate fields in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    /// Whether no change is stored.
    pub(super) dry_run: bool,
    /// The grace period in seconds; `None` for the default of the object.
    pub(super) grace_period_seconds: Option<i64>,
    /// The propagation policy; `None` for the default of the kind.
    pub(super) propagation: Option<Propagation>,
    /// The deprecated form of the policy: true is `Orphan`, false is `Background`.
    pub(super) orphan_dependents: Option<bool>,
    /// Precondition: the uid of the object.
    pub(super) uid: Option<String>,
    /// Precondition: the resourceVersion of the object.
    pub(super) resource_version: Option<String>,
}

/// The treatment of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// The options of a list or watch, besides selectors.
#[derive(Clone, Debug, Default)]
pub(super) struct ListOptions {
    /// The resourceVersion as sent; empty if the option is missing.
    pub(super) resource_version: String,
    /// `resourceVersionMatch`: true for `Exact`, false for `NotOlderThan`, `None` if the option is missing.
    pub(super) exact: Option<bool>,
    /// The maximum number of objects of a page; 0 for no limit.
    pub(super) limit: usize,
    /// The continue token as sent; empty for the first page.
    pub(super) continue_token: String,
    /// Whether a watch sends bookmarks.
    pub(super) bookmarks: bool,
    /// Whether a watch starts with the current objects.
    pub(super) send_initial_events: Option<bool>,
    /// The duration of a watch in seconds; `None` or 0 for a random default.
    pub(super) timeout_seconds: Option<u64>,
}

// === impl WriteOptions ===

impl WriteOptions {
    /// Parses the options; `kind` is their name in errors, such as `CreateOptions`, and `apply` is
    /// true for an apply patch.
    pub(super) fn parse(query: &Query, kind: &str, apply: bool) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let field_manager = query.get("fieldManager").unwrap_or_default().to_owned();
        let force = flag(query, "force");
        if kind == "PatchOptions" {
            if apply && field_manager.is_empty() {
                errors.push(FieldError::required("fieldManager", "is required for apply patch"));
            }
            if !apply && force.is_some() {
                errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
            }
        }
        metadata::check_field_manager(&field_manager, "fieldManager", &mut errors);
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        check_dry_run(&dry_run, &mut errors);
        let validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::unsupported("fieldValidation", &other.into(), &supported));
                FieldValidation::Warn
            }
        };
        refuse(kind, &errors)?;
        Ok(Self { dry_run: !dry_run.is_empty(), field_manager, validation, force })
    }
}

// === impl DeleteOptions ===

impl DeleteOptions {
    /// Parses the options from a body, or from the query if there is no body.
    pub(super) fn parse(query: &Query, body: Option<&Body>) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let (mut options, policy, dry_run) =
            match body.map(|body| &body.value).filter(|value| !value.is_null()) {
                Some(value) => Self::from_body(value)?,
                None => Self::from_query(query)?,
            };
        if let Some(policy) = policy {
            if options.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", &policy.as_str().into(), detail));
            }
            options.propagation = match policy.as_str() {
                "Orphan" => Some(Propagation::Orphan),
                "Background" => Some(Propagation::Background),
                "Foreground" => Some(Propagation::Foreground),
                other => {
                    let supported = ["Foreground", "Background", "Orphan", "nil"];
                    errors.push(FieldError::unsupported("propagationPolicy", &other.into(), &supported));
                    None
                }
            };
        }
        let dry_run: Vec<&str> = dry_run.iter().map(String::as_str).collect();
        check_dry_run(&dry_run, &mut errors);
        options.dry_run = !dry_run.is_empty();
        refuse("DeleteOptions", &errors)?;
        Ok(options)
    }

    fn from_body(value: &Value) -> Result<(Self, Option<String>, Vec<String>), Status> {
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
        if !value.is_object() || kind != "DeleteOptions" {
            let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            return Err(Status::bad_request(super::call::not_registered(kind, version)));
        }
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let dry_run = value.get("dryRun").and_then(Value::as_array).into_iter().flatten();
        let options = Self {
            grace_period_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            orphan_dependents: value.get("orphanDependents").and_then(Value::as_bool),
            uid: text(value.pointer("/preconditions/uid")),
            resource_version: text(value.pointer("/preconditions/resourceVersion")),
            ..Self::default()
        };
        let dry_run = dry_run.filter_map(Value::as_str).map(str::to_owned).collect();
        Ok((options, text(value.get("propagationPolicy")), dry_run))
    }

    fn from_query(query: &Query) -> Result<(Self, Option<String>, Vec<String>), Status> {
        let options = Self {
            grace_period_seconds: number(query, "gracePeriodSeconds")?,
            orphan_dependents: flag(query, "orphanDependents"),
            ..Self::default()
        };
        let policy = query.get("propagationPolicy").filter(|policy| !policy.is_empty()).map(str::to_owned);
        Ok((options, policy, query.all("dryRun").map(str::to_owned).collect()))
    }
}

// === impl ListOptions ===

impl ListOptions {
    /// Parses the options of a list, or of a watch. As in kube-apiserver, a watch without resourceVersion
    /// starts with initial events.
    pub(super) fn parse(query: &Query, watch: bool) -> Result<Self, Status> {
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let mut options = Self {
            resource_version: text("resourceVersion"),
            limit: number(query, "limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0),
            continue_token: text("continue"),
            bookmarks: flag(query, "allowWatchBookmarks").unwrap_or(false),
            send_initial_events: flag(query, "sendInitialEvents"),
            timeout_seconds: number(query, "timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok()),
            exact: None,
        };
        let mut matching = text("resourceVersionMatch");
        let unset = matches!(options.resource_version.as_str(), "" | "0");
        if watch && unset && options.send_initial_events.is_none() && matching.is_empty() {
            options.send_initial_events = Some(true);
            "NotOlderThan".clone_into(&mut matching);
        }
        let mut errors = Vec::new();
        if watch {
            options.check_watch(&matching, &mut errors);
        } else {
            options.check_list(&matching, &mut errors);
        }
        refuse("ListOptions", &errors)?;
        options.exact = (!matching.is_empty()).then(|| matching == "Exact");
        Ok(options)
    }

    fn check_list(&self, matching: &str, errors: &mut Vec<FieldError>) {
        let mut forbid = |path: &str, detail: &str| errors.push(FieldError::forbidden(path, detail));
        if !matching.is_empty() {
            const MATCH: &str = "resourceVersionMatch";
            if self.resource_version.is_empty() {
                forbid(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !self.continue_token.is_empty() {
                forbid(MATCH, "resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                let supported = ["Exact", "NotOlderThan", ""];
                errors.push(FieldError::unsupported(MATCH, &matching.into(), &supported));
            } else if matching == "Exact" && self.resource_version == "0" {
                forbid(MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
        }
        if self.send_initial_events.is_some() {
            errors
                .push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
    }

    fn check_watch(&self, matching: &str, errors: &mut Vec<FieldError>) {
        const MATCH: &str = "resourceVersionMatch";
        if self.send_initial_events.is_some() && matching != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(MATCH, detail));
        }
        if matching.is_empty() {
            return;
        }
        if self.send_initial_events.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH, detail));
        }
        if matching != "NotOlderThan" {
            errors.push(FieldError::unsupported(MATCH, &matching.into(), &["NotOlderThan"]));
        }
        if !self.continue_token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(MATCH, detail));
        }
    }
}

/// Parses a resourceVersion; empty means 0. The error is only a message, because its code
/// depends on the verb.
pub(super) fn revision(text: &str) -> Result<u64, String> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            let why = format!("strconv.ParseUint: parsing {}: invalid syntax", crate::kinds::quoted(text));
            FieldError::invalid("resourceVersion", &text.into(), &why).to_string()
        }),
    }
}

/// Returns an error if there are invalid options.
fn refuse(kind: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid_kind("meta.k8s.io", kind, "", errors)) }
}

fn check_dry_run(values: &[&str], errors: &mut Vec<FieldError>) {
    if values.iter().any(|value| *value != "All") {
        let values = values.iter().map(|value| Value::from(*value)).collect();
        errors.push(FieldError::unsupported("dryRun", &values, &["All"]));
    }
}

/// Parses an integer option; `None` if it is missing or empty.
fn number(query: &Query, option: &str) -> Result<Option<i64>, Status> {
    match query.get(option) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            let text = crate::kinds::quoted(text);
            Status::bad_request(format!("strconv.ParseInt: parsing {text}: invalid syntax"))
        }),
    }
}

/// Parses a flag as kube-apiserver does: every value except `0` and `false` is true. `None` if it is missing.
fn flag(query: &Query, option: &str) -> Option<bool> {
    query.get(option).map(|text| !matches!(text.to_lowercase().as_str(), "0" | "false"))
}
