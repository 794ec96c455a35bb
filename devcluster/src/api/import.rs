//! Objects that enter the server as they are, for servers that start with a given state.

use serde_json::Value;

use super::object;
use super::options::revision;
use super::{Api, Status, Target};
use crate::store::Key;

// === impl Api ===

impl Api {
    /// Stores an object under its own resourceVersion, uid and status, in place of an object of the same
    /// name. It gets defaults, but neither validation nor admission sees it, watches do not report it, and
    /// older states of its resource are no longer readable. Later writes get higher resourceVersions.
    ///
    /// # Errors
    /// Fails if the resource is not served, or if the resourceVersion is missing or no number.
    pub fn import(&self, resource: &Target, mut object: Value) -> Result<(), Status> {
        let served = self.target(resource)?;
        let revision = revision(object::meta(&object, "resourceVersion")).map_err(Status::bad_request)?;
        // Later revisions must fit into the signed numbers of clients.
        if revision == 0 || i64::try_from(revision).is_err() {
            return Err(Status::bad_request("a stored object has a resourceVersion"));
        }
        object::set_text(&mut object, "apiVersion", served.api_version());
        object::set_text(&mut object, "kind", &served.kind.kind);
        let mut admitted = object.clone();
        // An object that does not decode is stored too, as after a change of its type.
        if served.admit(&mut admitted).is_ok() {
            object = admitted;
        }
        let namespace = if served.kind.namespaced { object::meta(&object, "namespace") } else { "" };
        let key = Key::new(namespace, object::meta(&object, "name"));
        self.shared.store.import(&served.resource, key, served.to_storage(object), revision);
        self.note_change(&served.kind);
        Ok(())
    }
}
