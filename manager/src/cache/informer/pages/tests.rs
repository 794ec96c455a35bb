use bytes::Bytes;

use super::*;

/// Reads a page in chunks of this size; returns its items and its metadata.
fn read(page: &[u8], chunk: usize, limit: usize) -> (Vec<Limited>, serde_json::Result<PageMeta>) {
    let mut reader = PageReader::new(limit);
    let mut items = Vec::new();
    for bytes in page.chunks(chunk) {
        push(&mut reader, bytes, &mut items);
    }
    (items, reader.end())
}

fn push(reader: &mut PageReader, mut bytes: &[u8], items: &mut Vec<Limited>) {
    items.extend(std::iter::from_fn(|| reader.next(&mut bytes)));
}

fn whole(text: &'static str) -> Limited {
    Limited::Whole(Bytes::from_static(text.as_bytes()))
}

#[test]
fn items_are_found_unchanged_however_the_page_is_cut() {
    let page = concat!(
        r#"{"kind":"PodList","x":{"items":[0]},"metadata":{"resourceVersion":"7","continue":"t"},"#,
        r#""items" : [ {"a":[1,{}]}, {"b":"}]\"\\"} ,2,"s,]",null,[3],{}],"z":1}"#,
    );
    for chunk in 1..=page.len() {
        let (items, meta) = read(page.as_bytes(), chunk, usize::MAX);
        let expected = [r#"{"a":[1,{}]}"#, r#"{"b":"}]\"\\"}"#, "2", r#""s,]""#, "null", "[3]", "{}"];
        assert_eq!(items, expected.map(whole), "in chunks of {chunk}");
        let meta = meta.unwrap();
        assert_eq!((meta.resource_version.as_str(), meta.next()), ("7", Some("t")));
    }
}

#[test]
fn an_item_that_is_no_json_does_not_affect_the_others() {
    let page = b"{\"items\":[{\"a\":\"\0\"},{\"b\":nul},{\"c\":1}],\"metadata\":{\"resourceVersion\":\"7\"}}";
    let (items, meta) = read(page, 5, usize::MAX);
    assert_eq!(items, [whole("{\"a\":\"\0\"}"), whole("{\"b\":nul}"), whole("{\"c\":1}")]);
    assert_eq!(meta.unwrap().next(), None);
}

#[test]
fn an_item_over_the_limit_is_dropped_as_it_arrives() {
    let mut reader = PageReader::new(100);
    let mut items = Vec::new();
    push(&mut reader, b"{\"items\":[{\"a\":1},{\"name\":\"big\",\"x\":\"", &mut items);
    for _ in 0..1000 {
        push(&mut reader, &[b'x'; 1000], &mut items);
        assert!(reader.item.capacity() < 4096, "dropped bytes are not buffered");
    }
    push(&mut reader, b"\"},{\"b\":2}],\"metadata\":{\"resourceVersion\":\"7\"}}", &mut items);
    let [first, Limited::TooLong(head), last] = &items[..] else { panic!("{items:?}") };
    assert_eq!((first, last), (&whole("{\"a\":1}"), &whole("{\"b\":2}")));
    assert!(head.starts_with(b"{\"name\":\"big\""), "its beginning names the object");
    assert_eq!(reader.end().unwrap().resource_version, "7");
}

#[test]
fn the_highest_limit_admits_every_item() {
    let page = br#"{"items":[{"a":{"b":1}}],"metadata":{"resourceVersion":"7"}}"#;
    assert_eq!(read(page, 3, usize::MAX).0, [whole(r#"{"a":{"b":1}}"#)]);
}

#[test]
fn a_body_without_an_items_array_is_no_list() {
    for (page, is_list) in [
        (r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#, true),
        (r#"{"metadata":{"resourceVersion":"7"},"items":null}"#, true),
        (r#"{"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[]}"#, false),
        (r#"{"metadata":{"resourceVersion":"7"},"items":{}}"#, false),
        (r#"{"metadata":{},"items":[]}"#, false),
        (r#"{"metadata":{"resourceVersion":"7"},"items":[{}"#, false),
        ("<html>not here</html>", false),
        ("", false),
    ] {
        assert_eq!(read(page.as_bytes(), 7, usize::MAX).1.is_ok(), is_list, "{page}");
    }
}

#[test]
fn the_envelope_is_bounded() {
    let mut reader = PageReader::new(usize::MAX);
    for _ in 0..1000 {
        push(&mut reader, &[b'{'; 1000], &mut Vec::new());
    }
    assert!(reader.envelope.len() < MAX_ENVELOPE + 1000);
}
