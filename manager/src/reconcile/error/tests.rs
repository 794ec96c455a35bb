use super::*;

#[test]
fn what_the_server_has_and_the_type_cannot_read_is_tried_again() {
    let source = serde_json::from_str::<u8>("{}").unwrap_err();
    let unreadable = WriteError::Unreadable { what: "patch".to_owned(), source };
    assert_eq!(ReconcileError::from(unreadable).retry(), Retry::Backoff, "nothing tells of its change");
}

#[test]
fn what_an_error_stands_on_says_when_to_try_again() {
    let refused = |code: u16, retry_after: Option<u64>| {
        let status = kube::core::Status::failure("no", "Some").with_code(code).boxed();
        let retry_after = retry_after.map(Duration::from_secs);
        WriteError::Refused { what: "apply".to_owned(), status, retry_after }
    };
    let malformed = WriteError::Malformed { what: "apply".to_owned(), why: "no name".to_owned() };
    let mut busy = kube::core::Status::failure("busy", "TooManyRequests").with_code(429);
    busy.details = serde_json::from_str(r#"{"retryAfterSeconds": 7}"#).unwrap();
    let undecodable = ReadError::Decode {
        object: crate::key::ObjectKey {
            kind: crate::key::KindId::new("", "v1", "ConfigMap", "configmaps", true),
            name: crate::key::NamespacedName::namespaced("shop", "web"),
        },
        source: serde_json::from_str::<u8>("x").unwrap_err(),
    };
    let cases: Vec<(BoxError, Retry)> = vec![
        ("plain".into(), Retry::Backoff),
        (Box::new(refused(409, None)), Retry::Backoff),
        (Box::new(refused(429, Some(3))), Retry::NotBefore(Duration::from_secs(3))),
        (Box::new(refused(429, Some(0))), Retry::Backoff),
        (Box::new(refused(429, Some(u64::MAX))), Retry::NotBefore(Duration::from_secs(u64::MAX))),
        (Box::new(kube::Error::Api(busy.boxed())), Retry::NotBefore(Duration::from_secs(7))),
        (Box::new(malformed), Retry::Never),
        (Box::new(undecodable), Retry::Never),
    ];
    for (error, expected) in cases {
        let text = error.to_string();
        let wrapped = Wrapped(error);
        assert_eq!(ReconcileError::from(wrapped).retry(), expected, "{text}");
    }
    let named = ReconcileError::retry_after(refused(429, Some(3)), Duration::ZERO);
    assert_eq!(named.retry(), Retry::After(Duration::ZERO), "what the reconciler says stands");
}

#[derive(Debug, thiserror::Error)]
#[error("wrapped")]
struct Wrapped(#[source] BoxError);
