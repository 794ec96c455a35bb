//! A manager that writes without pause while it leads: what a frozen replica is tried with.
//!
//! Each write says when it was begun, in the name of its field manager: so the server's audit log tells a write that was
//! begun before something happened and arrived after it from one that was begun after it.

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

/// Set to the namespace it writes in, it turns the binary under test into [`program`].
pub const VARIABLE: &str = "MAINSTAY_UNDER_TEST_RESTLESS";

/// How many write at the same time, each on an object of its own.
pub const WRITERS: usize = 8;

/// The name of the controller.
const NAME: &str = "restless";
/// What stands before the microseconds of a write's beginning.
const BEGUN: &str = "begun-at-";

struct Restless {
    namespace: String,
}

/// Returns a binary with this controller alone, if the environment asks for it.
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

/// Returns when a write of this controller was begun, by the clock of its process.
///
/// # Panics
/// Panics if it is no write of this controller.
pub fn begun(write: &Write) -> Timestamp {
    let begun = write.uri.split_once(BEGUN).map(|(_, begun)| begun.split('&').next().unwrap_or_default());
    let begun = begun.and_then(|begun| begun.parse().ok());
    let begun = begun.and_then(|micros| Timestamp::from_microsecond(micros).ok());
    begun.unwrap_or_else(|| panic!("a write that does not say when it was begun: {write:#?}"))
}

// === impl Restless ===

impl Reconciler for Restless {
    /// Writes until it is told to stop, or refused, as it is at the end of the term.
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
