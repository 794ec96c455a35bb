//! Typed handles of a store: an object is decoded as `K` when it is read.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use kube::Resource;
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;

use crate::cache::declared::DeclaredIndexes;
use crate::cache::object::{HookFailure, Meta, ReadError, ResourceVersion, View};
use crate::cache::store::{IndexError, ObjectStore, Select, UntypedStore};
use crate::client::{Current, Extent};
use crate::key::NamespacedName;

/// A handle of a store: it decodes the objects of one kind as `K` when they are read. Cheap to clone. Handles
/// of equal declarations share one list and watch, which end when the last of these handles is dropped.
///
/// Reads come from memory, so they neither wait nor send a request. They include the writes of this process.
#[derive(derive_more::Debug)]
#[debug("Store({:?})", self.kind.kind())]
pub struct Store<K = DynamicObject> {
    kind: Arc<UntypedStore>,
    /// The indexes by function that were declared on this handle; its clones and views share them.
    pub(super) declared: Arc<DeclaredIndexes>,
    /// The longest object that this handle decodes, in bytes. Reads of a longer one fail.
    max_bytes: usize,
    decode: PhantomData<fn() -> K>,
}

/// One version of one object in a store. Its metadata is available at once; [`Entry::decode`] decodes the
/// rest as `K`.
#[derive(derive_more::Debug)]
#[debug("Entry({:?})", self.view)]
pub struct Entry<K = DynamicObject> {
    view: View,
    /// The store of the object, which counts failures to decode. An entry is no handle: it does not keep the
    /// list and watch running.
    core: Arc<ObjectStore>,
    /// The longest object that is decoded, in bytes, as set on the handle that returned this entry.
    max_bytes: usize,
    decode: PhantomData<fn() -> K>,
}

// === impl Store ===

impl<K> Store<K> {
    /// Makes a typed handle of a store. The type is not checked: if it does not fit the kind, reads fail to
    /// decode.
    pub fn new(kind: Arc<UntypedStore>) -> Self {
        Self { kind, declared: Arc::default(), max_bytes: usize::MAX, decode: PhantomData }
    }

    /// Returns the untyped store of which this is a handle.
    pub fn untyped(&self) -> &Arc<UntypedStore> {
        &self.kind
    }

    /// Returns a handle that decodes the same objects as another type: usually a struct of the few fields
    /// that are needed, because it is decoded faster.
    pub fn view<V>(&self) -> Store<V> {
        let (kind, declared) = (self.kind.clone(), self.declared.clone());
        Store { kind, declared, max_bytes: self.max_bytes, decode: PhantomData }
    }

    /// Returns a handle that decodes no object longer than `cache.maxObjectBytes` divided by `divisor`: reads
    /// of a longer one fail with [`ReadError::TooLarge`]. Use it for types that keep all of the JSON: a
    /// `serde_json::Value` takes up to 128 times as much memory as its text, while a struct of the needed
    /// fields takes less than the text.
    #[must_use]
    pub fn limited_to_share(&self, divisor: NonZeroUsize) -> Self {
        let max_bytes = self.kind.core().limits.object / divisor;
        Self { max_bytes, ..self.clone() }
    }

    /// Returns one object of the store without decoding it; `None` if the store holds no object of this name.
    ///
    /// # Errors
    /// Fails before the first list is complete, and for a namespace outside the scope of the store.
    pub fn entry(&self, request: &NamespacedName) -> Result<Option<Entry<K>>, ReadError> {
        Ok(self.kind.get(request)?.map(|view| self.entry_of(view)))
    }

    /// Returns the selected objects of the store in no particular order, without decoding them.
    ///
    /// # Errors
    /// Fails before the first list is complete, for a namespace outside the scope of the store, and for an
    /// index that was not declared on this handle.
    pub fn list(&self, select: &Select) -> Result<Vec<Entry<K>>, ReadError> {
        let views = if select.functions.is_empty() {
            self.kind.list(select)?
        } else {
            let (select, _kept) = self.declared.resolve(select);
            self.kind.list(&select)?
        };
        Ok(views.into_iter().map(|view| self.entry_of(view)).collect())
    }

