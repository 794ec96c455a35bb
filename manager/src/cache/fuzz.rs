//! Fuzz targets: what a server sends, and what is kept of it.

#![expect(clippy::expect_used, clippy::panic, reason = "a finding is a panic")]

use bytes::Bytes;
use serde_json::Value;

use super::frame::{Bookmark, Event, Line, Lines, read_status};
use super::meta::naive::{config_map, has_namesakes, members, naive, scanned};
use super::meta::{Glimpse, Scan, annotation};
use super::pages::{Item, PageReader};
use super::{PAUSED_ANNOTATION, Projection};
use crate::cache::home::Home;

pub use super::pack::fuzz::packed;

/// Reads the bytes behind the first two as a page of a list or as a stream of watch events.
///
/// The first byte chooses which, and where the bytes are cut into pieces; the second the longest object.
pub fn watch(data: &[u8]) {
    let [first, second, rest @ ..] = data else { return };
    let (piece, limit) = (usize::from(first >> 1).max(1), usize::from(*second) * 16);
    if first & 1 == 0 { stream(rest, piece, limit) } else { page(rest, piece, limit) }
}

/// The lines are those of the text, however it is cut.
fn stream(bytes: &[u8], piece: usize, limit: usize) {
    let mut lines = Lines::new(limit);
    let mut found = Vec::new();
    for piece in bytes.chunks(piece) {
        lines.push(Bytes::copy_from_slice(piece));
        found.extend(std::iter::from_fn(|| lines.next()));
    }
    let mut found = found.into_iter();
    let (whole, open) = match memchr::memrchr(b'\n', bytes) {
        Some(at) => (bytes.get(..at), bytes.get(at + 1..).unwrap_or_default()),
        None => (None, bytes),
    };
    let exceeds = |line: &[u8]| limit != 0 && line.len() > limit;
    for line in whole.into_iter().flat_map(|whole| whole.split(|byte| *byte == b'\n')) {
        if exceeds(line) {
            let Some(Line::TooLong(head)) = found.next() else {
                panic!("a line over the limit is given out")
            };
            assert!(line.starts_with(&head) && exceeds(&head), "its beginning is another");
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            assert_eq!(found.next(), Some(Line::Whole(Bytes::copy_from_slice(line))));
            event(line);
        }
    }
    if exceeds(open) {
        assert!(matches!(found.next(), Some(Line::TooLong(_))), "a line over the limit is waited for");
    }
    assert_eq!(found.next(), None);
}

