use super::*;

#[tokio::test]
async fn bodies_are_decoded_by_their_type() {
    let server = filled().await;
    let post = async |path: &str, content_type: &str, body: &str| {
        send(&server, "POST", path, &[("content-type", content_type)], body.to_owned()).await
    };
    assert_eq!(post(CONFIG_MAPS, "application/yaml", "metadata: {generateName: y-}").await.code, 201);
    assert_eq!(post(CONFIG_MAPS, "", r#"{"metadata":{"generateName":"x-"}}"#).await.code, 201);
    for path in [CONFIG_MAPS, WIDGETS] {
        let reply = post(path, "text/plain", "{}").await;
        let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let expected = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        assert_eq!((reply.code, reply.message()), (415, expected));
    }
    assert_eq!(
        post(WIDGETS, "application/json", r#"{"metadata":{"name":1}}"#).await.message(),
        "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in \
         '{\"metadata\":{\"name\":1}}' ({\"metadata\":{\"name\":1}})"
    );
    let big = format!(r#"{{"metadata":{{"name":"d"}},"data":{{"a":"{}"}}}}"#, "x".repeat(3_200_000));
    let reply = post(CONFIG_MAPS, "application/json", &big).await;
    assert_eq!((reply.code, reply.message().as_str()), (413, "Request entity too large: limit is 3145728"));
}

#[tokio::test]
async fn protobuf_is_decoded() {
    /// Returns an encoded protobuf field with a length prefix.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("short");
        [&[number << 3 | 2, length], content].concat()
    }
    let server = server().await;
    let envelope = |kind: &str, raw: &[u8]| {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &meta), field(2, raw)].concat()
    };
    let protobuf = ("content-type", "application/vnd.kubernetes.protobuf");
    let raw = field(1, &field(1, b"made"));
    let reply = send(&server, "POST", "/api/v1/namespaces", &[protobuf], envelope("Namespace", &raw)).await;
    assert_eq!(
        (reply.code, reply.json()["metadata"]["name"].clone()),
        (201, json!("made")),
        "{}",
        reply.text()
    );
    let dry_run = envelope("DeleteOptions", &field(5, b"All"));
    let reply = send(&server, "DELETE", "/api/v1/namespaces/made", &[protobuf], dry_run).await;
    assert_eq!(reply.code, 200, "{}", reply.text());
    let reply = get(&server, "/api/v1/namespaces/made").await;
    assert_eq!(reply.json()["status"]["phase"], "Active");
}

#[tokio::test]
async fn duplicate_keys_are_warnings_or_errors() {
    let server = filled().await;
    let body = r#"{"metadata":{"generateName":"x-","generateName":"z-"},"data":{"a":"1","a":"2"}}"#;
    let reply = send(&server, "POST", CONFIG_MAPS, &[JSON], body).await;
    assert_eq!((reply.code, reply.json()["data"]["a"].clone()), (201, json!("2")));
    assert_eq!(
        reply.header("warning"),
        "299 - \"duplicate field \\\"metadata.generateName\\\"\"\n299 - \"duplicate field \\\"data.a\\\"\""
    );
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let body = body.replace("}}", "},\"foo\":1}");
    let reply = send(&server, "POST", &strict, &[JSON], body).await;
    assert_eq!(
        (reply.code, reply.message().as_str()),
        (
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
             duplicate field \
             \"metadata.generateName\", duplicate field \"data.a\", unknown field \"foo\""
        )
    );
}

#[tokio::test]
async fn patches_have_their_own_types() {
    let server = filled().await;
    let patch = async |path: &str, content_type: &str| {
        let path = format!("{path}?fieldManager=x");
        send(&server, "PATCH", &path, &[("content-type", content_type)], "{}").await
    };
    let (one, widget) = (format!("{CONFIG_MAPS}/c1"), format!("{WIDGETS}/w1"));
    let reply = patch(&one, "application/json").await;
    assert_eq!((reply.code, reply.message().as_str()), (415, "415: Unsupported Media Type"));
    for content_type in ["application/json", "application/strategic-merge-patch+json"] {
        let reply = patch(&widget, content_type).await;
        let accepted =
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        let expected = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        assert_eq!((reply.code, reply.message()), (415, expected));
    }
    assert_eq!(patch(&one, "application/strategic-merge-patch+json").await.code, 200);
    assert_eq!(patch(&widget, "application/merge-patch+json; charset=utf-8").await.code, 200);
}
