//! Shares one text among scrapes at the same time.
//!
//! A response stays in memory until its peer has read it, or until the answer timeout if the peer does not
//! read. With sharing, a hundred such peers hold a few texts in memory and not a hundred.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Format, Registry};

/// Age up to which the text of one scrape is shared with others: far less than any scrape interval.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Encodes the metrics of a registry for scrapes; scrapes at the same time share one text.
#[derive(Debug)]
pub(crate) struct ScrapeCache {
    registry: Registry,
    /// The last text of the metrics in each format.
    last: Mutex<Vec<LastText>>,
}

/// The format, time and bytes of the text of a scrape. The text lives only while a response holds it, so a
/// scrape without others in progress returns the present values.
type LastText = (Format, Instant, Weak<[u8]>);

// === impl ScrapeCache ===

impl ScrapeCache {
    pub(crate) fn new(registry: Registry) -> Self {
        Self { registry, last: Mutex::default() }
    }

    /// Returns all metric families as text in this format, at most one second old.
    ///
    /// # Errors
    /// Fails only if a collector does.
    pub(crate) fn encode(&self, format: Format) -> Result<Bytes, fmt::Error> {
        let now = Instant::now();
        let is_recent = |written: Instant| now.saturating_duration_since(written) < MAX_AGE;
        let recent = self.last.lock().iter().find_map(|(of, written, text)| {
            if *of == format && is_recent(*written) { text.upgrade() } else { None }
        });
        if let Some(text) = recent {
            return Ok(Bytes::from_owner(text));
        }
        let text: Arc<[u8]> = self.registry.encode(format)?.into_bytes().into();
        let mut last = self.last.lock();
        last.retain(|(of, ..)| *of != format);
        last.push((format, now, Arc::downgrade(&text)));
        Ok(Bytes::from_owner(text))
    }
}

#[cfg(test)]
mod tests;
