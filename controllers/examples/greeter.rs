//! A whole operator: says hello to every `ConfigMap` that is labelled `greet=yes`, and again whenever it changes.
//!
//! `cargo run --example greeter -- run --leader-elect=false` runs it against the cluster of your kubeconfig, such as
//! the one that `cargo run -- dev` starts; `cargo run --example greeter -- --help` shows the commands it got for free.

use k8s_openapi::api::core::v1::ConfigMap;
use mainstay::cache::{Scope, Store};
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::program::Program;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};

struct Greeter {
    maps: Store<ConfigMap>,
}

impl Reconciler for Greeter {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        // Read from the shared cache. An object that is gone is no error: there is nobody left to greet.
        if let Some(map) = self.maps.get(request)? {
            tracing::info!(attempt = cx.attempt(), data = ?map.data, "Hello");
        }
        Ok(Action::Done)
    }
}

fn main() -> std::process::ExitCode {
    Program::new("greeter", env!("CARGO_PKG_VERSION"), "Says hello to ConfigMaps")
        .controllers(["greeter"])
        .setup(|manager| {
            let maps = manager.store::<ConfigMap>(Scope::all().labels("greet=yes".parse()?));
            let controller = Controller::new("greeter").reconciles(&maps);
            manager.register(controller.reconciler(Greeter { maps }))?;
            Ok(())
        })
        .main()
}
