//! The conversion of objects between the versions of a resource.

use std::sync::Arc;

use serde_json::Value;

use super::response::Object;
use super::served::Served;
use super::{Api, Status};
use crate::store::Version;

// === impl Api ===

impl Api {
    /// Returns a stored object in a version.
    pub(super) async fn view(&self, served: &Arc<Served>, version: &Arc<Version>) -> Result<Object, Status> {
        Ok(served.view(version))
    }

    /// Converts objects of other versions to a version.
    pub(super) async fn convert_objects(
        &self,
        served: &Arc<Served>,
        objects: &mut [Value],
    ) -> Result<(), Status> {
        for object in objects {
            served.rename(object);
        }
        Ok(())
    }
}
