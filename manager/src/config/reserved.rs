//! Keys of the format that have nothing behind them in this release.
//!
//! Such a key is accepted with the value that describes what happens anyway and refused with every other, so that
//! nobody believes in a setting that does nothing. **Whoever builds a feature deletes its line here**; the reader in
//! `raw` then no longer compiles and gets its real type.

use super::cursor::{Cursor, one_of};

/// Scrapes are not authenticated.
pub(super) const METRICS_AUTH: Reserved = Reserved(&[("false", Scalar::False)]);
/// Metrics are served in plain text.
pub(super) const METRICS_TLS_DIR: Reserved = Reserved(&[("\"\"", Scalar::Text(""))]);
/// Debug pages are served to loopback only, and to whoever is there.
pub(super) const INSPECT_TOKEN_FILE: Reserved = Reserved(&[("\"\"", Scalar::Text(""))]);

/// What a key without a feature still accepts, each value with how it is written.
#[derive(Debug)]
pub(super) struct Reserved(&'static [(&'static str, Scalar)]);

#[derive(Debug)]
enum Scalar {
    False,
    Text(&'static str),
}

// === impl Reserved ===

impl Reserved {
    /// Refuses every value but those accepted.
    pub(super) fn check(&self, cursor: &Cursor<'_>) {
        let accepted = self.0.iter().any(|(_, scalar)| match scalar {
            Scalar::False => cursor.is_false(),
            Scalar::Text(text) => cursor.is_text(text),
        });
        if !accepted {
            let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
            cursor.refuse(format_args!("{}, the only choice in this release", one_of(&names)));
        }
    }
}
