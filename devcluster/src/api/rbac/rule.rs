//! The rules of roles: the requests that they allow, and the rules that cover others.

use serde_json::{Value, json};

use super::Action;
use crate::kinds::quoted;

/// A rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Rule {
    pub(super) verbs: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) urls: Vec<String>,
}

// === impl Rule ===

impl Rule {
    /// Reads the rules of a role.
    pub(super) fn all_of(role: &Value) -> Vec<Self> {
        role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let texts = |field: &str| {
            let values = rule.get(field).and_then(Value::as_array).into_iter().flatten();
            values.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    /// Returns the two rules that allow everything.
    pub(super) fn everything() -> Vec<Self> {
        let all = || vec!["*".to_owned()];
        let resources = Self { verbs: all(), groups: all(), resources: all(), ..Self::default() };
        vec![resources, Self { verbs: all(), urls: all(), ..Self::default() }]
    }

    /// Returns whether the rule allows an action; `combined` is its resource with the subresource.
    pub(super) fn allows(&self, action: &Action<'_>, combined: &str) -> bool {
        match action {
            Action::Path { verb, path } => {
                has_or_all(&self.verbs, verb) && self.urls.iter().any(|url| url_covers(url, path))
            }
            Action::Resource(access) => {
                has_or_all(&self.verbs, access.verb)
                    && has_or_all(&self.groups, access.group)
                    && (has_or_all(&self.resources, combined) || self.has_any(access.subresource))
                    && (self.names.is_empty() || has(&self.names, access.name))
            }
        }
    }

    /// Returns whether the rule names a subresource of all resources, as `*/scale`.
    fn has_any(&self, subresource: &str) -> bool {
        let of_all = |resource: &String| resource.strip_prefix("*/") == Some(subresource);
        !subresource.is_empty() && self.resources.iter().any(of_all)
    }

    /// Returns the rule as rules with one verb, one resource and at most one name, or one verb and one URL.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut parts = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let (verbs, groups, resources) = (one(verb), one(group), one(resource));
                    let part = Self { verbs, groups, resources, ..Self::default() };
                    if self.names.is_empty() {
                        parts.push(part);
                    } else {
                        parts.extend(self.names.iter().map(|name| Self { names: one(name), ..part.clone() }));
                    }
                }
            }
        }
        for url in &self.urls {
            let part = |verb| Self { verbs: one(verb), urls: one(url), ..Self::default() };
            parts.extend(self.verbs.iter().map(part));
        }
        parts
    }

    /// Returns whether the rule covers a part of another rule.
    fn covers(&self, part: &Self) -> bool {
        let all = |set: &[String], of: &[String]| of.iter().all(|text| has_or_all(set, text));
        let resource = |resource: &String| {
            let subresource = resource.split_once('/').map_or("", |(_, subresource)| subresource);
            has_or_all(&self.resources, resource) || self.has_any(subresource)
        };
        let url = |url: &String| self.urls.iter().any(|own| url_covers(own, url));
        // A rule for some names does not cover one for all.
        let names = || !part.names.is_empty() && part.names.iter().all(|name| has(&self.names, name));
        all(&self.verbs, &part.verbs)
            && all(&self.groups, &part.groups)
            && part.resources.iter().all(resource)
            && part.urls.iter().all(url)
            && (self.names.is_empty() || names())
    }

    /// Returns the part of the rule about resources, as a review of a user's rules lists it.
    pub(in super::super) fn about_resources(&self) -> Option<Value> {
        let mut rule = json!({"verbs": self.verbs});
        for (field, texts) in
            [("apiGroups", &self.groups), ("resources", &self.resources), ("resourceNames", &self.names)]
        {
            if !texts.is_empty() {
                rule[field] = json!(texts);
            }
        }
        (!self.resources.is_empty()).then_some(rule)
    }

    /// Returns the part of the rule about other paths, as a review of a user's rules lists it.
    pub(in super::super) fn about_urls(&self) -> Option<Value> {
        (!self.urls.is_empty()).then(|| json!({"verbs": self.verbs, "nonResourceURLs": self.urls}))
    }

    /// Returns the rule in the form of errors about rules that a user lacks.
    fn described(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let fields = fields.into_iter().filter(|(_, texts)| !texts.is_empty());
        let fields: Vec<_> = fields.map(|(name, texts)| format!("{name}:{}", listed(texts))).collect();
        format!("{{{}}}", fields.join(", "))
    }
}

/// Returns what `wanted` allows and `owned` does not, in the form of errors: a text for each resource,
/// sorted.
pub(super) fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut missing: Vec<Rule> = Vec::new();
    let uncovered = |part: &Rule| !owned.iter().any(|rule| rule.covers(part));
    for mut part in wanted.iter().flat_map(Rule::parts).filter(uncovered) {
        let same = |rule: &&mut Rule| {
            rule.urls.is_empty()
                && (&rule.groups, &rule.resources, &rule.names)
                    == (&part.groups, &part.resources, &part.names)
        };
        match missing.iter_mut().find(same) {
            Some(rule) if part.urls.is_empty() => rule.verbs.append(&mut part.verbs),
            _ => missing.push(part),
        }
    }
    let mut texts: Vec<_> = missing.iter().map(Rule::described).collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Returns a list of texts in the form of Go's `%q`.
pub(in super::super) fn listed(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" "))
}

fn has(set: &[String], text: &str) -> bool {
    set.iter().any(|own| own == text)
}

fn has_or_all(set: &[String], text: &str) -> bool {
    set.iter().any(|own| own == "*" || own == text)
}

/// Returns whether a URL of a rule, possibly with an asterisk at its end, covers a path.
fn url_covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}
