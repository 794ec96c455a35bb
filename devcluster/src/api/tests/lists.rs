//! Tests of lists: pages, revisions and selectors.

use super::*;

fn list() -> Request {
    Request::new(Verb::List, maps())
}

async fn server_with_maps() -> Server {
    let server = Server::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        server.create(maps(), map(name)).await;
    }
    server
}

#[tokio::test]
async fn all_pages_show_one_state_until_the_token_expires() {
    let server = server_with_maps().await;
    let first = server.list(list().with("limit", "2")).await.unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a", "b"], Some(3)));
    server.object(Request::new(Verb::Delete, maps().name("c"))).await;
    server.create(maps(), map("bb")).await;
    let next = list().with("limit", "2").with("continue", first.continue_token.clone());
    let second = server.list(next).await.unwrap();
    assert_eq!(
        (names(&second), second.revision, second.remaining),
        (vec!["c", "d"], first.revision, Some(1))
    );
    let last = server.list(list().with("limit", "2").with("continue", second.continue_token)).await.unwrap();
    assert_eq!((names(&last), last.continue_token.as_str(), last.remaining), (vec!["e"], "", None));
    server.api.store().compact();
    let next = list().with("continue", first.continue_token);
    let status = server.list(next).await.unwrap_err();
    assert_eq!((status.code(), status.reason()), (410, "Expired"));
    let rest = server.list(list().with("continue", status.failure().continue_token.clone())).await.unwrap();
    assert_eq!(names(&rest), ["bb", "d", "e"], "the new token continues at the newest state");
}

#[tokio::test]
async fn resource_version_and_match_select_the_listed_state() {
    let server = server_with_maps().await;
    let all = server.list(list()).await.unwrap();
    let old = all.revision;
    server.create(maps(), map("f")).await;
    let count = |request: Request| async { server.list(request).await.map(|list| list.items.len()) };
    let at = |request: Request| request.with("resourceVersion", old.to_string());
    assert_eq!(count(list().with("resourceVersion", "0").with("limit", "1")).await, Ok(6));
    assert_eq!(count(at(list())).await, Ok(6));
    assert_eq!(count(at(list()).with("limit", "9")).await, Ok(5));
    assert_eq!(count(at(list()).with("resourceVersionMatch", "Exact")).await, Ok(5));
    assert_eq!(count(at(list()).with("resourceVersionMatch", "NotOlderThan")).await, Ok(6));
}

#[tokio::test]
async fn refused_lists_have_the_texts_of_the_server() {
    let server = server_with_maps().await;
    let invalid = |text: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {text}");
    let cases = [
        (
            vec![("resourceVersion", "x")],
            400,
            "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \
             \"x\": invalid syntax"
                .to_owned(),
        ),
        (
            vec![("resourceVersion", "999")],
            504,
            format!("Timeout: Too large resource version: 999, current: {}", server.api.store().revision()),
        ),
        (
            vec![("resourceVersionMatch", "Exact")],
            422,
            invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion \
                 is provided",
            ),
        ),
        (
            vec![("resourceVersionMatch", "Exact"), ("resourceVersion", "0")],
            422,
            invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for \
                 resourceVersion \"0\"",
            ),
        ),
        (
            vec![("sendInitialEvents", "true")],
            422,
            invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        (vec![("labelSelector", "a,,b")], 400, "found ',', expected: identifier after ','".to_owned()),
        (vec![("fieldSelector", "foo")], 400, "invalid selector: 'foo'; can't understand 'foo'".to_owned()),
    ];
    for (options, code, message) in cases {
        let request = options.iter().fold(list(), |request, (option, value)| request.with(option, *value));
        let status = server.list(request).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, message.as_str()), "{options:?}");
    }
    let request = list().with("continue", "garbage");
    let status = server.list(request).await.unwrap_err();
    assert!(status.code() == 400 && status.message().starts_with("invalid continue token: "), "{status}");
    server.api.store().compact();
    let request = list().with("resourceVersion", "2").with("resourceVersionMatch", "Exact");
    let text = "The resourceVersion for the provided list is too old.";
    assert_eq!(server.list(request).await.unwrap_err().message(), text);
}

#[tokio::test]
async fn a_list_is_joined_from_the_stored_encodings() {
    let server = server_with_maps().await;
    let list = server.list(list().with("limit", "1")).await.unwrap();
    let value: Value = serde_json::from_slice(&list.json()).unwrap();
    assert_eq!((&value["kind"], &value["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    let mut item = list.items[0].value().as_object().unwrap().clone();
    item.remove("apiVersion");
    item.remove("kind");
    assert_eq!(value["items"][0], Value::Object(item), "items of built-in kinds have no type of their own");
    assert_eq!(value["metadata"]["remainingItemCount"], 4);
    let none = server.list(Request::new(Verb::List, maps().namespace("kube-system"))).await.unwrap();
    assert!(String::from_utf8(none.json().to_vec()).unwrap().ends_with("\"items\":[]}"));
}

#[tokio::test]
async fn the_pieces_of_a_list_join_to_its_json() {
    let server = server_with_maps().await;
    let list = server.list(list()).await.unwrap();
    for size in [1, 100, 10_000] {
        let pieces: Vec<_> = list.clone().pieces(size).collect();
        assert_eq!(pieces.concat(), list.json(), "pieces of {size} bytes");
        assert_eq!(pieces.len() > 1, size < 10_000);
    }
}
