//! A store that is filled by hand and has no server behind it, for the tests of reconcilers.
//!
//! The same [`UntypedStore`] as in a manager, synced and without a reflector: what reads promise holds here too.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::settings::CacheSettings;
use super::{Projection, Scope, writes};
use crate::cache::object::meta::ResourceVersion;
use crate::cache::object::scan::Scan;
use crate::cache::object::store_context::StoreContext;
use crate::cache::store::object_store::ObjectStore;
use crate::cache::store::untyped_store::UntypedStore;
use crate::client::{ResourcePath, Writer};
use crate::key::{KindId, NamespacedName};

impl UntypedStore {
    /// Makes a synced store of these objects, whole and in all namespaces. They must be as a server would give them:
    /// with name, uid and a resourceVersion not above `version`.
    ///
    /// # Errors
    /// Fails with what is wrong with the first object that no server would give.
    pub(crate) fn filled(kind: &KindId, objects: &[Value], version: u64) -> Result<Arc<Self>, String> {
        let store = ObjectStore::new(
            kind.clone(),
            Scope::all(),
            Projection::Full,
            vec![None],
            CacheSettings::default().limits(),
        );
        // Own writes enter only a store that has been started.
        store.start();
        let context = StoreContext::new(kind.clone(), CacheSettings::default().max_object_bytes);
        let epoch = store.begin_list();
        for object in objects {
            let raw = object.to_string();
            let scan = Scan::open(raw.as_bytes()).and_then(|scan| scan.finish(&context, Projection::Full));
            scan.map_err(|error| format!("{error}: {object}"))?;
            store.listed(0, epoch, raw.as_bytes());
        }
        store.end_list(0, epoch, &ResourceVersion::new(&version.to_string()));
        Ok(Arc::new(Self::new(store)))
    }

    /// Takes the answer to a write, as the cache of a manager does.
    pub(crate) fn answered(&self, path: &ResourcePath, body: &Bytes) {
        writes::apply_write(self.core(), path, body, Writer::default());
    }

    /// Takes the answer to a DELETE of one object, as the cache of a manager does.
    pub(crate) fn answered_delete(&self, path: &ResourcePath, body: &Bytes) {
        let request =
            NamespacedName::new(path.namespace.as_deref(), path.name.as_deref().unwrap_or_default());
        writes::apply_delete(self.core(), path, &request, body, &[], Writer::default());
    }
}
