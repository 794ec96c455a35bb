//! The list of declared needs, filled while a manager is wired.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Access;

/// The needs that were declared on one manager. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Declarations(Arc<Mutex<Vec<Need>>>);

/// One declared need: an access, and the place that declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// The access that is needed.
    pub access: Access,
    /// The place that declares the need.
    pub place: Place,
}

/// The place in the code or in the configuration that declares a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A line of code.
    Code(&'static Location<'static>),
    /// The path of a key in the configuration, such as `leaderElection.enabled`.
    Setting(&'static str),
    /// The manager itself, whatever is registered with it.
    Manager,
}

// === impl Declarations ===

impl Declarations {
    /// Adds a need to the list, unless an equal one is in it.
    pub fn declare(&self, access: impl Into<Access>, place: Place) {
        let need = Need { access: access.into(), place };
        let mut needs = self.0.lock();
        if !needs.contains(&need) {
            needs.push(need);
        }
    }

    /// Returns all declared needs, in the order of their declaration.
    pub fn needs(&self) -> Vec<Need> {
        self.0.lock().clone()
    }
}

// === impl Place ===

impl Place {
    /// Returns the line of code that calls the function from which this is called.
    #[track_caller]
    pub fn caller() -> Self {
        Self::Code(Location::caller())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(location) => write!(f, "{}:{}", location.file(), location.line()),
            Self::Setting(path) => write!(f, "{path} in the configuration"),
            Self::Manager => f.write_str("every manager"),
        }
    }
}
