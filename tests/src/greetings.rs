//! A small operator for tests of the command `dev`: each Greeting gets a `ConfigMap`, a status and an Event.

use std::env;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, CustomResourceExt as _, Resource as _};
use mainstay::client::EventType;
use mainstay::prelude::*;
use mainstay::program::Program;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The environment variable with the word of each greeting; setting it turns the binary under test into
/// [`program`].
pub const VARIABLE: &str = "MAINSTAY_UNDER_TEST_GREETINGS";

/// The word with which every reconcile fails.
pub const SILENT: &str = "silent";

/// Someone to greet.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "test.mainstay.dev", version = "v1", kind = "Greeting", namespaced)]
#[kube(status = "GreetingStatus")]
pub struct GreetingSpec {
    /// The name of the person.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// The written greeting.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct GreetingStatus {
    /// Word and name.
    pub greeting: String,
    /// Whether the greeting is written.
    pub conditions: Vec<Condition>,
}

/// The word with which the program does not start.
pub const CRASH: &str = "crash";

struct Greeter {
    greetings: Store<Greeting>,
    word: String,
}

/// Returns the operator, if the environment requests it. The definition of its kind has the word as a short
/// name.
pub fn program() -> Option<Program> {
    let word = env::var(VARIABLE).ok()?;
    let mut crd = Greeting::crd();
    crd.spec.names.short_names = Some(vec![word.clone()]);
    let program = Program::new("greetings", env!("CARGO_PKG_VERSION"), "Greets people");
    let program = program.on_dev(async |dev| {
        dev.story.print(format_args!("the cluster ends with the command: {}", dev.owns_cluster));
        Ok(())
    });
    Some(program.crds([crd]).controllers(["greeter"]).setup(move |manager| {
        if word == CRASH {
            return Err("the word is a crash".into());
        }
        let greetings = manager.store::<Greeting>(Scope::all());
        let maps = manager.store::<ConfigMap>(Scope::all());
        let controller = Controller::new("greeter").reconciles(&greetings).owns(&maps);
        let controller = controller.writes_status::<Greeting>();
        manager.register(controller.reconciler(Greeter { greetings, word }))?;
        Ok(())
    }))
}

// === impl Greeter ===

impl Reconciler for Greeter {
    async fn reconcile(&self, name: &NamespacedName, cx: &Context) -> Outcome {
        let Some(greeting) = self.greetings.get(name)? else { return Ok(Action::Done) };
        if self.word == SILENT {
            return Err("no word to say".into());
        }
        let text = format!("{} {}", self.word, greeting.spec.name);
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.name().to_owned());
        map.data = Some([("text".to_owned(), text.clone())].into());
        let written = cx.apply(&*greeting, &map).await?;
        cx.apply_status(&*greeting, &status(&text)).await?;
        if written.is_change() {
            cx.events().event(&greeting.object_ref(&()), EventType::Normal, "Greeted", "Greet", &text);
        }
        Ok(Action::Done)
    }
}

fn status(greeting: &str) -> GreetingStatus {
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        reason: "Greeted".to_owned(),
        message: format!("said {greeting}"),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    };
    GreetingStatus { greeting: greeting.to_owned(), conditions: vec![ready] }
}
