//! A fuzz target: what a server sends, and what is kept of it.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use bytes::Bytes;
use serde_json::Value;

use super::Projection;
use crate::cache::informer::frame::{Event, Line, Lines, read_status};
use crate::cache::informer::pages::{Item, PageReader};
use crate::cache::object::home::Home;
use crate::cache::object::scan::{Glimpse, Scan};
use crate::key::KindId;

pub use super::object::dictionary::fuzz::packed;

/// Reads the bytes behind the first two as a page of a list or as a stream of watch events: the same is read however
/// they are cut.
///
/// The first byte chooses which, and where the bytes are cut into pieces; the second the longest object.
pub fn watch(data: &[u8]) {
    let [first, second, bytes @ ..] = data else { return };
    let limit = usize::from(*second) * 16;
    let is_stream = first & 1 == 0;
    let read = if is_stream { lines } else { items };
    let found = read(bytes, usize::from(first >> 1).max(1), limit);
    let in_one = read(bytes, bytes.len().max(1), limit);
    let is_same = |(one, other): (&Found, &Found)| match (one, other) {
        (Ok(one), Ok(other)) => one == other && (limit == 0 || one.len() <= limit),
        // How much of it is kept depends on the pieces.
        (Err(one), Err(other)) => one.len().min(other.len()) > limit && one[..=limit] == other[..=limit],
        _ => false,
    };
    assert!(
        found.len() == in_one.len() && found.iter().zip(&in_one).all(is_same),
        "{found:?} and {in_one:?}"
    );
    for bytes in found.iter().flatten() {
        if is_stream { event(bytes) } else { object(bytes) }
    }
}

/// A line or an item, or the beginning of one that is too long.
type Found = Result<Bytes, Bytes>;

fn lines(bytes: &[u8], piece: usize, limit: usize) -> Vec<Found> {
    let mut lines = Lines::new(limit);
    let mut found = Vec::new();
    for piece in bytes.chunks(piece) {
        lines.push(Bytes::copy_from_slice(piece));
        found.extend(std::iter::from_fn(|| lines.next()).map(|line| match line {
            Line::Whole(line) => Ok(line),
            Line::TooLong(head) => Err(head),
        }));
    }
    found
}

fn items(bytes: &[u8], piece: usize, limit: usize) -> Vec<Found> {
    let mut reader = PageReader::new(limit);
    let mut found = Vec::new();
    for mut piece in bytes.chunks(piece) {
        found.extend(std::iter::from_fn(|| reader.next(&mut piece)).map(|item| match item {
            Item::Whole(item) => Ok(item),
            Item::TooLong(head) => Err(head),
        }));
    }
    let _end = reader.end();
    found
}

fn event(line: &[u8]) {
    assert_ne!(read_status(503, line).code, 0, "a failure has a code");
    if let Ok(event) = Event::read(line)
        && let Ok(scan) = Scan::open(event.object)
    {
        object(&event.object.bytes[..scan.size]);
    }
}

/// What is kept of an object is what a tree of it has, and is read as the object was.
fn object(raw: &[u8]) {
    let glimpse = Glimpse::of(raw);
    let home = Home::new(KindId::new("", "v1", "ConfigMap", "configmaps", true), 0);
    let keep = |raw, projection| Scan::open(raw).and_then(|scan| scan.finish(&home, projection));
    // A tree has bounds for numbers.
    let (Ok((meta, body)), Ok(mut tree)) =
        (keep(raw, Projection::Full), serde_json::from_slice::<Value>(raw))
    else {
        return;
    };
    assert_eq!((glimpse.request.as_ref(), glimpse.uid.as_ref()), (Some(&meta.request), Some(&meta.uid)));
    assert_eq!(
        meta.labels.iter().count(),
        tree["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len)
    );
    tree["kind"] = "ConfigMap".into();
    tree["apiVersion"] = "v1".into();
    tree["metadata"].as_object_mut().expect("it has a name").remove("managedFields");
    assert_eq!(serde_json::from_slice::<Value>(&body).ok(), Some(tree));
    let again = keep(&body, Projection::Full).expect("a body is an object");
    assert_eq!((format!("{:?}", again.0), again.1), (format!("{meta:?}"), body.clone()));
    let (_, head) = keep(raw, Projection::Metadata).expect("it was read whole");
    let (head, body): (Value, Value) =
        (serde_json::from_slice(&head).expect("JSON"), serde_json::from_slice(&body).expect("JSON"));
    assert_eq!(head["metadata"], body["metadata"]);
}
