use super::*;

/// The items of a page that comes in pieces of so many bytes, and what stands around them.
fn read(page: &[u8], piece: usize, limit: usize) -> (Vec<Item>, serde_json::Result<PageMeta>) {
    let mut reader = PageReader::new(limit);
    let mut items = Vec::new();
    for bytes in page.chunks(piece) {
        push(&mut reader, bytes, &mut items);
    }
    (items, reader.end())
}

fn push(reader: &mut PageReader, mut bytes: &[u8], items: &mut Vec<Item>) {
    items.extend(std::iter::from_fn(|| reader.next(&mut bytes)));
}

fn whole(text: &'static str) -> Item {
    Item::Whole(Bytes::from_static(text.as_bytes()))
}

#[test]
fn items_are_found_as_they_were_written_however_the_page_is_cut() {
    let page = br#"{"kind":"PodList","x":{"items":[0]},"metadata":{"resourceVersion":"7","continue":"t"},"items" : [ {"a":[1,{}]}, {"b":"}]\"\\"} ,2,"s,]",null,[3],{}],"z":1}"#;
    for piece in 1..=page.len() {
        let (items, meta) = read(page, piece, 0);
        let expected = [r#"{"a":[1,{}]}"#, r#"{"b":"}]\"\\"}"#, "2", r#""s,]""#, "null", "[3]", "{}"];
        assert_eq!(items, expected.map(whole), "in pieces of {piece}");
        let meta = meta.unwrap();
        assert_eq!((meta.resource_version.as_str(), meta.next()), ("7", Some("t")));
    }
}

#[test]
fn an_item_that_is_no_json_costs_itself_alone() {
    let page = b"{\"items\":[{\"a\":\"\0\"},{\"b\":nul},{\"c\":1}],\"metadata\":{\"resourceVersion\":\"7\"}}";
    let (items, meta) = read(page, 5, 0);
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
        assert!(reader.item.capacity() < 4096, "nothing of it is kept");
    }
    push(&mut reader, b"\"},{\"b\":2}],\"metadata\":{\"resourceVersion\":\"7\"}}", &mut items);
    let [first, Item::TooLong(head), last] = &items[..] else { panic!("{items:?}") };
    assert_eq!((first, last), (&whole("{\"a\":1}"), &whole("{\"b\":2}")));
    assert!(head.starts_with(b"{\"name\":\"big\""), "its beginning tells what it was");
    assert_eq!(reader.end().unwrap().resource_version, "7");
}

#[test]
fn a_limit_that_nothing_reaches_is_none() {
    let page = br#"{"items":[{"a":{"b":1}}],"metadata":{"resourceVersion":"7"}}"#;
    assert_eq!(read(page, 3, usize::MAX).0, [whole(r#"{"a":{"b":1}}"#)]);
}

#[test]
fn only_what_has_items_is_a_list() {
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
        assert_eq!(read(page.as_bytes(), 7, 0).1.is_ok(), is_list, "{page}");
    }
}

#[test]
fn nothing_around_the_items_is_kept_without_bound() {
    let mut reader = PageReader::new(0);
    for _ in 0..1000 {
        push(&mut reader, &[b'{'; 1000], &mut Vec::new());
    }
    assert!(reader.envelope.len() < ENVELOPE + 1000);
}
