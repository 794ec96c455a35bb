use super::*;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};

/// A key that is a number instead of the name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u32);

impl Key for Id {
    fn namespace(&self) -> Option<&str> {
        None
    }

    fn name(&self) -> &'static str {
        "id"
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id-{}", self.0)
    }
}

#[test]
fn paths_follow_group_and_scope() {
    let deployment = KindId::of::<Deployment>();
    let web = NamespacedName::namespaced("shop", "web");
    assert_eq!(deployment.object_path(&web), "/apis/apps/v1/namespaces/shop/deployments/web");
    assert_eq!(deployment.collection_path(None), "/apis/apps/v1/deployments");
    assert_eq!(KindId::of::<Pod>().collection_path(Some("shop")), "/api/v1/namespaces/shop/pods");
    assert_eq!(
        KindId::of::<Namespace>().object_path(&NamespacedName::cluster("shop")),
        "/api/v1/namespaces/shop"
    );
}

#[test]
fn a_cause_reads_as_a_phrase() {
    let web = ObjectKey { kind: KindId::of::<Deployment>(), name: NamespacedName::namespaced("shop", "web") };
    let cause = Cause::from_object(Trigger::Updated, Subject::Other(web));
    assert_eq!(cause.to_string(), "updated Deployment.apps shop/web");
    let namesake = Subject::Namesake(KindId::of::<Deployment>());
    assert_eq!(Cause::from_object(Trigger::Deleted, namesake).to_string(), "deleted Deployment.apps");
    assert_eq!(Cause::bare(Trigger::Manual).to_string(), "manual");
}

#[test]
fn the_key_completes_the_name_of_a_namesake() {
    let web = NamespacedName::namespaced("shop", "web");
    let object = ObjectKey { kind: KindId::of::<Deployment>(), name: web.clone() };
    assert_eq!(Subject::Namesake(object.kind.clone()).of(&web), object);
    assert_eq!(Subject::Other(object.clone()).of(&NamespacedName::cluster("key")), object);
}

#[test]
fn a_cause_is_two_words_long() {
    assert_eq!(size_of::<Cause>(), 2 * size_of::<usize>());
}

#[test]
fn an_empty_namespace_counts_as_none() {
    assert_eq!(NamespacedName::namespaced("", "node-1"), NamespacedName::cluster("node-1"));
}
