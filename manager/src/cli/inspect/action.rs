//! What a person does from the command line.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Server;
use super::{Exit, controller, print};

#[derive(Subcommand, Debug)]
pub(super) enum Action {
    /// Run one object now, also out of its backoff, on the queue or not
    Reconcile(Target),
    /// Forget how often keys have failed, and run those now
    Forget(Target),
    /// Begin no run of these keys, or none of the controller, until resumed or restarted
    Pause(Target),
    /// End a pause; without a key and a namespace, all of the controller's
    Resume(Target),
    /// Change what is logged
    Log {
        /// Such as `debug`, or `info,mainstay::queue=debug`
        level: String,
    },
}

#[derive(Args, Debug)]
pub(super) struct Target {
    /// The controller
    controller: String,
    /// One key, as `inspect queue` shows it: NAMESPACE/NAME, or NAME
    key: Option<String>,
    /// All keys of this namespace, "" for keys without one
    #[arg(short, long, conflicts_with = "key")]
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct Matched {
    matched: usize,
}

// === impl Action ===

impl Action {
    pub(super) async fn carry_out(
        &self,
        server: &Server,
        json: bool,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Exit {
        let (path, body) = self.request();
        match server.post(&path, &body).await {
            Ok(body) if json => print(out, err, &body),
            Ok(body) => print(out, err, &told(&body)),
            Err(error) => error.exit(err),
        }
    }

    fn request(&self) -> (String, Value) {
        let (word, target) = match self {
            Self::Reconcile(target) => ("reconcile", target),
            Self::Forget(target) => ("forget", target),
            Self::Pause(target) => ("pause", target),
            Self::Resume(target) => ("resume", target),
            Self::Log { level } => return ("/debug/log".to_owned(), json!({"level": level})),
        };
        (format!("{}/{word}", controller(&target.controller)), target.body())
    }
}

/// Returns what is printed of an answer.
fn told(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(Matched { matched: 1 }) => "1 key on the queue\n".to_owned(),
        Ok(Matched { matched }) => format!("{matched} keys on the queue\n"),
        // It is done, whatever it is called.
        Err(_) => body.to_owned(),
    }
}

// === impl Target ===

impl Target {
    fn body(&self) -> Value {
        let key = self.key.as_ref().map(|key| key.split_once('/').unwrap_or(("", key)));
        match (key, &self.namespace) {
            (Some((namespace, name)), _) => json!({"namespace": namespace, "name": name}),
            (None, Some(namespace)) => json!({"namespace": namespace}),
            (None, None) => json!({}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_as_the_table_shows_it() {
        let body = |key: Option<&str>, namespace: Option<&str>| {
            let [key, namespace] = [key, namespace].map(|part| part.map(str::to_owned));
            let action = Action::Pause(Target { controller: "a/b".to_owned(), key, namespace });
            let (path, body) = action.request();
            assert_eq!(path, "/debug/controllers/a%2Fb/pause");
            body
        };
        assert_eq!(body(Some("shop/web"), None), json!({"namespace": "shop", "name": "web"}));
        assert_eq!(body(Some("node"), None), json!({"namespace": "", "name": "node"}));
        assert_eq!(body(None, Some("shop")), json!({"namespace": "shop"}));
        assert_eq!(body(None, None), json!({}));
    }

    #[test]
    fn what_it_concerned_is_counted() {
        assert_eq!(told(r#"{"matched":1}"#), "1 key on the queue\n");
        assert_eq!(told(r#"{"matched":0}"#), "0 keys on the queue\n");
        assert_eq!(told("{\"level\":\"debug\"}\n"), "{\"level\":\"debug\"}\n");
    }
}