    /// Declares an index by a function that returns the values under which an object is found:
    /// [`Select::index`] then selects the objects of one value.
    ///
    /// The index belongs to this handle, its clones and its views: only they can read it by its name, and it
    /// is removed with the last of them. So a controller that declares its indexes on its own handle
    /// ([`Cluster::store`] returns a new one each time) leaves no index behind when it is removed. If the
    /// same code declares the index again on the same handle, as when such a controller is added again, the
    /// newer function replaces the older.
    ///
    /// The function is called once for each version, before the version is stored and without a lock. It
    /// reads metadata at no cost, and may decode the object ([`View::decode`], best into a struct of the few
    /// fields it needs). It receives the whole object even if that is longer than `cache.maxObjectBytes`. If
    /// the function fails or panics, this version is left out of this index only; the failure is counted and
    /// logged with the object's name.
    ///
    /// An index may be declared at any time. This method calls the function for all stored objects, on the
    /// caller's thread, before it returns.
    ///
    /// [`Cluster::store`]: crate::manager::Cluster::store
    ///
    /// # Errors
    /// Fails if the handle has an index of this name by other code. Function pointers of one signature, and
    /// closures from one place, count as the same code: the newer one replaces the older.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::Secret;
    /// # use mainstay::cache::{Select, Store};
    /// # fn wire(secrets: &Store<Secret>) -> Result<(), Box<dyn std::error::Error>> {
    /// secrets.index_view("by-first-letter", |secret| {
    ///     Ok(secret.meta().name().chars().take(1).map(String::from).collect())
    /// })?;
    /// let beginning_with_a = secrets.list(&Select::index("by-first-letter", "a").within("shop"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn index_view(
        &self,
        name: &str,
        function: impl Fn(&View) -> Result<Vec<String>, HookFailure> + Send + Sync + 'static,
    ) -> Result<(), IndexError> {
        self.declared.declare(&self.kind, name, function)
    }

    /// Waits until reads return `written`, the object in the response to a write, or a newer version of it.
    /// See [`UntypedStore::caught_up`] for when that is needed and how long it takes. Returns at once for an
    /// object without a resourceVersion, because it was never written.
    ///
    /// # Errors
    /// Fails for a namespace outside the scope of the store.
    ///
    /// # Cancel safety
    /// No event is lost; call it again.
    pub async fn caught_up(&self, written: &impl Resource) -> Result<(), ReadError> {
        let meta = written.meta();
        let (Some(name), Some(version)) = (&meta.name, &meta.resource_version) else { return Ok(()) };
        let request = NamespacedName::new(meta.namespace.as_deref(), name);
        self.kind.caught_up(&request, &ResourceVersion::new(version)).await
    }

    fn entry_of(&self, view: View) -> Entry<K> {
        Entry { view, core: self.kind.source().clone(), max_bytes: self.max_bytes, decode: PhantomData }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Store<K> {
    /// Declares an index by a function that returns the values under which an object is found;
    /// [`Select::index`] then selects the objects of one value.
    ///
    /// Every new version is decoded as `K` for the function, so declare the index on a [`Store::view`] of a
    /// struct of the few fields that it needs. For an index by metadata, [`UntypedStore::index_label`] and
    /// [`Store::index_view`] are cheaper, because they decode no object. [`Store::index_view`] describes when
    /// the function is called, and how long the index exists.
    ///
    /// # Errors
    /// Fails if the handle has an index of this name by other code. Function pointers of one signature, and
    /// closures from one place, count as the same code: the newer one replaces the older.
    ///
    /// # Examples
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mainstay::cache::{Select, Store};
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize)]
    /// struct Placed {
    ///     spec: Placement,
    /// }
    ///
    /// #[derive(Deserialize)]
    /// #[serde(rename_all = "camelCase")]
    /// struct Placement {
    ///     node_name: Option<String>,
    /// }
    ///
    /// # fn wire(pods: &Store<Pod>) -> Result<(), Box<dyn std::error::Error>> {
    /// pods.view::<Placed>().index("by-node", |pod| pod.spec.node_name.iter().cloned().collect())?;
    /// let of_one_node = pods.list(&Select::index("by-node", "worker-1"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn index(
        &self,
        name: &str,
        function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), IndexError> {
        let limit = self.max_bytes.min(self.kind.core().limits.object);
        self.index_view(name, move |view| {
            view.check_size(limit)?;
            Ok(function(&*view.decode::<K>()?))
        })
    }

    /// Returns one object of the store, decoded; `None` if the store holds no object of this name. Readers of
    /// the same version share one `Arc` while any of them holds it.
    ///
    /// If the latest version of the object cannot be stored, for example because it is no valid object, this
    /// is the version before it. [`KindStatus::left_out`](crate::cache::KindStatus::left_out) names such
    /// objects.
    ///
    /// # Errors
    /// As [`Store::entry`], when the object is longer than `cache.maxObjectBytes`, and when it is not a `K`.
    pub fn get(&self, request: &NamespacedName) -> Result<Option<Arc<K>>, ReadError> {
        self.entry(request)?.map(|entry| entry.decode()).transpose()
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        self.view()
    }
}

// === impl Entry ===

impl<K> Entry<K> {
    /// Returns the metadata of the object, without decoding the object.
    pub fn meta(&self) -> &Meta {
        self.view.meta()
    }

    /// Returns this version of the object as a [`View`], which has no type.
    pub fn view(&self) -> &View {
        &self.view
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Entry<K> {
    /// Decodes the object as a `K`.
    ///
    /// # Errors
    /// Fails when the object is too large to be decoded, or is not a `K`, until the object changes.
    pub fn decode(&self) -> Result<Arc<K>, ReadError> {
        self.view.check_size(self.max_bytes)?;
        self.view.decode().inspect_err(|_| self.core.counts.count_decode_error())
    }
}

impl<K> Current for Entry<K> {
    fn uid(&self) -> Cow<'_, str> {
        self.view.uid()
    }

    fn resource_version(&self) -> Cow<'_, str> {
        self.view.resource_version()
    }

    fn json(&self) -> Bytes {
        self.view.json()
    }

    fn extent(&self) -> Extent {
        self.view.extent()
    }
}
