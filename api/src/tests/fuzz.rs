//! Fuzz targets for the fields of a WaitDeployment.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use std::net::{Ipv4Addr, Ipv6Addr};

pub use crate::json_path::fuzz::json_path;

use crate::plan::Check;
use crate::{Address, Host, WaitDeployment};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

/// Parses arbitrary bytes as an address, and checks the address or the error.
pub fn address(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Address::parse("waitProbe.address", text) {
        Ok(address) => unambiguous(&address),
        Err(invalid) => {
            let invalid = invalid.to_string();
            // The error shortens a long value.
            assert!(invalid.len() < 1024 && !invalid.contains(char::is_control), "{invalid:?}");
        }
    }
}

/// Asserts that an address parses again to an equal one, and that no resolver parses its name as an IP
/// address.
fn unambiguous(address: &Address) {
    assert_eq!(Address::parse("", &address.to_string()).as_ref(), Ok(address));
    let Host::Name(name) = &address.host else { return };
    assert!(name.parse::<Ipv4Addr>().is_err() && name.parse::<Ipv6Addr>().is_err());
    let last = name.rsplit('.').next().unwrap_or_default();
    let digits = last.strip_prefix("0x").unwrap_or(last);
    let radix = if digits.len() == last.len() { 10 } else { 16 };
    assert!(!digits.chars().all(|digit| digit.is_digit(radix)), "{name}");
}

/// Decodes arbitrary bytes as a WaitDeployment and checks its plan.
pub fn spec(data: &[u8]) {
    let Ok(object) = serde_json::from_slice::<WaitDeployment>(data) else { return };
    let _gates = object.spec.gates();
    let Ok(plan) = object.plan() else { return };
    for dependency in &plan.dependencies {
        assert!(!dependency.timeout.is_zero() && dependency.timeout <= dependency.period, "{dependency:?}");
        if let Check::Probe(probe) = &dependency.check {
            probe.address().into_iter().for_each(unambiguous);
        }
    }
    let encoded = serde_json::to_vec(&object).expect("an object can be encoded");
    let again: WaitDeployment = serde_json::from_slice(&encoded).expect("an encoded object can be decoded");
    assert_eq!(again.plan().as_ref(), Ok(&plan), "decoded again it has another plan");
}

#[test]
fn no_input_of_the_corpora_is_a_finding() {
    replay::replay("address", address);
    replay::replay("spec", spec);
    replay::replay("json_path", json_path);
}
