//! Checks of the source tree: rooms import downwards only, and crates depend only on the crates that they may
//! use.
//!
//! The tests read the sources as text, because the compiler allows any import within a crate. Text is enough,
//! because by the style of this code every path into another room begins with `crate::`.

mod book;
mod guides;
mod imports;
mod operators;
mod packages;
mod reasons;
mod templates;

use std::fs;
use std::path::{Path, PathBuf};

use self::imports::{imports, without_comments};

/// The rooms (modules) of one folder, top to bottom. A room may import the rooms after it.
struct House {
    source: &'static str,
    /// The prefix of every import path into these rooms.
    prefix: &'static str,
    /// Whether the rule about imports also applies to test files.
    with_tests: bool,
    rooms: &'static [&'static str],
}

const RUNTIME: House = House {
    source: "manager/src",
    prefix: "crate::",
    with_tests: true,
    rooms: &[
        "prelude",
        "program",
        "testing",
        "manager",
        "inspect",
        "config",
        "controller",
        "watch",
        "reconcile",
        "cache",
        "election",
        "client",
        "queue",
        "health",
        "metrics",
        "serve",
        "rbac",
        "key",
        "util",
    ],
};

/// The rooms of the cache. Every module except the other three counts as `face`, the public part above them.
const CACHE: House = House {
    source: "manager/src/cache",
    prefix: "crate::cache::",
    with_tests: false,
    rooms: &["face", "informer", "store", "object"],
};

const CONTROLLERS: House = House {
    source: "controllers/src",
    prefix: "crate::",
    with_tests: true,
    rooms: &[
        "program",
        "dev",
        "scaffold",
        "register",
        "why",
        "wait_deployment",
        "status_mirror",
        "status",
        "conditions",
        "deployment",
        "dependency",
        "settings",
        "selector",
        "reasons",
    ],
};

const DEVCLUSTER: House = House {
    source: "devcluster/src",
    prefix: "crate::",
    with_tests: false,
    rooms: &[
        "command",
        "dev_cluster",
        "embedded",
        "server",
        "workloads",
        "api",
        "kinds",
        "store",
        "outgoing",
        "real",
        "authority",
        "port",
    ],
};

/// The folder of each crate, and the crates of this workspace that it may depend on, dev-dependencies
/// included.
const CRATES: [(&str, &[&str]); 6] = [
    ("api", &[]),
    ("devcluster", &[]),
    ("manager", &["mainstay", "mainstay-devcluster"]),
    ("controllers", &["mainstay", "mainstay-api", "mainstay-devcluster"]),
    ("operators", &["mainstay", "mainstay-devcluster"]),
    (
        "tests",
        &["mainstay", "mainstay-api", "mainstay-controllers", "mainstay-devcluster", "mainstay-operators"],
    ),
];

