//! A whole operator: logs the data of every `ConfigMap` with the label `greet=yes`, and again after each
//! change.
//!
//! `cargo run --example greeter -- run --leader-elect=false` runs it against the cluster of your kubeconfig,
//! such as the one that `cargo run -- dev` starts; `cargo run --example greeter -- --help` shows its
//! commands.

use k8s_openapi::api::core::v1::ConfigMap;
use mainstay::prelude::*;

struct Greeter(Store<ConfigMap>);

impl Reconciler for Greeter {
    async fn reconcile(&self, name: &NamespacedName, _cx: &Context) -> Outcome {
        if let Some(map) = self.0.get(name)? {
            tracing::info!(data = ?map.data, "Hello");
        }
        Ok(Action::Done)
    }
}

pub(crate) fn setup(manager: &Manager) -> Result<(), BoxError> {
    let maps = manager.store(Scope::all().labels("greet=yes".parse()?));
    manager.register(Controller::new("greeter").reconciles(&maps).reconciler(Greeter(maps)))?;
    Ok(())
}

fn main() -> ExitCode {
    Program::new("greeter", env!("CARGO_PKG_VERSION"), "Says hello to ConfigMaps")
        .controllers(["greeter"])
        .setup(setup)
        .main()
}
