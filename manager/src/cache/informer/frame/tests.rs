use super::*;
use crate::cache::object::json::Cursor;

fn read(lines: &mut Lines, bytes: impl Into<Bytes>) -> Vec<Limited> {
    let mut bytes = bytes.into();
    std::iter::from_fn(|| lines.next(&mut bytes)).collect()
}

fn whole(text: &'static str) -> Limited {
    Limited::Whole(Bytes::from_static(text.as_bytes()))
}

#[test]
fn lines_are_found_however_the_stream_is_cut() {
    let stream: &'static [u8] = b"one\n\ntwo\r\nthree\n";
    for cut in 0..stream.len() {
        let mut lines = Lines::new(usize::MAX);
        let (head, tail) = stream.split_at(cut);
        let mut found = read(&mut lines, head);
        found.extend(read(&mut lines, tail));
        assert_eq!(found, [whole("one"), whole("two\r"), whole("three")], "cut at {cut}");
    }
}

#[test]
fn a_line_in_one_chunk_is_not_copied() {
    let stream = Bytes::from(b"one\ntwo\nthr".to_vec());
    let mut lines = Lines::new(usize::MAX);
    let found = read(&mut lines, stream.clone());
    let [Limited::Whole(one), Limited::Whole(two)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((one.as_ptr(), two.as_ptr()), (stream.as_ptr(), stream[4..].as_ptr()));
    assert_eq!(read(&mut lines, "ee\n"), [whole("three")]);
}

#[test]
fn a_line_over_the_limit_is_dropped_and_the_next_is_whole() {
    let mut lines = Lines::new(4);
    assert_eq!(
        read(&mut lines, "1234\n12345"),
        [whole("1234"), Limited::TooLong(Bytes::from_static(b"12345"))]
    );
    for _ in 0..100 {
        assert_eq!(read(&mut lines, vec![b'x'; 1000]), []);
        assert!(lines.partial.capacity() < 4096, "dropped bytes are not buffered");
    }
    assert_eq!(read(&mut lines, "x\nok\n"), [whole("ok")]);
}

#[test]
fn an_event_is_read_with_members_in_any_order_and_unknown_ones() {
    for line in [
        r#"{"type":"ADDED","object":{"a":{}}}"#,
        r#"{"type":"ADDED","object":{"a":{}} , "at":[{}] }"#,
        r#"{"object":{"a":{}},"type":"ADDED"}"#,
    ] {
        let event = Event::read(line.as_bytes()).unwrap();
        let mut cursor = Cursor::new(event.object.bytes).unwrap();
        let object = cursor.value().unwrap();
        assert_eq!((&*event.event_type, object.text), ("ADDED", r#"{"a":{}}"#), "{line}");
        event.object.end(&mut cursor).unwrap();
    }
}

#[test]
fn bytes_after_an_object_other_than_the_end_of_its_event_are_an_error() {
    for rest in ["", "}}", "}x", ",}", r#","a"}"#, r#","a":}"#, ",1:2}"] {
        let line = format!(r#"{{"type":"MODIFIED","object":{{}}{rest}"#);
        let event = Event::read(line.as_bytes()).unwrap();
        let mut cursor = Cursor::new(event.object.bytes).unwrap();
        cursor.value().unwrap();
        assert!(event.object.end(&mut cursor).is_err(), "{line}");
    }
}

#[test]
fn only_the_annotation_value_true_ends_the_initial_events() {
    let bookmark = |value: &str| {
        let annotations = format!(r#"{{"k8s.io/initial-events-end":"{value}"}}"#);
        let text = format!(r#"{{"metadata":{{"resourceVersion":"9","annotations":{annotations}}}}}"#);
        serde_json::from_str::<Bookmark>(&text).unwrap().ends_initial_events()
    };
    assert!(bookmark("true") && !bookmark("false"));
    let plain: Bookmark = serde_json::from_str(r#"{"metadata":{"resourceVersion":"9"}}"#).unwrap();
    assert!(!plain.ends_initial_events());
}

#[test]
fn an_error_in_plain_text_becomes_the_message_of_the_status() {
    let status = read_status(429, b"Too many requests, please try again later.\n");
    assert_eq!((status.code, status.message.as_str()), (429, "Too many requests, please try again later."));
    let status = read_status(429, br#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":3}}"#);
    assert_eq!(status.details.map(|details| details.retry_after_seconds), Some(3));
}