#[test]
fn rooms_import_downwards_only() {
    let mut wrong = Vec::new();
    for house in [RUNTIME, CACHE, CONTROLLERS, DEVCLUSTER] {
        let folder = workspace().join(house.source);
        for file in rust_files(&folder) {
            let relative = file.strip_prefix(&folder).expect("below the source folder");
            let place = relative.display();
            let room = relative.iter().next().map(Path::new).and_then(Path::file_stem);
            let room = room.expect("a file has a name").to_string_lossy();
            if room == "lib" || room == "main" || (!house.with_tests && is_test(relative)) {
                continue;
            }
            let own = house
                .height(&room)
                .unwrap_or_else(|| panic!("{}/{room} is no room; add it to the list", house.source));
            for import in imports(&fs::read_to_string(&file).expect("a readable source"), house.prefix) {
                // An item that the library re-exports at its root is an error, because its path hides its
                // room.
                match house.height(&import) {
                    Some(imported) if imported >= own => {}
                    Some(_) => wrong.push(format!("{}/{place} imports {import}, above it", house.source)),
                    None => {
                        wrong.push(format!("{}/{place}: {}{import} is no room", house.source, house.prefix));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports of a room above:\n{}", wrong.join("\n"));
}

fn is_test(file: &Path) -> bool {
    file.iter().any(|part| part == "tests" || part == "tests.rs")
}

// === impl House ===

impl House {
    /// Returns the position of a room in the list, 0 for the top.
    fn height(&self, room: &str) -> Option<usize> {
        let found = self.rooms.iter().position(|name| *name == room);
        found.or_else(|| self.rooms.iter().position(|name| *name == "face"))
    }
}

#[test]
fn crates_depend_only_on_crates_below_them() {
    for (folder, allowed) in CRATES {
        let manifest = fs::read_to_string(workspace().join(folder).join("Cargo.toml")).expect("a manifest");
        let ours = manifest.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        let ours: Vec<_> = ours.filter(|name| *name == "mainstay" || name.starts_with("mainstay-")).collect();
        for name in ours {
            assert!(allowed.contains(&name), "crate {folder} depends on {name}, which is not below it");
        }
    }
}

/// The product compiles and its tests run on other systems than Linux too, so a system call that only Linux
/// has is in `util/os`, next to its fallback. The text of a call does not show which systems rustix offers it
/// on, so all calls of rustix belong there.
#[test]
fn calls_of_the_operating_system_stand_in_util_os() {
    const ALLOWED: [&str; 5] = [
        "manager/src/util/os.rs",
        "manager/src/util/os/",
        // Chooses the allocator.
        "controllers/src/main.rs",
        // Both send a signal.
        "devcluster/src/command.rs",
        "devcluster/src/real/process.rs",
    ];
    let mut wrong = Vec::new();
    for (folder, _) in CRATES.iter().filter(|(folder, _)| *folder != "tests") {
        for file in rust_files(&workspace().join(folder).join("src")) {
            let relative = file.strip_prefix(workspace()).expect("below the workspace").display().to_string();
            if ALLOWED.iter().any(|allowed| relative.starts_with(allowed)) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a readable source");
            wrong.extend(system_calls(&text).map(|word| format!("{relative}: {word}")));
        }
    }
    assert!(wrong.is_empty(), "calls of the operating system outside util/os:\n{}", wrong.join("\n"));
}

#[test]
fn calls_by_crate_file_and_cfg_are_all_found() {
    let found = |source| system_calls(source).collect::<Vec<_>>();
    assert_eq!(found("use rustix::fs::open; // libc::open"), ["rustix"]);
    assert_eq!(found("let limit = nix::unistd::getpid();"), ["nix"]);
    assert_eq!(found("fs::read(\"/proc/self/stat\")"), ["/proc/"]);
    assert_eq!(found("#[cfg(target_os = \"linux\")]"), ["target_os"]);
    assert_eq!(found("use std::os::linux::fs::MetadataExt as _;"), ["os::linux"]);
    assert!(found("use std::os::unix::fs::MetadataExt as _;\nlet unlinked = phoenix();").is_empty());
}

/// Returns the words in a source that indicate a call of the operating system.
fn system_calls(source: &str) -> impl Iterator<Item = &'static str> {
    const WORDS: [&str; 10] = [
        "rustix",
        "libc",
        "nix",
        "socket2",
        "inotify",
        "os::linux",
        "target_os",
        "mainstay_portable",
        "/proc/",
        "/sys/",
    ];
    let code = without_comments(source);
    let in_name = |character: char| character.is_alphanumeric() || character == '_';
    WORDS.into_iter().filter(move |word| {
        code.match_indices(word).any(|(at, _)| {
            let (before, after) = (&code[..at], &code[at + word.len()..]);
            !word.starts_with(in_name) || !(before.ends_with(in_name) || after.starts_with(in_name))
        })
    })
}

/// The runtime is for the controllers of any program, so its sources must not name the controllers of this
/// workspace.
#[test]
fn the_runtime_names_no_built_in_controller_kind_or_policy() {
    const NAMES: [&str; 10] = [
        "waitdeployment",
        "wait-deployment",
        "wait_deployment",
        "probepolicy",
        "probe_policy",
        "statusmirror",
        "status-mirror",
        "status_mirror",
        "waitprobe",
        "notpassedon",
    ];
    let folder = workspace().join("manager");
    let files = ["src", "examples", "benches"].iter().flat_map(|part| rust_files(&folder.join(part)));
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable source").to_lowercase();
        let found = NAMES.iter().filter(|name| text.contains(**name));
        wrong.extend(found.map(|name| format!("{}: {name}", file.display())));
    }
    assert!(wrong.is_empty(), "names of built-in controllers in the runtime:\n{}", wrong.join("\n"));
}

/// Test code has files of its own, so that a file of the product contains only product code.
#[test]
fn test_code_stands_in_tests_files() {
    let mut wrong = Vec::new();
    for (folder, _) in CRATES.iter().filter(|(folder, _)| *folder != "tests") {
        let source = workspace().join(folder).join("src");
        for file in rust_files(&source) {
            if file.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs"))) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a readable source");
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for pair in lines.windows(2).filter(|pair| pair[0].starts_with("#[cfg(test)]")) {
                if !pair[1].ends_with("mod tests;") {
                    wrong.push(format!("{}: {}", file.display(), pair[1]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "test code outside tests.rs and tests/:\n{}", wrong.join("\n"));
}

/// Without a test that replays its corpus, a fuzz target protects against regressions only while it is
/// fuzzed.
#[test]
fn every_fuzz_target_has_a_corpus_that_a_test_replays() {
    let folders = CRATES.map(|(folder, _)| workspace().join(folder));
    let sources = folders.iter().flat_map(|folder| rust_files(folder));
    let code: String = sources.map(|file| fs::read_to_string(file).expect("a readable source")).collect();
    let targets = rust_files(&workspace().join("fuzz/fuzz_targets"));
    assert!(!targets.is_empty(), "there are no targets");
    for target in targets {
        let name = target.file_stem().expect("a name").to_string_lossy();
        assert!(code.contains(&format!("replay(\"{name}\", ")), "no test replays {name}");
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
