//! Fuzz targets: what authors of WaitDeployments write.

#![expect(clippy::missing_panics_doc, reason = "a finding is a panic")]

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

pub use crate::json_path::fuzz::json_path;

use crate::plan::{Check, ResourceState};
use crate::wait_for::MAX_DEPENDENCIES;
use crate::{Address, Host, Plan, WaitDeployment};

/// Longest refusal: the value in it is shortened.
const LONGEST_REFUSAL: usize = 1024;

/// Reads an address.
pub fn address(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Address::parse("waitProbe.address", text) {
        Ok(address) => unambiguous(&address),
        Err(invalid) => {
            let invalid = invalid.to_string();
            assert!(
                invalid.starts_with("waitProbe.address \"") && invalid.len() < LONGEST_REFUSAL,
                "{invalid}"
            );
            assert!(!invalid.contains(char::is_control), "{invalid:?}");
        }
    }
}

/// It reads back equal, and names one host to everybody.
fn unambiguous(address: &Address) {
    assert_eq!(Address::parse("", &address.to_string()).as_ref(), Ok(address));
    assert_ne!(address.port, 0);
    let Host::Name(name) = &address.host else { return };
    let last = name.rsplit('.').next().unwrap_or_default();
    assert!(!name.is_empty() && name.len() <= 253 && !name.ends_with('.') && *name == name.to_lowercase());
    assert!(name.parse::<Ipv4Addr>().is_err() && name.parse::<Ipv6Addr>().is_err());
    // A number in any form that `strtoul` takes is the end of an IPv4 address.
    let hexadecimal =
        last.strip_prefix("0x").is_some_and(|rest| rest.chars().all(|digit| digit.is_ascii_hexdigit()));
    assert!(!hexadecimal && !last.chars().all(|digit| digit.is_ascii_digit()), "{name}");
}

/// Reads an object, and what it waits for.
pub fn spec(data: &[u8]) {
    let Ok(object) = serde_json::from_slice::<WaitDeployment>(data) else { return };
    let plan = match object.plan() {
        Ok(plan) => plan,
        Err(invalid) => {
            let _gates = object.spec.gates();
            return assert!(!invalid.path.is_empty() && !invalid.expected.is_empty());
        }
    };
    sound(&plan);
    let Ok(written) = serde_json::to_value(&object) else { return };
    let again: Option<WaitDeployment> = serde_json::from_value(written.clone()).ok();
    assert_eq!(
        again.as_ref().and_then(|again| again.plan().ok()),
        Some(plan),
        "read back it is another plan"
    );
    assert_eq!(again.and_then(|again| serde_json::to_value(again).ok()), Some::<Value>(written));
}

fn sound(plan: &Plan) {
    let names: BTreeSet<_> = plan.dependencies.iter().map(|dependency| &dependency.name).collect();
    assert!(names.len() == plan.dependencies.len() && names.len() <= MAX_DEPENDENCIES);
    for dependency in &plan.dependencies {
        assert!(!dependency.timeout.is_zero() && dependency.timeout <= dependency.period, "{dependency:?}");
        assert!(dependency.success_threshold > 0 && dependency.failure_threshold > 0);
        match &dependency.check {
            Check::Probe(probe) => probe.address().into_iter().for_each(unambiguous),
            Check::Resource(resource) => {
                if let ResourceState::JsonPath { path, .. } = &resource.state {
                    assert_eq!(path.to_string().parse().as_ref(), Ok(path));
                }
            }
            Check::Service(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
