//! The rules for names, and the messages for invalid names.

use std::net::IpAddr;

/// The rule for the names of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Lower-case labels, separated by dots. Most kinds have this rule.
    Subdomain,
    /// One lower-case label, for namespaces.
    Label,
    /// One lower-case label that starts with a letter, for Services.
    Label1035,
    /// Any text that can be part of a URL path, for RBAC kinds and embedded objects.
    PathSegment,
    /// An IP address in canonical form.
    Address,
}

impl NameRule {
    /// Returns the errors of a name; empty if it is valid. `prefix` is set for a `generateName`, which may
    /// end with a dash.
    pub fn errors(self, name: &str, prefix: bool) -> Vec<String> {
        let masked;
        let name = match name.strip_suffix('-') {
            Some(start)
                if prefix && !start.is_empty() && !matches!(self, Self::PathSegment | Self::Address) =>
            {
                masked = format!("{start}a");
                &masked
            }
            _ => name,
        };
        match self {
            Self::Subdomain => dns1123_subdomain(name),
            Self::Label => dns1123_label(name),
            Self::Label1035 => dns1035_label(name),
            Self::PathSegment => path_segment(name, prefix),
            Self::Address => address(name),
        }
    }
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// The largest length of a DNS label, a label value, and the name part of a label key, in bytes.
const MAX_LABEL: usize = 63;
/// The largest length of a DNS subdomain, in bytes.
const MAX_SUBDOMAIN: usize = 253;

/// Returns the errors of a DNS subdomain such as `example.com`; empty if it is valid.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    subdomain(name, "characters")
}

/// Returns the errors of a DNS subdomain. `unit` is the unit of length in the message, which depends on the
/// field.
fn subdomain(name: &str, unit: &str) -> Vec<String> {
    let mut errors = too_long(name, MAX_SUBDOMAIN, unit);
    if !is_subdomain(name) {
        errors.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '{LABEL}(\\.{LABEL})*')"
        ));
    }
    errors
}

/// Returns the errors of a DNS subdomain with a wildcard such as `*.example.com`; empty if it is valid.
pub fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut errors = too_long(name, MAX_SUBDOMAIN, "bytes");
    if !name.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(format!(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
             must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric \
             character (e.g. '*.example.com', regex used for validation is '\\*\\.{LABEL}(\\.{LABEL})*')"
        ));
    }
    errors
}

/// Returns the errors of a DNS label such as `my-name`; empty if it is valid.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut errors = too_long(name, MAX_LABEL, "characters");
    if is_label(name) {
        return errors;
    }
    errors.push(if is_subdomain(name) {
        "must not contain dots".to_owned()
    } else {
        format!(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
             start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
             validation is '{LABEL}')"
        )
    });
    errors
}

/// Returns the errors of a DNS label that must start with a letter, such as `abc-123`; empty if it is valid.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut errors = too_long(name, MAX_LABEL, "characters");
    if !is_label(name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        errors.push(format!(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
             regex used for validation is '{LABEL_1035}')"
        ));
    }
    errors
}

/// Returns the errors of a label key such as `example.com/MyName`; empty if it is valid.
pub fn qualified_name(name: &str) -> Vec<String> {
    let rule = || {
        format!(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
             validation is '{LABEL_KEY}')"
        )
    };
    let mut errors = Vec::new();
    let name = match name.split_once('/') {
        None => name,
        Some((_, name)) if name.contains('/') => {
            errors.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                rule()
            ));
            return errors;
        }
        Some(("", name)) => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            errors.extend(subdomain(prefix, "bytes").into_iter().map(|error| format!("prefix part {error}")));
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    errors.extend(too_long(name, MAX_LABEL, "bytes").into_iter().map(|error| format!("name part {error}")));
    if !is_label_key(name) {
        errors.push(format!("name part {}", rule()));
    }
    errors
}

/// Returns the errors of a label value; empty if it is valid.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = too_long(value, MAX_LABEL, "bytes");
    if !value.is_empty() && !is_label_key(value) {
        errors.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
             '12345', regex used for validation is '({LABEL_KEY})?')"
        ));
    }
    errors
}

fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let illegal = ["/", "%"].into_iter().filter(|illegal| name.contains(illegal));
    illegal.map(|illegal| format!("may not contain '{illegal}'")).collect()
}

fn address(name: &str) -> Vec<String> {
    if let Some(error) = super::builtin::validation::ip_error(name) {
        return vec![error.to_owned()];
    }
    let canonical = name.parse::<IpAddr>().map(|address| address.to_string()).unwrap_or_default();
    if canonical == name {
        Vec::new()
    } else {
        vec![format!("must be in canonical form ({})", super::quoted(&canonical))]
    }
}

fn too_long(name: &str, max: usize, unit: &str) -> Vec<String> {
    if name.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

fn is_label(name: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_label_key(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_have_no_errors() {
        assert!(dns1123_subdomain("a-1.example.com").is_empty());
        assert!(dns1123_label("0-a").is_empty());
        assert!(dns1035_label("a-0").is_empty());
        assert!(qualified_name("example.com/My_name.x").is_empty());
        assert!(label_value("").is_empty());
        assert!(NameRule::Subdomain.errors("web-", true).is_empty());
        assert!(!NameRule::Subdomain.errors("web-", false).is_empty());
        assert_eq!(NameRule::PathSegment.errors("a/b", false), ["may not contain '/'"]);
        assert_eq!(NameRule::PathSegment.errors("..", false), ["may not be '..'"]);
    }

    #[test]
    fn messages_equal_those_of_the_server() {
        assert_eq!(
            dns1123_subdomain("Bad"),
            ["a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                 '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                 for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"]
        );
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            qualified_name("a/b/c"),
            ["a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start \
                 and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
                 used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS \
                 subdomain prefix and '/' (e.g. 'example.com/MyName')"]
        );
        let long = "a".repeat(64);
        assert_eq!(label_value(&long), ["must be no more than 63 bytes"]);
        assert_eq!(qualified_name(&long), ["name part must be no more than 63 bytes"]);
    }
}
