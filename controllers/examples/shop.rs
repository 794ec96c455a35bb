//! A program with a section of its own in the configuration file, and its tests beside it.
//!
//! `cargo run --example shop -- config print-defaults` prints the file with the section explained, and
//! `cargo run --example shop -- run --leader-elect=false --config manager.yaml` follows it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use mainstay::cache::{LabelSelector, Scope, Store};
use mainstay::config::{Duration, Problem, Section};
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::program::Program;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// How orders are handled.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct ShopConfig {
    /// The most items of one order.
    #[schemars(range(min = 1, max = 1000))]
    max_items: u32,
    /// Time between two checks of an order.
    #[schemars(extend("x-mainstay-range" = ["1s", "24h"]))]
    period: Duration,
    /// Label that orders have. Objects without it are not watched.
    order_label: String,
}

impl Default for ShopConfig {
    fn default() -> Self {
        Self { max_items: 10, period: Duration::from_secs(60), order_label: "order".into() }
    }
}

impl Section for ShopConfig {
    // The watch is set up once.
    const RESTART: &'static [&'static str] = &["orderLabel"];

    fn validate(&self) -> Vec<Problem> {
        let label = &self.order_label;
        let is_wrong = label.is_empty() || label.parse::<LabelSelector>().is_err();
        is_wrong.then(|| Problem::new("orderLabel", label, "a label")).into_iter().collect()
    }
}

struct Orders {
    maps: Store<ConfigMap>,
    config: watch::Receiver<Arc<ShopConfig>>,
}

impl Reconciler for Orders {
    async fn reconcile(&self, request: &NamespacedName, _: &Context) -> Outcome {
        let config = Arc::clone(&self.config.borrow());
        let items =
            self.maps.get(request)?.and_then(|map| map.data.as_ref().map(std::collections::BTreeMap::len));
        if items.is_some_and(|items| items > config.max_items as usize) {
            tracing::warn!(items, most = config.max_items, "too large an order");
        }
        Ok(Action::RequeueAfter(*config.period))
    }
}

fn shop() -> Program {
    Program::new("shop", env!("CARGO_PKG_VERSION"), "Handles orders")
        .controllers(["orders"])
        .section::<ShopConfig>("shop")
        .setup(|manager| {
            let config = manager.section::<ShopConfig>("shop")?;
            let label = config.borrow().order_label.parse()?;
            let maps = manager.store::<ConfigMap>(Scope::all().labels(label));
            let controller = Controller::new("orders").reconciles(&maps);
            manager.register(controller.reconciler(Orders { maps, config }))?;
            Ok(())
        })
}

fn main() -> std::process::ExitCode {
    shop().main()
}

#[cfg(test)]
mod tests {
    use mainstay::config::{ConfigSource, Overrides};
    use mainstay::manager::{Manager, ManagerOptions};

    use super::*;

    const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
        leaderElection: {enabled: false}\nhealth: {bindAddress: \"\"}\nmetrics: {bindAddress: \"\"}\n\
        inspect: {bindAddress: \"\"}\n";

    fn refused(body: &str) -> Vec<String> {
        let error = shop().schema().parse(&format!("{HEAD}{body}"), "m.yaml", &Overrides::default());
        error.map(drop).unwrap_err().lines()
    }

    #[test]
    fn the_section_is_strict_and_refused_together_with_mistakes_elsewhere() {
        assert_eq!(
            refused("shop: {maxItem: 5}\n"),
            ["m.yaml:7:8: shop.maxItem: unknown key, set to 5; did you mean maxItems?"]
        );
        // A label that setup could not parse at the next start is refused when the file is saved.
        assert_eq!(
            refused("shop: {orderLabel: \"a=(b\"}\n"),
            [r#"m.yaml: shop.orderLabel: "a=(b"; expected a label"#]
        );
        assert_eq!(
            refused("shop: {maxItems: 0, orderLabel: \"\"}\ncontrollers: {order: {workers: 0}}\n"),
            [
                "m.yaml: controllers.order: unknown controller; expected orders or \"*\"; did you mean \
                 orders?",
                "m.yaml: controllers.order.workers: 0; expected a whole number from 1 to 1000",
                "m.yaml: shop.maxItems: 0; expected a whole number from 1 to 1000",
                r#"m.yaml: shop.orderLabel: ""; expected a label"#,
            ]
        );
    }

    #[test]
    fn the_printed_defaults_and_the_schema_explain_the_section() {
        let (program, none) = (shop(), Overrides::default());
        let text = program.schema().default_file("shop");
        let key = "  # The most items of one order.\n  # Default: 10. Range: 1 to 1000. Applied live.\n  \
                   maxItems: 10\n";
        assert!(text.contains(&format!("# How orders are handled.\nshop:\n{key}")), "{text}");
        let printed = program.schema().parse(&text, "printed", &none).unwrap().configuration;
        assert_eq!(printed, program.schema().from_overrides(&none).unwrap().configuration);

        let schema = program.schema().json();
        let keys = &schema["properties"]["shop"]["properties"];
        assert_eq!((&keys["maxItems"]["default"], &keys["maxItems"]["maximum"]), (&10.into(), &1000.into()));
        assert_eq!(keys["period"]["x-mainstay-applies"], "live");
        assert_eq!(keys["orderLabel"]["x-mainstay-applies"], "restart");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_saved_file_changes_the_section_of_a_running_manager() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("manager.yaml");
        let save = |shop: &str| std::fs::write(&file, format!("{HEAD}shop: {shop}\n")).unwrap();
        save("{maxItems: 3}");
        let program = shop();
        let source = ConfigSource::new(&file, Overrides::default(), program.schema().clone());
        let loaded = program.schema().load(&file, &Overrides::default()).unwrap();
        let options =
            ManagerOptions { signals: false, source: Some(source), ..ManagerOptions::replica("shop") };
        // No server listens at this address: a configuration needs no API server.
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let manager = Manager::new(options, loaded, nowhere).unwrap();
        let mut config = manager.section::<ShopConfig>("shop").unwrap();
        assert_eq!(config.borrow_and_update().max_items, 3);
        let (running, mut status) = (manager.clone(), manager.reload_status());
        let running = tokio::task::JoinSet::from_iter([async move { running.run().await.is_ok() }]);

        save("{maxItems: 4, orderLabel: parcel}");
        config.changed().await.unwrap();
        let now = Arc::clone(&config.borrow_and_update());
        assert_eq!((now.max_items, &*now.order_label), (4, "order"), "the label waits for the next start");

        save("{maxItems: 5, period: 0s}");
        let refused = status.wait_for(|status| status.refused.is_some()).await.unwrap().clone();
        let problem = format!("{}: shop.period: \"0s\"; expected a duration from 1s to 24h", file.display());
        assert_eq!(refused.refused.unwrap().problems, [problem]);
        assert!(!config.has_changed().unwrap());
        manager.stop();
        assert_eq!(running.join_all().await, [true]);
    }
}
