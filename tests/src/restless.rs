//! A manager that writes without pause while it leads, for tests with a frozen replica.
//!
//! The field manager of each write holds the time at which it was begun. So the server's audit log
//! distinguishes a write begun before an incident that arrived after it from a write begun after it.

use std::env;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use mainstay::client::refusal;
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::program::Program;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay::watch::channel;
use mainstay_controllers::CONTROLLERS;
use serde_json::json;

use crate::audit::Write;
use crate::manager::with_shipped_sections;

/// The environment variable with the namespace to write in; setting it turns the binary under test into
/// [`program`].
pub const VARIABLE: &str = "MAINSTAY_UNDER_TEST_RESTLESS";

/// Number of concurrent writers of the restless controller, each with an object of its own.
pub const WRITERS: usize = 8;

/// The name of the controller that writes without pause.
const NAME: &str = "restless";
/// The prefix of the field manager of each write; the start time of the write in microseconds follows.
const BEGUN: &str = "begun-at-";

struct Restless {
    namespace: String,
}

/// Returns a program with the restless controller alone, if the environment requests it.
pub fn program() -> Option<Program> {
    let namespace = env::var(VARIABLE).ok()?;
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"), "A manager that writes without pause");
    Some(with_shipped_sections(program).controllers(CONTROLLERS).setup(move |manager| {
        let (notifier, source) = channel();
        for number in 0..WRITERS {
            notifier.notify(NamespacedName::new(None, &format!("{NAME}-{number}")));
        }
        let controller = Controller::new(NAME).workers(WRITERS).source(source);
        manager.register(controller.reconciler(Restless { namespace }))?;
        Ok(())
    }))
}

/// Returns when a write of the restless controller was begun, by the clock of its process.
///
/// # Panics
/// Panics if this controller did not make the write.
pub fn begun(write: &Write) -> Timestamp {
    let begun = write.uri.split_once(BEGUN).map(|(_, begun)| begun.split('&').next().unwrap_or_default());
    let begun = begun.and_then(|begun| begun.parse().ok());
    let begun = begun.and_then(|micros| Timestamp::from_microsecond(micros).ok());
    begun.unwrap_or_else(|| panic!("a write without its start time: {write:#?}"))
}

// === impl Restless ===

impl Reconciler for Restless {
    /// Writes a `ConfigMap` again and again until it is cancelled, or refused at the end of the term.
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), &self.namespace);
        let name = request.name();
        let field_manager = || Some(format!("{BEGUN}{}", Timestamp::now().as_microsecond()));
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        match maps.create(&PostParams { field_manager: field_manager(), ..PostParams::default() }, &map).await
        {
            Err(error) if refusal(&error).is_some_and(|status| status.code == 409) => {}
            created => drop(created?),
        }
        let mut number = 0u64;
        while !cx.stopping().is_cancelled() {
            let change = Patch::Merge(json!({"data": {"number": number.to_string()}}));
            let parameters = PatchParams { field_manager: field_manager(), ..PatchParams::default() };
            maps.patch(name, &parameters, &change).await?;
            number += 1;
        }
        Ok(Action::Done)
    }
}
