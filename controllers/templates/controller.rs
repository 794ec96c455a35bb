//! Logs changes of objects of the kind ConfigMap.

use k8s_openapi::api::core::v1::ConfigMap;
use mainstay::prelude::*;

struct AuditorReconciler {
    objects: Store<ConfigMap>,
}

/// Registers the controller.
pub fn setup(manager: &Manager) -> Result<(), BoxError> {
    let objects = manager.store::<ConfigMap>(Scope::all());
    let controller = Controller::new("auditor").reconciles(&objects);
    manager.register(controller.reconciler(AuditorReconciler { objects }))?;
    Ok(())
}

impl Reconciler for AuditorReconciler {
    async fn reconcile(&self, name: &NamespacedName, _cx: &Context) -> Outcome {
        match self.objects.get(name)? {
            Some(_) => tracing::info!(%name, "the object is there"),
            None => tracing::info!(%name, "the object is gone"),
        }
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use mainstay::testing::reconcile_once;

    use super::*;

    #[tokio::test]
    async fn an_object_that_is_gone_is_no_error() {
        let objects = Store::from_objects([] as [ConfigMap; 0]);
        let cx = Context::for_test().with_store(&objects);
        let name = NamespacedName::namespaced("default", "gone");
        let run = reconcile_once(&AuditorReconciler { objects }, &name, &cx).await;
        assert_eq!(run.action(), Action::Done);
        assert_eq!(run.wrote(), [""; 0]);
    }
}
