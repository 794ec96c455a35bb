//! `waitProbe`, the article's form of a dependency: one TCP address and a timeout.
//!
//! The CRD admits every value that the article's manifests may have, so validation is done here, and a
//! refusal becomes a condition. The article's `timeout` is a Go duration: an integer counts **nanoseconds**,
//! and Go writes 0 for "not set". Strings follow GEP-2257 (<https://gateway-api.sigs.k8s.io/geps/gep-2257/>).

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::refusal::{At, InvalidSpec};

/// Timeout of an attempt to connect if `timeout` of a `waitProbe` is 0 or absent. A lost SYN is retransmitted
/// after one second, so with 1 s one lost packet would be a failure; 3 s leaves time for two retransmissions.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);
/// Shortest valid timeout of a `waitProbe`, inclusive. A shorter one is a mistake: `timeout: 3` means 3 ns,
/// in which no connection can succeed.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(1);
/// Longest valid timeout of a `waitProbe`, inclusive; a server that takes longer to accept a connection is
/// not ready.
pub const MAX_TIMEOUT: Duration = Duration::from_mins(5);
/// Seconds between two attempts of a `waitProbe` if `periodSeconds` is absent.
pub const DEFAULT_PERIOD_SECONDS: i32 = 10;
/// Longest valid `periodSeconds` of a `waitProbe`, inclusive. The shortest is 1.
pub const MAX_PERIOD_SECONDS: i32 = 3600;

/// Name in the status of the one dependency that a `waitProbe` declares.
pub const DEFAULT_DEPENDENCY: &str = "default";

/// A TCP address that must accept a connection before the Deployment starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitProbe {
    /// Address to connect to, as host:port, with an IPv6 address in brackets. The host may be the name of a
    /// Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub address: Option<String>,
    /// Time that one attempt may take, 1 ms to 300 s: a string such as 3s or 500ms, or an integer of
    /// nanoseconds. 0 or absent means 3 s. An attempt never takes longer than the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// Seconds between two attempts, 1 to 3600; 10 when absent. The period does not grow after failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: Option<i32>,
}

/// The timeout of a `waitProbe` in a manifest: an integer of nanoseconds, or a duration string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Timeout {
    /// The timeout in nanoseconds, as a Go client writes a duration.
    Nanoseconds(i64),
    /// The timeout as a string such as `1m30s`: one to four numbers of up to five digits, each with the unit
    /// h, m, s or ms.
    Text(String),
}

/// Period and timeout of the attempts of a `waitProbe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeTiming {
    /// Time from the start of one attempt of a probe to the start of the next, before jitter.
    pub period: Duration,
    /// Longest duration of one attempt of a probe.
    pub timeout: Duration,
}

// === impl WaitProbe ===

impl WaitProbe {
    /// Returns the address and the timing of the probe, with defaults for absent fields.
    ///
    /// # Errors
    /// Returns the first invalid field, in the order address, timeout, period.
    pub fn resolve(&self) -> Result<(Address, ProbeTiming), InvalidSpec> {
        let address = Address::parse("waitProbe.address", self.address.as_deref().unwrap_or_default())?;
        Ok((address, self.timing()?))
    }

    /// Returns the period and the timeout of the probe, with defaults for absent fields.
    pub fn timing(&self) -> Result<ProbeTiming, InvalidSpec> {
        let timeout = self.timeout.as_ref().map_or(Ok(DEFAULT_TIMEOUT), Timeout::resolve)?;
        let seconds = self.period_seconds.unwrap_or(DEFAULT_PERIOD_SECONDS);
        let period = At::new("waitProbe.periodSeconds").seconds(seconds, 1..=MAX_PERIOD_SECONDS)?;
        Ok(ProbeTiming { period, timeout })
    }
}

// === impl Timeout ===

impl Timeout {
    /// Returns the timeout as a duration; 0 means the default, never "no limit".
    pub fn resolve(&self) -> Result<Duration, InvalidSpec> {
        let at = At::new("waitProbe.timeout");
        match self {
            Self::Nanoseconds(0) => Ok(DEFAULT_TIMEOUT),
            Self::Nanoseconds(value) => {
                let duration = u64::try_from(*value).ok().map(Duration::from_nanos);
                let problem = format!(
                    "integers are nanoseconds, and 1 ms to 300 s is accepted; write a string, such as {:?}",
                    suggest_string(*value)
                );
                duration.filter(is_accepted).ok_or_else(|| at.problem(*value, problem))
            }
            Self::Text(text) => {
                let form = "expected 1ms to 300s, written like 3s, 500ms or 1m30s";
                let invalid = |problem| at.problem(text.as_str(), format!("{problem}; {form}"));
                match parse_gep2257(text).map_err(invalid)? {
                    Duration::ZERO => Ok(DEFAULT_TIMEOUT),
                    duration if is_accepted(&duration) => Ok(duration),
                    duration if duration > MAX_TIMEOUT => Err(invalid("too long")),
                    _ => Err(invalid("too short")),
                }
            }
        }
    }
}

impl JsonSchema for Timeout {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 64})
    }
}

// === private ===

fn is_accepted(duration: &Duration) -> bool {
    (MIN_TIMEOUT..=MAX_TIMEOUT).contains(duration)
}

/// Returns the duration string that the user most likely meant by an integer: up to 300 as seconds, up to
/// 300,000 as milliseconds, any other as `3s`.
fn suggest_string(value: i64) -> String {
    match value {
        1..=300 => format!("{value}s"),
        301..=300_000 => format!("{value}ms"),
        _ => "3s".to_owned(),
    }
}

/// Parses a duration of one to four parts: up to five digits with h, m, s or ms, without fraction and sign.
fn parse_gep2257(text: &str) -> Result<Duration, &'static str> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let number: u64 = match digits {
            0 => return Err("not a duration"),
            1..=5 => number.parse().map_err(|_| "not a duration")?,
            _ => return Err("more than five digits in one part"),
        };
        total += match unit {
            "h" => Duration::from_secs(number * 3600),
            "m" => Duration::from_secs(number * 60),
            "s" => Duration::from_secs(number),
            "ms" => Duration::from_millis(number),
            "" => return Err("a unit is missing"),
            _ => return Err("only the units h, m, s and ms are known"),
        };
        parts += 1;
        rest = tail;
    }
    match parts {
        0 => Err("empty"),
        1..=4 => Ok(total),
        _ => Err("more than four parts"),
    }
}

#[cfg(test)]
mod tests;