/// An event is what a tree of its line says.
fn event(line: &[u8]) {
    status(line);
    let read = Event::read(line);
    let text = std::str::from_utf8(line).ok();
    let all = text.and_then(members).unwrap_or_default();
    let only = |name: &str| {
        let mut found = all.iter().filter(|(key, _)| key == name);
        found.next().filter(|_| found.next().is_none()).map(|(_, value)| value.get())
    };
    let expected =
        only("type").and_then(|kind| serde_json::from_str::<String>(kind).ok()).zip(only("object"));
    let Ok(event) = read else {
        assert!(expected.is_none(), "an event is refused");
        return;
    };
    let scan = Scan::open(event.object);
    // Which of two members is meant is not asked here: no server sends them.
    let Some((kind, raw)) = expected else { return };
    assert_eq!(event.kind, kind);
    object(raw.as_bytes());
    let alone = Scan::open(raw.as_bytes());
    assert_eq!(scan.map(|scan| scan.size).ok(), alone.map(|scan| scan.size).ok(), "by itself it is another");
    if kind == "BOOKMARK"
        && let Ok(bookmark) = serde_json::from_str::<Bookmark>(raw)
    {
        let tree: Value = serde_json::from_str(raw).unwrap_or_default();
        let ends = tree["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
        assert_eq!(bookmark.ends_initial_events(), ends);
    }
}

/// An object is what a tree of its bytes says, or it is refused by both.
fn object(raw: &[u8]) {
    let glimpse = Glimpse::of(raw);
    let text = std::str::from_utf8(raw).ok();
    let tree = serde_json::from_slice::<Value>(raw);
    // A tree has bounds for numbers, and a struct may be written as a list; neither matters for what is carried.
    let out_of_range = tree.as_ref().is_err_and(|error| error.to_string().starts_with("number out of range"));
    let owners = tree.as_ref().map(|tree| tree["metadata"]["ownerReferences"].clone()).unwrap_or_default();
    if out_of_range || owners.as_array().is_some_and(|owners| owners.iter().any(Value::is_array)) {
        return;
    }
    let Ok(scan) = Scan::open(raw) else {
        let refused = text.and_then(naive).is_none() || text.is_some_and(has_namesakes);
        assert!(refused, "an object is refused");
        return;
    };
    assert_eq!(glimpse.request.as_ref(), Some(&scan.request));
    assert_eq!(glimpse.uid.as_ref(), Some(&scan.uid));
    let is_gone = scan.is_gone();
    let found = scanned(scan);
    let text = text.expect("what is taken is text");
    match (found, naive(text)) {
        (Ok(found), Some(expected)) => {
            assert!(!has_namesakes(text), "a name comes twice");
            assert!(
                is_gone.is_ok() || expected.body["metadata"]["deletionGracePeriodSeconds"] != Value::Null
            );
            let body = expected.body.to_string();
            assert_eq!(found, expected);
            let annotations = &expected.body["metadata"]["annotations"];
            if annotations.as_object().is_some_and(|all| all.values().all(Value::is_string)) {
                let paused = annotation(body.as_bytes(), PAUSED_ANNOTATION);
                assert_eq!(paused.as_deref(), annotations[PAUSED_ANNOTATION].as_str());
            }
            metadata_only(raw, expected.body);
        }
        (Err(_), Some(_)) => assert!(has_namesakes(text), "an object is refused"),
        (Ok(_), None) => panic!("taken although a tree says no"),
        (Err(_), None) => {}
    }
}

/// A metadata-only store keeps the metadata and nothing else.
fn metadata_only(raw: &[u8], mut expected: Value) {
    let finished =
        Scan::open(raw).and_then(|scan| scan.finish(&Home::new(config_map(), 0), Projection::Metadata));
    let (meta, body) = finished.expect("whole it can be read");
    let kept: Value = serde_json::from_slice(&body).expect("a body is JSON");
    if let Some(object) = expected.as_object_mut() {
        object.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    }
    assert_eq!((kept, meta.content_hash, meta.status_hash), (expected, 0, 0));
}

/// A failure has a code, and text that is no Status stays short.
fn status(body: &[u8]) {
    let status = read_status(503, body);
    assert_ne!(status.code, 0);
    let is_status = body.first() == Some(&b'{');
    assert!(
        is_status || status.message.chars().count() <= 200 || serde_json::from_slice::<Value>(body).is_ok()
    );
}

/// The items are those of a tree, however the page is cut.
fn page(bytes: &[u8], piece: usize, limit: usize) {
    let read = |piece: usize| {
        let mut reader = PageReader::new(limit);
        let mut items = Vec::new();
        for mut bytes in bytes.chunks(piece) {
            items.extend(std::iter::from_fn(|| reader.next(&mut bytes)));
        }
        (items, reader.end())
    };
    let ((items, end), (in_one, _)) = (read(piece), read(bytes.len().max(1)));
    let same = |(one, other): (&Item, &Item)| match (one, other) {
        (Item::Whole(one), Item::Whole(other)) => one == other,
        // How much of it is kept depends on the pieces.
        (Item::TooLong(one), Item::TooLong(other)) => one.starts_with(other) || other.starts_with(one),
        _ => false,
    };
    assert!(
        items.len() == in_one.len() && items.iter().zip(&in_one).all(same),
        "cut otherwise it is another"
    );
    for item in &items {
        match item {
            Item::Whole(item) => {
                assert!(limit == 0 || item.len() <= limit, "an item over the limit is given out");
                object(item);
            }
            Item::TooLong(head) => assert_eq!(head.len(), limit + 1),
        }
    }
    // Keys with escapes, or twice, are sent by no server; which of them is meant is not asked here.
    let Some(all) = std::str::from_utf8(bytes).ok().and_then(members) else { return };
    let once = |name: &str| all.iter().filter(|(key, _)| key == name).count() == 1;
    if limit != 0 || !once("items") || !once("metadata") || memchr::memchr(b'\\', bytes).is_some() {
        return;
    }
    let of = |name: &str| all.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.get());
    let (Ok(expected), Ok(meta)) = (
        serde_json::from_str::<Option<Vec<Value>>>(of("items")),
        serde_json::from_str::<Value>(of("metadata")),
    ) else {
        return;
    };
    let next = &meta["continue"];
    if !meta["resourceVersion"].is_string() || !(next.is_null() || next.is_string()) {
        return;
    }
    // Which of two members is meant is not asked here either.
    let Ok(end) = end else {
        assert!(has_twice(of("metadata")), "a list is refused");
        return;
    };
    assert_eq!(
        (Some(&*end.resource_version), end.next()),
        (meta["resourceVersion"].as_str(), next.as_str().filter(|next| !next.is_empty()))
    );
    let found: Vec<Value> = items
        .iter()
        .map(|item| {
            let Item::Whole(item) = item else { panic!("there is no limit") };
            serde_json::from_slice(item).expect("an item is JSON")
        })
        .collect();
    assert_eq!(found, expected.unwrap_or_default());
}

fn has_twice(raw: &str) -> bool {
    let all = members(raw).unwrap_or_default();
    ["resourceVersion", "continue"].iter().any(|name| all.iter().filter(|(key, _)| key == name).count() > 1)
}
