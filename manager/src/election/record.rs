//! The election record in a Lease: how it is read and written.
//!
//! The record is client-go's, so that electors of client-go and of mainstay can hold one Lease in turn. Times
//! are compared in microseconds, as the API stores them, and only for equality: no decision depends on a wall
//! clock.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// Longest lease duration that is accepted. Settings above it are refused, and a longer duration in a Lease
/// counts as this one, so that a mistyped edit cannot block the election for years.
pub const LONGEST_LEASE: Duration = Duration::from_hours(1);

/// The content of a Lease: holder, times, lease duration and number of transitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// `holderIdentity` of the Lease; `None` if it is absent or empty, never the empty string.
    pub holder: Option<Arc<str>>,
    /// `leaseDurationSeconds` as stored in the Lease: absent, zero or negative if edited by hand.
    pub duration_seconds: Option<i32>,
    /// Time at which the holder acquired the Lease; renewals keep it.
    pub acquired: Option<Timestamp>,
    /// Time of the last write of the Lease by an elector, on that elector's wall clock, in whole
    /// microseconds.
    pub renewed: Option<Timestamp>,
    /// `leaseTransitions`: number of changes of the Lease's holder; never below zero.
    pub transitions: i32,
}

/// A stored version of a Lease, which an update replaces.
///
/// It holds the whole Lease, so that an update keeps labels, strategy, preferred holder and other fields.
#[derive(Clone, derive_more::Debug)]
#[debug("{}", self.text().unwrap_or("none"))]
pub struct Version(Arc<Lease>);

// === impl Record ===

impl Record {
    /// Reads the record of a Lease; every stored Lease has one.
    pub fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let micros = |time: Option<MicroTime>| time.map(|time| to_micros(time.0));
        Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()).map(Arc::from),
            duration_seconds: spec.lease_duration_seconds,
            acquired: micros(spec.acquire_time),
            renewed: micros(spec.renew_time),
            transitions: spec.lease_transitions.unwrap_or(0).max(0),
        }
    }

    /// Writes the record into the spec of a Lease and keeps the Lease's other fields.
    pub fn write_into(&self, lease: &mut Lease) {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.holder.as_deref().unwrap_or_default().to_owned());
        spec.lease_duration_seconds = self.duration_seconds;
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.renew_time = self.renewed.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);
    }

    /// Returns the record with which `holder`, which holds the Lease since `acquired`, renews it at time
    /// `wall`.
    pub(super) fn held(
        holder: Arc<str>,
        duration: Duration,
        acquired: Timestamp,
        wall: Timestamp,
        transitions: i32,
    ) -> Self {
        Self {
            holder: Some(holder),
            duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
            acquired: Some(to_micros(acquired)),
            renewed: Some(to_micros(wall)),
            transitions,
        }
    }

    /// Returns the record that releases the Lease, as client-go's `release`: no holder and a duration of one
    /// second, since the API refuses zero.
    pub(super) fn released(&self, wall: Timestamp) -> Self {
        let wall = Some(to_micros(wall));
        Self {
            holder: None,
            duration_seconds: Some(1),
            acquired: wall,
            renewed: wall,
            transitions: self.transitions,
        }
    }

    /// Returns whether an elector released the Lease with this record. A record without a holder may also be
    /// an edit by hand; only electors write one second and two equal times.
    pub fn is_release(&self) -> bool {
        self.holder.is_none()
            && self.duration_seconds == Some(1)
            && self.renewed.is_some()
            && self.acquired == self.renewed
    }

    /// Returns the lease duration that the record states, at most [`LONGEST_LEASE`]; `own` if it is absent,
    /// zero or negative.
    pub fn duration(&self, own: Duration) -> Duration {
        match self.duration_seconds.map(u64::try_from) {
            Some(Ok(seconds @ 1..)) => Duration::from_secs(seconds).min(LONGEST_LEASE),
            _ => own,
        }
    }

    /// Returns whether the Lease has a holder, and a stored duration that [`Record::duration`] replaces
    /// because it is absent or out of range.
    pub fn has_invalid_duration(&self) -> bool {
        let stated = self.duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let sensible = 1..=LONGEST_LEASE.as_secs();
        self.holder.is_some() && stated.is_none_or(|seconds| !sensible.contains(&seconds))
    }
}

/// Truncates a time to microseconds, as the API does, so that a time equals its stored form.
fn to_micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

// === impl Version ===

impl Version {
    /// Makes the version of a Lease from the Lease as the server sent it.
    pub fn of(mut lease: Lease) -> Self {
        // An update without managedFields keeps them; with them it would be several times as large.
        lease.metadata.managed_fields = None;
        Self(Arc::new(lease))
    }

    /// Returns `metadata.resourceVersion` as a number, which orders the versions of the Lease. `None` if it
    /// is not numeric; all API servers of today use numbers.
    pub fn number(&self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    fn text(&self) -> Option<&str> {
        self.0.metadata.resource_version.as_deref()
    }

    /// Returns a copy of the whole Lease at this version, for an update that replaces it.
    pub(super) fn lease(&self) -> Lease {
        Lease::clone(&self.0)
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Version {}

impl Hash for Version {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.text().hash(hasher);
    }
}

#[cfg(test)]
mod tests;
