//! The conversion of objects between the versions of a custom resource by its webhook.
//!
//! Stored objects are converted before they are read, all of a list in one call, and keep the result: it is
//! as immutable as they are. Reading itself, [`Served::view`], then waits for nothing. Resources without a
//! conversion webhook take no part in this.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::call::Call;
use super::client_config::CallError;
use super::object;
use super::response::Object;
use super::served::Served;
use super::watch::Converter;
use super::{Api, Status};
use crate::kinds::{apply, custom};
use crate::store::Version;

/// The timeout of a conversion, in seconds.
const TIMEOUT: u64 = 30;

/// The objects in other versions that the owners of fields need in one write.
#[derive(Debug, Default)]
pub(super) struct Conversions(Mutex<Needed>);

#[derive(Debug, Default)]
struct Needed {
    /// Versions, objects and the objects in these versions.
    known: Vec<(String, Value, Value)>,
    /// Versions and objects that are still to be converted.
    missing: Vec<(String, Value)>,
}

// === impl Api ===

impl Api {
    /// Converts stored objects to a version, unless they have been converted before.
    pub(super) async fn prepare<'a>(
        &self,
        served: &Served,
        versions: impl Iterator<Item = &'a Arc<Version>>,
    ) -> Result<(), Status> {
        let Some(custom) = served.custom.as_ref().filter(|_| served.converts()) else {
            return Ok(());
        };
        let missing: Vec<_> = versions.filter(|version| served.lacks(version)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let stored = missing.iter().map(|version| {
            let mut value = version.value().clone();
            if object::text(&value, "apiVersion") == custom.storage.api_version {
                custom.storage.convert(&mut value);
            }
            served.settle(&mut value);
            value
        });
        let converted = self.call_conversion(served, stored.collect()).await?;
        for (version, mut value) in missing.iter().zip(converted) {
            served.settle(&mut value);
            version.set_derived(served.api_version(), custom.defined_at, Arc::new(value));
        }
        Ok(())
    }

    /// Returns a stored object in a version.
    pub(super) async fn view(&self, served: &Served, version: &Arc<Version>) -> Result<Object, Status> {
        self.prepare(served, std::iter::once(version)).await?;
        Ok(served.view(version))
    }

    /// Returns an object as it is stored.
    pub(super) async fn stored(&self, served: &Served, value: Value) -> Result<Value, Status> {
        let Some(storage) = self.storage_version(served) else { return Ok(served.to_storage(value)) };
        let mut value = [value];
        self.convert_objects(&storage, &mut value).await?;
        let [value] = value;
        Ok(value)
    }

    /// Returns the storage version of a resource with a conversion webhook, unless it is this version; `None`
    /// for all other resources.
    pub(super) fn storage_version(&self, served: &Served) -> Option<Arc<Served>> {
        served.custom.as_ref()?.conversion.as_ref()?;
        let registry = self.registry();
        let storage = registry.any_version(&served.kind.group, &served.kind.plural)?;
        (storage.api_version() != served.api_version()).then(|| Arc::clone(storage))
    }

    /// Returns an object of an answer in the version of the request, if it was `stored` in another one.
    pub(super) async fn answer_in(
        &self,
        served: &Served,
        stored: bool,
        object: Object,
    ) -> Result<Object, Status> {
        if !stored || object::text(object.value(), "kind") != served.kind.kind {
            return Ok(object);
        }
        let mut value = [object.value().clone()];
        self.convert_objects(served, &mut value).await?;
        let [value] = value;
        Ok(Object::Made(Arc::new(value)))
    }

    /// Returns what converts the objects of a watch; `None` if none is needed.
    pub(super) fn converter(&self, served: &Arc<Served>) -> Option<Converter> {
        served.custom.as_ref()?.conversion.as_ref()?;
        let (api, served) = (self.clone(), Arc::clone(served));
        Some(Arc::new(move |versions| {
            let (api, served) = (api.clone(), Arc::clone(&served));
            Box::pin(async move { api.prepare(&served, versions.iter()).await })
        }))
    }

    /// Converts objects of any version to a version.
    pub(super) async fn convert_objects(&self, served: &Served, objects: &mut [Value]) -> Result<(), Status> {
        if !served.converts() {
            for object in objects {
                served.rename(object);
            }
            return Ok(());
        }
        let other = |value: &&mut Value| object::text(value, "apiVersion") != served.api_version();
        let others: Vec<_> = objects.iter_mut().filter(other).collect();
        if others.is_empty() {
            return Ok(());
        }
        let sent = others.iter().map(|value| Value::clone(value)).collect();
        for (value, converted) in others.into_iter().zip(self.call_conversion(served, sent).await?) {
            *value = converted;
        }
        Ok(())
    }

    /// Converts what the owners of fields have asked for. Returns whether they had asked.
    pub(super) async fn convert_missing(&self, call: &Call) -> Result<bool, Status> {
        let missing = std::mem::take(&mut call.conversions.0.lock().missing);
        let kind = &call.served.kind;
        let asked = !missing.is_empty();
        for (api_version, object) in missing {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            let mut value = [object.clone()];
            if let Some(served) = self.served(&kind.group, version, &kind.plural) {
                self.convert_objects(&served, &mut value).await?;
            }
            let [value] = value;
            call.conversions.set(&api_version, object, value);
        }
        Ok(asked)
    }

    /// Lets the webhook convert objects to a version.
    async fn call_conversion(&self, served: &Served, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let conversion = served.custom.as_ref().and_then(|custom| custom.conversion.as_ref());
        let Some(conversion) = conversion else { return Ok(objects) };
        let uid = self.random(object::uid);
        let review = conversion.review(&uid, served.api_version(), &objects).map_err(Status::unclassified)?;
        let answer = self.post_review(&conversion.client_config, &review, TIMEOUT).await;
        let answer = answer.map_err(|error| match error {
            CallError::Client(error) => Status::unclassified(error),
            CallError::Request(error) => {
                let kind = objects.first().map(|of| object::text(of, "kind")).unwrap_or_default();
                let version = objects.first().map(|of| object::text(of, "apiVersion")).unwrap_or_default();
                let message = format!("conversion webhook for {version}, Kind={kind} failed: {error}");
                Status::unclassified(message)
            }
        })?;
        let mut converted = custom::converted(&review, answer).map_err(Status::unclassified)?;
        for value in &mut converted {
            served.rename(value);
        }
        Ok(converted)
    }
}

// === impl Conversions ===

impl Conversions {
    fn set(&self, api_version: &str, object: Value, converted: Value) {
        self.0.lock().known.push((api_version.to_owned(), object, converted));
    }
}

impl apply::Converter for Conversions {
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let mut conversions = self.0.lock();
        let known = conversions.known.iter().find(|(version, of, _)| version == api_version && of == object);
        let known = known.map(|(.., converted)| converted.clone());
        if known.is_none() {
            conversions.missing.push((api_version.to_owned(), object.clone()));
        }
        known
    }
}

// === impl Served ===

impl Served {
    /// Returns whether a stored object is still to be converted to this version.
    fn lacks(&self, version: &Version) -> bool {
        let since = self.custom.as_ref().map_or(0, |custom| custom.defined_at);
        object::text(version.value(), "apiVersion") != self.api_version()
            && version.derived(self.api_version(), since).is_none()
    }
}
