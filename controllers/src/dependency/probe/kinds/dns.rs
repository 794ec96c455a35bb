//! A `dns` check: a name has enough records.

use std::io;

use mainstay_api::plan::DnsCheck;
use mainstay_api::wait_for::DnsRecord;

use super::Failure;
use crate::dependency::probe::reachability::Reachability;
use crate::dependency::probe::resolve::Resolve;
use crate::reasons::probe;

/// Runs a `dns` check: succeeds if the name has at least the expected number of records. Their contents do
/// not matter.
pub(in crate::dependency::probe) async fn resolve_records(
    check: &DnsCheck,
    resolve: &dyn Resolve,
    reachability: &mut Option<Reachability>,
) -> Result<(), Failure> {
    *reachability = Some(Reachability::Silent);
    let found = match check.record {
        DnsRecord::Address => resolve.resolve(&check.name).await.map(|addresses| addresses.len()),
        DnsRecord::Srv => resolve.services(&check.name).await,
    };
    *reachability = Some(Reachability::of(&found));
    match found {
        Ok(count) if count >= check.min_records => Ok(()),
        Ok(0) => Err(not_found()),
        Ok(_) => {
            let message = format!("the name has fewer than {} records", check.min_records);
            Err(Failure::answered(probe::TOO_FEW_RECORDS, message))
        }
        Err(error) => Err(unresolved(&error)),
    }
}

/// Returns the failure of a check for a failed DNS lookup.
pub(in crate::dependency::probe) fn unresolved(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => not_found(),
        io::ErrorKind::TimedOut => Failure::before(probe::LOOK_UP_FAILED, "no name server answered in time"),
        _ => Failure::before(probe::LOOK_UP_FAILED, "the name servers could not answer the query"),
    }
}

fn not_found() -> Failure {
    Failure::answered(probe::NAME_NOT_FOUND, "the name has no such record")
}
