//! `dev --watch`: a saved file rebuilds and restarts the manager, and the cluster stays.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use mainstay::client::infer;
use mainstay_tests::greetings::{self, Greeting, GreetingSpec};
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::{Terminal, wait};
use tokio::process::Command;
use tokio::time::Instant;

use crate::dev::{children, runs};

const SAMPLE: &str = "apiVersion: test.mainstay.dev/v1\nkind: Greeting\nmetadata: {name: first}\n\
    spec: {name: world}\n";

/// The seconds from a save to the reconcile of the new program, without the build: ten times what is promised.
const SLOWEST_RESTART: f64 = 10.0;

/// A package whose source is the word of the greetings, and a cargo that builds it at once.
struct Package(tempfile::TempDir);

// === impl Package ===

impl Package {
    fn new(word: &str) -> Self {
        let package = Self(tempfile::tempdir().expect("a folder"));
        let folder = package.0.path().display();
        let (binary, variable) = (env!("CARGO_BIN_EXE_mainstay-under-test"), greetings::VARIABLE);
        let cargo = format!(
            r#"#!/bin/sh
set -e
if [ "$1" = metadata ]; then
    echo '{{"packages":[{{"targets":[{{"name":"mainstay-under-test","src_path":"{folder}/src/word"}}]}}]}}'
    exit
fi
word=$(cat {folder}/src/word)
if [ "$word" = broken ]; then echo "error: a broken word" >&2; exit 101; fi
program={folder}/target/$word
printf '#!/bin/sh\n{variable}=%s exec {binary} "$@"\n' "$word" >"$program"
chmod +x "$program"
printf '{{"reason":"compiler-artifact","package_id":"path+file://{folder}",'
printf '"manifest_path":"{folder}/Cargo.toml",'
printf '"target":{{"name":"mainstay-under-test","src_path":"{folder}/src/word"}},'
printf '"executable":"%s"}}\n' "$program"
"#
        );
        for folder in ["src", "target", "samples"] {
            fs::create_dir(package.path(folder)).expect("a folder");
        }
        package.save("Cargo.toml", "");
        package.save("src/word", word);
        package.save("samples/first.yaml", SAMPLE);
        package.save("cargo", &cargo);
        fs::set_permissions(package.path("cargo"), fs::Permissions::from_mode(0o755)).expect("a program");
        package
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn save(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a written file");
    }

    /// Starts `dev --watch` in the package.
    fn dev(&self) -> Terminal {
        self.dev_with(&[])
    }

    fn dev_with(&self, flags: &[&str]) -> Terminal {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
        command.args(["dev", "--watch"]).args(flags).current_dir(self.0.path());
        command.env(greetings::VARIABLE, "unbuilt").env("CARGO", self.path("cargo"));
        // A killed process cannot remove the folder of its cluster.
        command.env("TMPDIR", self.0.path());
        command.env_remove("CARGO_MANIFEST_DIR");
        Terminal::run(command)
    }
}

/// Reads the story until a line has this text.
async fn until(dev: &mut Terminal, text: &str) -> String {
    let line = dev.line_with(text).await;
    assert!(line.is_some(), "dev ended before {text:?}: {:#?}", dev.printed());
    line.unwrap_or_default()
}

/// Returns the path of the kubeconfig that `dev` prints.
async fn kubeconfig(dev: &mut Terminal) -> PathBuf {
    let ready = until(dev, "export KUBECONFIG=").await;
    ready.split_once("export KUBECONFIG=").expect("the path of a kubeconfig").1.into()
}

/// Returns a client of the cluster of `dev`.
async fn client(dev: &mut Terminal) -> Client {
    let config = infer(Some(&kubeconfig(dev).await), None).await.expect("a kubeconfig");
    Client::try_from(config).expect("a client")
}

/// Returns the seconds in the line about the end of a build.
fn build_seconds(line: &str) -> f64 {
    line.split(' ').rev().nth(1).and_then(|word| word.parse().ok()).expect("seconds")
}

/// Returns the revision of the cluster.
async fn revision(client: &Client) -> u64 {
    let maps = Api::<ConfigMap>::all(client.clone()).list(&ListParams::default()).await.expect("a list");
    maps.metadata.resource_version.and_then(|version| version.parse().ok()).expect("a number")
}

#[tokio::test]
async fn a_save_replaces_the_manager_and_keeps_the_cluster() {
    let package = Package::new("hello");
    let mut dev = package.dev();
    let client = client(&mut dev).await;
    let greetings = Api::<Greeting>::default_namespaced(client.clone());
    until(&mut dev, "the cluster ends with the command: true").await;
    until(&mut dev, "Greeting default/first: status greeting=\"hello world\"").await;
    let (uid, before) = (greetings.get("first").await.expect("the sample").uid(), revision(&client).await);

    let saved = Instant::now();
    package.save("src/word", "moin");
    let took = build_seconds(&until(&mut dev, "built in ").await);
    until(&mut dev, "Greeting default/first: status greeting=\"moin world\"").await;
    let restart = saved.elapsed().as_secs_f64() - took;
    figure("dev.watch.restart", restart, "s");
    assert!(restart < SLOWEST_RESTART);
    assert_eq!(greetings.get("first").await.expect("the same object").uid(), uid);
    assert!(revision(&client).await > before);
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let names = crds.get("greetings.test.mainstay.dev").await.expect("the definition").spec.names;
    assert_eq!(names.short_names, Some(vec!["moin".to_owned()]), "the definition of the new program");

    package.save("src/word", "broken");
    until(&mut dev, "the build failed; the manager before it runs on").await;
    let second = Greeting::new("second", GreetingSpec { name: "you".to_owned() });
    greetings.create(&PostParams::default(), &second).await.expect("created");
    until(&mut dev, "Greeting default/second: status greeting=\"moin you\"").await;

    package.save("src/word", greetings::CRASH);
    until(&mut dev, "the manager ended by itself (exit status: 1)").await;
    package.save("src/word", "hello");
    until(&mut dev, "Greeting default/first: status greeting=\"hello world\"").await;

    package.save("samples/first.yaml", &SAMPLE.replace("world", "everyone"));
    until(&mut dev, "Greeting default/first: status greeting=\"hello everyone\"").await;

    let programs = children(dev.id());
    assert_eq!(programs.len(), 1, "{programs:?}");
    dev.interrupt();
    let (status, errors) = dev.ended().await;
    assert!(status.success(), "{status}: {errors}");
    assert!(!runs(programs[0]));
    let expected = ["error: a broken word", "error: the word is a crash"];
    assert_eq!(errors.lines().filter(|line| line.starts_with("error")).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_watcher_uses_a_given_cluster_which_stays() {
    let (other, package) = (Package::new("hello"), Package::new("moin"));
    let mut cluster = other.dev();
    let path = kubeconfig(&mut cluster).await;
    let mut dev = package.dev_with(&["--kubeconfig", &path.to_string_lossy()]);
    until(&mut dev, "the cluster ends with the command: false").await;
    dev.interrupt();
    let (status, errors) = dev.ended().await;
    assert!(status.success(), "{status}: {errors}");
    assert!(path.is_file());
}

#[tokio::test]
async fn a_killed_watcher_leaves_no_manager() {
    let package = Package::new("hello");
    let mut dev = package.dev();
    until(&mut dev, "greeter: first reconcile of default/first").await;
    let programs = children(dev.id());
    drop(dev);
    let gone = async {
        while programs.iter().any(|id| runs(*id)) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(wait::PATIENCE, gone).await.expect("the manager ends with its parent");
}

#[tokio::test]
async fn a_folder_without_a_package_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
    command.args(["dev", "--watch"]).current_dir(&folder).env_remove("CARGO_MANIFEST_DIR");
    let mut dev = Terminal::run(command);
    let (status, errors) = dev.ended().await;
    assert_eq!(status.code(), Some(2));
    let expected = "no Cargo.toml here or above; --watch builds the program with cargo in its package\n";
    assert_eq!(errors, format!("error: {}: {expected}", folder.path().display()));
}

/// A program of one controller, in a package that cargo builds.
const PROGRAM: &str = r#"
use k8s_openapi::api::core::v1::ConfigMap;
use mainstay::prelude::*;

struct Greeter;

impl Reconciler for Greeter {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome {
        tracing::info!("hello");
        Ok(Action::Done)
    }
}

fn setup(manager: &Manager) -> Result<(), BoxError> {
    let maps = manager.store::<ConfigMap>(Scope::all());
    manager.register(Controller::new("greeter").reconciles(&maps).reconciler(Greeter))?;
    Ok(())
}

fn main() -> ExitCode {
    Program::new("watched", "1.0.0", "Says hello").controllers(["greeter"]).setup(setup).main()
}
"#;

/// Builds a package with cargo, which takes minutes; so only in the long form.
#[tokio::test]
async fn cargo_rebuilds_a_saved_program() {
    if !long_form() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let manifest = format!(
        "[workspace]\n[package]\nname = \"watched\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[dependencies]\n\
         k8s-openapi = {{ version = \"*\", default-features = false, features = [\"latest\"] }}\n\
         mainstay = {{ path = \"{}\", features = [\"dev\"] }}\n\
         tracing = {{ version = \"*\", default-features = false }}\n\
         [profile.dev]\ndebug = \"line-tables-only\"\nsplit-debuginfo = \"unpacked\"\n\
         [profile.dev.package.\"*\"]\ndebug = false\n",
        root.join("manager").display()
    );
    fs::create_dir(folder.path().join("src")).expect("a folder");
    fs::write(folder.path().join("Cargo.toml"), manifest).expect("a manifest");
    fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).expect("the same versions");
    let main = folder.path().join("src/main.rs");
    fs::write(&main, PROGRAM).expect("a program");
    // The target folder of the tests, with the same profile, so that most packages are built already.
    let target = Path::new(env!("CARGO_BIN_EXE_mainstay-under-test")).ancestors().nth(2).expect("a folder");
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command.env("CARGO_TARGET_DIR", target);
        command.args(arguments).current_dir(&folder).env_remove("CARGO_MANIFEST_DIR");
        command
    };
    let status = cargo(&["build"]).status().await.expect("cargo");
    assert!(status.success());
    let mut dev = Terminal::run(cargo(&["run", "--", "dev", "--watch"]));
    until(&mut dev, "greeter: first reconcile of ").await;

    let saved = Instant::now();
    fs::write(&main, PROGRAM.replace("\"greeter\"", "\"renamed\"")).expect("a saved program");
    until(&mut dev, "building the program").await;
    let took = build_seconds(&until(&mut dev, "built in ").await);
    until(&mut dev, "renamed: first reconcile of ").await;
    figure("dev.watch.cargo.build", took, "s");
    let restart = saved.elapsed().as_secs_f64() - took;
    figure("dev.watch.cargo.restart", restart, "s");
    assert!(restart < SLOWEST_RESTART);
    dev.interrupt();
    let (status, errors) = dev.ended().await;
    assert!(status.success(), "{status}: {errors}");
}
