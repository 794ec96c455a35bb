//! The section `limits` of the configuration file.

use mainstay::config::Section;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits on the objects of users.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Limits {
    /// The most replicas of one object. Its status shows this limit.
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: i32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_replicas: 10 }
    }
}

impl Section for Limits {}
