use super::*;

fn arguments(executable: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let (package, below) = (folder.path().join("shop"), folder.path().join("shop/src/bin"));
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(package.join("Cargo.toml"), "").unwrap();
    let build = Build::of(Path::new(executable), &below).unwrap();
    assert_eq!(build.package(), package);
    let manifest = build.manifest.into_os_string();
    build
        .arguments
        .iter()
        .filter(|word| **word != manifest)
        .map(|word| word.to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_program_is_built_as_it_was() {
    let same = ["build", "--message-format", "json-render-diagnostics", "--manifest-path"];
    assert_eq!(arguments("/shop/target/debug/shop"), [&same[..], &["--bin", "shop"]].concat());
    let example = ["--example", "tea", "--profile", "release"];
    assert_eq!(arguments("/shop/target/arm/release/examples/tea"), [&same[..], &example].concat());
}

#[test]
fn a_folder_without_a_package_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = Build::of(Path::new("/bin/shop"), folder.path()).unwrap_err();
    assert!(
        error.starts_with(&format!("{}: no Cargo.toml here or above", folder.path().display())),
        "{error}"
    );
}

#[test]
fn a_package_without_the_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/main.rs"), "fn main() {}").unwrap();
    std::fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"shop\"\n").unwrap();
    let check = |program: &str| Build::of(Path::new(program), folder.path()).unwrap().check();
    check("/shop/target/debug/shop").unwrap();
    let expected = format!("{}/Cargo.toml: no program mainstay; ", folder.path().display());
    let error = check("/usr/local/bin/mainstay").unwrap_err();
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn messages_of_cargo_name_the_executable_and_the_sources_on_this_machine() {
    let build = Build { manifest: "/shop/Cargo.toml".into(), target: "shop".into(), arguments: Vec::new() };
    let messages = r#"
{"reason":"compiler-artifact","package_id":"registry+https://x#serde@1.0.0","manifest_path":"/r/serde/Cargo.toml","target":{"name":"serde","src_path":"/r/serde/src/lib.rs"},"executable":null}
{"reason":"compiler-artifact","package_id":"path+file:///tea#0.1.0","manifest_path":"/tea/Cargo.toml","target":{"name":"tea","src_path":"/tea/lib/tea.rs"},"executable":null}
{"reason":"compiler-artifact","package_id":"path+file:///tea#0.1.0","manifest_path":"/tea/Cargo.toml","target":{"name":"build-script-build","src_path":"/tea/build.rs"},"executable":null}
{"reason":"build-script-executed","package_id":"path+file:///tea#0.1.0"}
not JSON
{"reason":"compiler-artifact","package_id":"path+file:///shop#0.1.0","manifest_path":"/shop/Cargo.toml","target":{"name":"shop","src_path":"/shop/examples/shop.rs"},"executable":"/shop/target/debug/examples/shop"}
{"reason":"build-finished","success":true}
"#;
    let mut expected: BTreeSet<_> = ["/tea/lib", "/shop/examples"].map(PathBuf::from).into();
    expected.extend(["/tea", "/shop"].iter().flat_map(|folder| sources::of_package(Path::new(folder))));
    let Built { executable, sources: found } = build.built(messages);
    assert_eq!(executable, Some("/shop/target/debug/examples/shop".into()));
    assert_eq!(found, expected);
}
