//! Owners that the view lacks, whose absence is confirmed before the garbage collector relies on it.

use crate::store::GroupResource;
use crate::workloads::client::{Client, RequestError};
use crate::workloads::object::Object as _;
use crate::workloads::view::Name;

/// An owner that an owner reference names and the view lacks.
pub(super) struct Absent {
    pub(super) resource: GroupResource,
    pub(super) name: Name,
    pub(super) uid: String,
}

/// Returns an error if one of the absent owners exists on the server, because its event is still to arrive.
pub(super) async fn confirm(client: &impl Client, absent: Vec<Absent>) -> Result<(), RequestError> {
    for Absent { resource, name, uid } in absent {
        match client.get(&resource, &name.namespace, &name.name).await {
            Ok(present) if present.uid() == uid => {
                let message = format!("{resource} {} has not arrived yet", name.name);
                return Err(RequestError { code: 409, message, causes: Vec::new() });
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
