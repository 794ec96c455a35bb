//! Fuzz target: arbitrary bytes as a response of a server, through reading and storing.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use bytes::Bytes;
use serde_json::Value;

use super::Projection;
use crate::cache::informer::Limited;
use crate::cache::informer::frame::{Event, Lines, read_status};
use crate::cache::informer::pages::PageReader;
use crate::cache::object::{PartialIdentity, Scan, StoreContext};
use crate::key::KindId;

pub use super::object::dictionary::fuzz::packed;

/// Reads the input after its first two bytes as a page of a list or as a stream of watch events, once in
/// chunks and once in one piece: the result must be the same.
///
/// The first byte chooses between page and stream, and the size of the chunks; the second byte the limit of
/// an object.
pub fn watch(data: &[u8]) {
    let [first, second, bytes @ ..] = data else { return };
    let limit = if *second == 0 { usize::MAX } else { usize::from(*second) * 16 };
    let is_stream = first & 1 == 0;
    let read = if is_stream { lines } else { items };
    let found = read(bytes, usize::from(first >> 1).max(1), limit);
    let in_one = read(bytes, bytes.len().max(1), limit);
    let is_same = |(one, other): (&Limited, &Limited)| match (one, other) {
        (Limited::Whole(one), Limited::Whole(other)) => one == other && one.len() <= limit,
        // The length of the beginning depends on the chunks.
        (Limited::TooLong(one), Limited::TooLong(other)) => {
            one.len().min(other.len()) > limit && one[..=limit] == other[..=limit]
        }
        _ => false,
    };
    assert!(
        found.len() == in_one.len() && found.iter().zip(&in_one).all(is_same),
        "{found:?} and {in_one:?}"
    );
    for limited in &found {
        let Limited::Whole(bytes) = limited else { continue };
        if is_stream { event(bytes) } else { object(bytes) }
    }
}

fn lines(bytes: &[u8], chunk: usize, limit: usize) -> Vec<Limited> {
    let mut lines = Lines::new(limit);
    let mut found = Vec::new();
    for chunk in bytes.chunks(chunk) {
        let mut chunk = Bytes::copy_from_slice(chunk);
        found.extend(std::iter::from_fn(|| lines.next(&mut chunk)));
    }
    found
}

fn items(bytes: &[u8], chunk: usize, limit: usize) -> Vec<Limited> {
    let mut reader = PageReader::new(limit);
    let mut found = Vec::new();
    for mut chunk in bytes.chunks(chunk) {
        found.extend(std::iter::from_fn(|| reader.next(&mut chunk)));
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

/// Compares the stored body and metadata of an object with the object as parsed by `serde_json`.
fn object(raw: &[u8]) {
    let identity = PartialIdentity::of(raw);
    let context = StoreContext::new(KindId::new("", "v1", "ConfigMap", "configmaps", true), usize::MAX);
    let keep = |raw, projection| Scan::open(raw).and_then(|scan| scan.finish(&context, projection));
    // `serde_json` refuses numbers out of range; the scanner does not look into them.
    let (Ok((meta, body)), Ok(mut parsed)) =
        (keep(raw, Projection::Full), serde_json::from_slice::<Value>(raw))
    else {
        return;
    };
    assert_eq!((identity.request.as_ref(), identity.uid.as_ref()), (Some(&meta.request), Some(&meta.uid)));
    assert_eq!(
        meta.labels.iter().count(),
        parsed["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len)
    );
    parsed["kind"] = "ConfigMap".into();
    parsed["apiVersion"] = "v1".into();
    parsed["metadata"].as_object_mut().expect("it has a name").remove("managedFields");
    assert_eq!(serde_json::from_slice::<Value>(&body).ok(), Some(parsed));
    let again = keep(&body, Projection::Full).expect("a body is an object");
    assert_eq!((format!("{:?}", again.0), again.1), (format!("{meta:?}"), body.clone()));
    let (_, head) = keep(raw, Projection::Metadata).expect("it was read whole");
    let (head, body): (Value, Value) =
        (serde_json::from_slice(&head).expect("JSON"), serde_json::from_slice(&body).expect("JSON"));
    assert_eq!(head["metadata"], body["metadata"]);
}
