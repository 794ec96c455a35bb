//! What was last sent to the server for each object, so that it is not sent twice.
//!
//! Lost on a restart, which costs one apply per object that changes nothing.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay::cache::RECONCILE_AT_ANNOTATION;
use mainstay::key::Request;
use mainstay_api::WaitDeployment;
use parking_lot::Mutex;
use serde_json::Value;

use crate::deployment::{Fingerprint, LiveDeployment};
use crate::gate::Applied;

/// A write about to be made.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The Deployment as it should be.
    pub(super) desired: Value,
    /// As it is.
    pub(super) live: Option<Arc<LiveDeployment>>,
    fingerprint: Fingerprint,
    asked_at: Option<String>,
}

/// By object: how its last write ended. One lock, held for a look-up.
#[derive(Debug, Default)]
pub(super) struct Memory {
    last: Mutex<HashMap<Request, Last>>,
}

#[derive(Debug)]
enum Last {
    Written(Fingerprint),
    Rejected { fingerprint: Fingerprint, asked_at: Option<String>, message: String },
}

// === impl Attempt ===

impl Attempt {
    pub(super) fn new(object: &WaitDeployment, desired: Value, live: Option<Arc<LiveDeployment>>) -> Self {
        let fingerprint = Fingerprint::of(&desired, live.as_deref());
        let annotations = object.metadata.annotations.as_ref();
        // A person who asks for another look asks for another try of what was refused, too.
        let asked_at = annotations.and_then(|annotations| annotations.get(RECONCILE_AT_ANNOTATION)).cloned();
        Self { desired, live, fingerprint, asked_at }
    }
}

// === impl Memory ===

impl Memory {
    /// Returns how the attempt would end, if the same was made before and nothing has changed since.
    pub(super) fn recall(&self, request: &Request, attempt: &Attempt) -> Option<Applied> {
        match (self.last.lock().get(request)?, &attempt.live) {
            (Last::Written(fingerprint), Some(live)) if *fingerprint == attempt.fingerprint => {
                Some(Applied::Current(Box::new((**live).clone())))
            }
            (Last::Rejected { fingerprint, asked_at, message }, _)
                if *fingerprint == attempt.fingerprint && *asked_at == attempt.asked_at =>
            {
                Some(Applied::Rejected(message.clone()))
            }
            _ => None,
        }
    }

    /// Remembers that the attempt made the Deployment what it is now.
    pub(super) fn remember_written(&self, request: &Request, attempt: &Attempt, now: &LiveDeployment) {
        let fingerprint = Fingerprint::of(&attempt.desired, Some(now));
        self.last.lock().insert(request.clone(), Last::Written(fingerprint));
    }

    /// Remembers that the server refused the attempt as invalid.
    pub(super) fn remember_rejected(&self, request: &Request, attempt: &Attempt, message: &str) {
        let last = Last::Rejected {
            fingerprint: attempt.fingerprint,
            asked_at: attempt.asked_at.clone(),
            message: message.to_owned(),
        };
        self.last.lock().insert(request.clone(), last);
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, request: &Request) {
        self.last.lock().remove(request);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::deployment::desired;

    fn object(annotations: &Value) -> WaitDeployment {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "annotations": annotations},
            "spec": {"selector": {}, "template": {}},
        });
        serde_json::from_value(object).unwrap()
    }

    fn attempt(annotations: &Value, live: Option<i64>) -> Attempt {
        let object = object(annotations);
        let live = live.map(|generation| {
            let mut live = desired(&object);
            live["metadata"]["uid"] = json!("d1");
            live["metadata"]["generation"] = json!(generation);
            Arc::new(serde_json::from_value(live).unwrap())
        });
        Attempt::new(&object, desired(&object), live)
    }

    #[test]
    fn what_was_written_is_not_written_again_until_something_changes() {
        let (memory, web) = (Memory::default(), Request::namespaced("shop", "web"));
        let create = attempt(&json!({}), None);
        assert_eq!(memory.recall(&web, &create), None);
        let now = attempt(&json!({}), Some(1)).live.unwrap();
        memory.remember_written(&web, &create, &now);
        assert!(matches!(memory.recall(&web, &attempt(&json!({}), Some(1))), Some(Applied::Current(_))));
        assert_eq!(
            memory.recall(&web, &attempt(&json!({}), Some(2))),
            None,
            "somebody edited the Deployment"
        );
        assert_eq!(
            memory.recall(&web, &attempt(&json!({"team": "a"}), Some(1))),
            None,
            "an annotation to pass on"
        );
        assert_eq!(memory.recall(&web, &create), None, "the Deployment is gone");
        memory.forget(&web);
        assert_eq!(memory.recall(&web, &attempt(&json!({}), Some(1))), None);
    }

    #[test]
    fn what_was_refused_is_not_sent_again_until_something_changes() {
        let (memory, web) = (Memory::default(), Request::namespaced("shop", "web"));
        let create = attempt(&json!({}), None);
        memory.remember_rejected(&web, &create, "no");
        assert_eq!(memory.recall(&web, &create), Some(Applied::Rejected("no".to_owned())));
        assert_eq!(memory.recall(&web, &attempt(&json!({}), Some(1))), None);
        let by_hand = json!({"mainstay.dev/reconcile-at": "now"});
        assert_eq!(memory.recall(&web, &attempt(&by_hand, None)), None, "somebody asks for another try");
    }
}
