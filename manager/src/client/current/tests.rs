use super::*;
use crate::client::Role;
use crate::client::tests::server::TestServer;
use crate::key::Fence;

struct Leader(kube::Client);

impl Authority for Leader {
    fn client(&self) -> &kube::Client {
        &self.0
    }

    fn term(&self) -> u64 {
        1
    }
}

#[tokio::test]
async fn a_name_that_none_can_have_is_not_asked_for() {
    let mut server = TestServer::start([]).await;
    let leader = Leader(server.client(Role::Writes(Fence::open())));
    let kind = KindId::new("", "v1", "ConfigMap", "configmaps", true);
    for name in ["x?watch=true", "", "a/status", "..", "a%2fb", "a#b"] {
        let error = live(&leader, &kind, &NamespacedName::namespaced("shop", name)).await.unwrap_err();
        assert!(matches!(error, WriteError::Malformed { .. }), "{name:?}: {error}");
    }
    let error = live(&leader, &kind, &NamespacedName::new(None, "web")).await.unwrap_err();
    assert!(error.to_string().contains("has no metadata.namespace"), "{error}");
    assert!(server.nothing_arrived());
}
