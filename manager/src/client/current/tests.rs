use super::*;
use crate::client::tests::server::TestServer;
use crate::key::Fence;

#[tokio::test]
async fn no_request_is_sent_for_an_invalid_name() {
    let mut server = TestServer::start([]).await;
    let leader = server.authority(Fence::open());
    let kind = KindId::new("", "v1", "ConfigMap", "configmaps", true);
    for name in ["x?watch=true", "", "a/status", "..", "a%2fb", "a#b"] {
        let error = live(&leader, &kind, &NamespacedName::namespaced("shop", name)).await.unwrap_err();
        assert!(matches!(error, WriteError::Malformed { .. }), "{name:?}: {error}");
    }
    let error = live(&leader, &kind, &NamespacedName::new(None, "web")).await.unwrap_err();
    assert!(error.to_string().contains("has no metadata.namespace"), "{error}");
    assert!(server.nothing_arrived());
}
