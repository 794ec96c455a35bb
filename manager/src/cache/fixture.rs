//! A store filled by a test, without a server, for the tests of reconcilers.
//!
//! It is the [`UntypedStore`] of a manager, synced and without a reflector, so its reads give the same
//! guarantees.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::settings::CacheSettings;
use super::{Projection, Scope, writes};
use crate::cache::object::ResourceVersion;
use crate::cache::store::{ObjectStore, Received, UntypedStore};
use crate::client::{ResourcePath, Writer};
use crate::key::{KindId, NamespacedName};

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

    /// Applies the response to a write to this store, as the cache of a manager does.
    pub(crate) fn apply_write(&self, path: &ResourcePath, body: &Bytes) {
        writes::apply_write(self.core(), path, body, Writer::default());
    }

    /// Applies the response to a DELETE of one object to this store, as the cache of a manager does.
    pub(crate) fn apply_delete(&self, path: &ResourcePath, body: &Bytes) {
        let request =
            NamespacedName::new(path.namespace.as_deref(), path.name.as_deref().unwrap_or_default());
        writes::apply_delete(self.core(), path, &request, body, &[], Writer::default());
    }
}
