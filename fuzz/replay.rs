//! Runs a fuzz target over its corpus. Included by the tests of each crate that has fuzz targets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Calls a target with each input in `corpus/NAME`, and fails with the path of the input if the target
/// panics.
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
