//! A store filled by a test, without a server, for the tests of reconcilers.
//!
//! It is the [`UntypedStore`] of a manager, synced and without a reflector, so its reads give the same
//! guarantees.

use std::sync::Arc;

use serde_json::Value;

use super::settings::CacheSettings;
use super::{Projection, Scope};
use crate::cache::object::ResourceVersion;
use crate::cache::store::{ObjectStore, Received, UntypedStore};
use crate::key::KindId;

impl UntypedStore {
    /// Makes a synced store for a test that holds these whole objects, in all namespaces. Each must have
    /// name, uid and a resourceVersion not above `version`, as from a server.
    ///
    /// # Errors
    /// Fails for the first object that no API server would send, with the reason.
    pub(crate) fn filled(kind: &KindId, objects: &[Value], version: u64) -> Result<Arc<Self>, String> {
        let store = ObjectStore::new(
            kind.clone(),
            Scope::all(),
            Projection::Full,
            vec![None],
            CacheSettings::default().limits(),
        );
        // A store that is not started ignores own writes.
        store.start(None);
        let epoch = store.begin_list();
        for object in objects {
            let raw = object.to_string();
            let accepted = store.accept(0, Received::Listed(epoch), raw.as_bytes().into());
            accepted.map_err(|error| format!("{error}: {object}"))?;
        }
        store.end_list(0, epoch, &ResourceVersion::new(&version.to_string()));
        Ok(Arc::new(Self::new(store)))
    }

    /// Stores the object of a watch event, or removes it if it was deleted, as the watch of a manager does.
    pub(crate) fn receive(&self, deleted: bool, object: &[u8]) {
        let received = if deleted { Received::Deleted } else { Received::Changed };
        drop(self.core().receive(0, received, object));
    }
}
