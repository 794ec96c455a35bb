//! What a Lease says, and how it is read and written.
//!
//! The record is client-go's, so electors written in Go and ours can hold one Lease in turn. Times are compared at
//! the microsecond the API keeps, and only for being the same or not: no replica's wall clock is believed.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The longest stated duration that is believed. Somebody who mistypes one must not shut the election for years;
/// settings above it are refused, so no elector of ours holds for longer.
pub const LONGEST_LEASE: Duration = Duration::from_hours(1);

/// Who holds a Lease, since when, and for how long unless renewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// `None` when nobody does; never the empty string.
    pub holder: Option<Arc<str>>,
    /// `leaseDurationSeconds` as it stands: absent, zero and negative when edited by hand.
    pub duration_seconds: Option<i32>,
    /// When the present holder got it; kept over renewals.
    pub acquired: Option<Timestamp>,
    /// When the last elector wrote it, by that elector's wall clock, in whole microseconds.
    pub renewed: Option<Timestamp>,
    /// How often the holder changed; never below zero.
    pub transitions: i32,
}

/// One stored state of a Lease: what the next write must be based on.
#[derive(Clone)]
pub struct Version {
    /// Orders states of one Lease. `None` if the server's resourceVersion is not a number, which none does today.
    number: Option<u64>,
    /// Everything in the Lease that is not ours to change: labels, strategy, preferred holder.
    lease: Arc<Lease>,
}

// === impl Record ===

impl Record {
    /// Reads a Lease, whatever was written into it.
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

    /// Writes the record into a Lease and leaves everything else in it alone.
    pub fn write_into(&self, lease: &mut Lease) {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.holder.as_deref().unwrap_or_default().to_owned());
        spec.lease_duration_seconds = self.duration_seconds;
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.renew_time = self.renewed.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);
    }

    /// The record of `holder` having held since `acquired` and renewing at `wall`.
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

    /// The record with which a holder goes: nobody holds, and one second is left.
    ///
    /// client-go's `release`: the API refuses a duration of zero.
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

    /// Returns whether an elector gave the Lease up with this record, as opposed to a person clearing the holder:
    /// electors write one second and both times anew.
    pub fn is_release(&self) -> bool {
        self.holder.is_none()
            && self.duration_seconds == Some(1)
            && self.renewed.is_some()
            && self.acquired == self.renewed
    }

    /// Returns how long the record holds after it was seen; `own` where it states nothing sensible.
    pub fn duration(&self, own: Duration) -> Duration {
        match self.duration_seconds.map(u64::try_from) {
            Some(Ok(seconds @ 1..)) => Duration::from_secs(seconds).min(LONGEST_LEASE),
            _ => own,
        }
    }

    /// Returns whether the stated duration is one that [`Record::duration`] does not take as it is.
    pub fn is_absurd(&self) -> bool {
        let stated = self.duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let sensible = 1..=LONGEST_LEASE.as_secs();
        self.holder.is_some() && stated.is_none_or(|seconds| !sensible.contains(&seconds))
    }
}

/// The API keeps microseconds: what we compare with must have lost the rest already.
fn to_micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

// === impl Version ===

impl Version {
    /// Takes the version a server gave.
    pub fn of(mut lease: Lease) -> Self {
        // Absent in an update means "as they are"; carried along they would be most of its bytes.
        lease.metadata.managed_fields = None;
        let number = lease.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
        Self { number, lease: Arc::new(lease) }
    }

    /// Returns the place of this state among all of the Lease, if the server counts.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Returns the stored Lease with another record, ready to be written over this very state.
    pub(super) fn with(&self, record: &Record) -> Lease {
        let mut lease = Lease::clone(&self.lease);
        record.write_into(&mut lease);
        lease
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.lease.metadata.resource_version == other.lease.metadata.resource_version
    }
}

impl Eq for Version {}

impl Hash for Version {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.lease.metadata.resource_version.hash(hasher);
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.lease.metadata.resource_version.as_deref().unwrap_or("none"))
    }
}

#[cfg(test)]
mod tests;
