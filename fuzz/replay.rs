//! Runs a fuzz target over its corpus. A part of the tests of each crate that has targets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Calls a target with each input of `corpus/NAME`; names the input that it panics at.
pub(super) fn replay(name: &str, target: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        let finding = catch_unwind(AssertUnwindSafe(|| target(&data)));
        assert!(finding.is_ok(), "{} is a finding", path.display());
        count += 1;
    }
    assert!(count > 0, "{} holds no input", folder.display());
}
