//! One text for all who ask at the same time.
//!
//! An answer is held until it has been taken, and a peer that does not read holds it until its time is over. A hundred
//! such peers are to hold the text of a few moments, and not a hundred texts.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Format, Registry};

/// How old what is still being sent may be for another to get it too: far less than any scrape interval.
const SHARED: Duration = Duration::from_secs(1);

/// What is written of one registry.
#[derive(Debug)]
pub(crate) struct Answers {
    registry: Registry,
    /// The last in each form, for as long as anybody holds it: who asks alone is told of this moment.
    last: Mutex<Vec<(Format, Instant, Weak<String>)>>,
}

/// One holder of a text.
struct Held(Arc<String>);

// === impl Answers ===

impl Answers {
    pub(crate) fn new(registry: Registry) -> Self {
        Self { registry, last: Mutex::default() }
    }

    /// Returns all families, as they are or were at most a second ago.
    ///
    /// # Errors
    /// Fails only if a collector does.
    pub(crate) fn answer(&self, format: Format) -> Result<Bytes, fmt::Error> {
        let now = Instant::now();
        let is_recent = |written: Instant| now.saturating_duration_since(written) < SHARED;
        let recent = self.last.lock().iter().find_map(|(of, written, text)| {
            if *of == format && is_recent(*written) { text.upgrade() } else { None }
        });
        if let Some(text) = recent {
            return Ok(Bytes::from_owner(Held(text)));
        }
        let text = Arc::new(self.registry.encode(format)?);
        let mut last = self.last.lock();
        last.retain(|(of, ..)| *of != format);
        last.push((format, now, Arc::downgrade(&text)));
        Ok(Bytes::from_owner(Held(text)))
    }
}

// === impl Held ===

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests;
