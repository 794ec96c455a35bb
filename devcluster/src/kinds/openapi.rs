//! `OpenAPI`: the recorded documents of built-in kinds, and those of custom resources in version 3.
//!
//! The documents (`data/openapi.zst`) are recorded from the real server. The file starts with a line of JSON,
//! the [`Contents`]; compressed frames follow. The first frame is a document of a small group, which the
//! other frames have as dictionary, since every document repeats the types of metadata and the texts of
//! parameters. A document is unpacked when it is asked for.

mod custom;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use zstd_safe::DCtx;

pub use custom::{document as custom_document, hash as custom_hash};

static DATA: &[u8] = include_bytes!("../../data/openapi.zst");

/// The first line of the file.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Contents {
    /// The dictionary of the other frames.
    pub dictionary: Frame,
    /// The document of two definitions, whose names are replaced by those of others.
    pub template: Frame,
    /// The document of version 2, in protobuf.
    pub version_2: Document,
    /// The documents of version 3, sorted by path.
    pub documents: Vec<Document>,
}

/// The lengths of a frame in bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Frame {
    /// The length of the frame.
    pub packed: usize,
    /// The length of its content.
    pub length: usize,
}

/// A recorded document.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Document {
    /// The path below `/openapi/v3`, such as `apis/apps/v1`; empty for version 2.
    pub path: String,
    /// The hash by which the real server names the version of the document.
    pub hash: String,
    /// The place of the document, after those before it.
    pub frame: Frame,
}

/// Returns the recorded documents of version 3, sorted by path.
pub fn documents() -> &'static [Document] {
    &contents().1.documents
}

/// Returns the hash of the document of version 2.
pub fn version_2_hash() -> &'static str {
    &contents().1.version_2.hash
}

/// Returns the document of version 2 in protobuf; `None` if the data cannot be read.
pub fn version_2() -> Option<Vec<u8>> {
    let (frames, contents) = contents();
    let frames = frames.get(contents.dictionary.packed + contents.template.packed..)?;
    unpack(frames, contents.version_2.frame, &dictionary()?)
}

/// Returns the text of a recorded document of version 3; `None` if there is none at the path.
pub fn document(path: &str) -> Option<Vec<u8>> {
    let (frames, contents) = contents();
    let first = [contents.dictionary, contents.template, contents.version_2.frame];
    let mut start: usize = first.iter().map(|frame| frame.packed).sum();
    for document in &contents.documents {
        if document.path == path {
            return unpack(frames.get(start..)?, document.frame, &dictionary()?);
        }
        start += document.frame.packed;
    }
    None
}

/// Returns the frames, and what the first line says.
fn contents() -> &'static (&'static [u8], Contents) {
    static CONTENTS: LazyLock<(&[u8], Contents)> = LazyLock::new(|| {
        let end = memchr::memchr(b'\n', DATA).unwrap_or(DATA.len());
        let (line, frames) = DATA.split_at(end);
        let contents = serde_json::from_slice(line).unwrap_or_default();
        (frames.get(1..).unwrap_or_default(), contents)
    });
    &CONTENTS
}

fn dictionary() -> Option<Vec<u8>> {
    let (frames, contents) = contents();
    unpack(frames, contents.dictionary, &[])
}

fn template() -> Option<String> {
    let (frames, contents) = contents();
    let text = unpack(frames.get(contents.dictionary.packed..)?, contents.template, &dictionary()?)?;
    String::from_utf8(text).ok()
}

fn unpack(frames: &[u8], frame: Frame, dictionary: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(frame.length);
    let packed = frames.get(..frame.packed)?;
    DCtx::try_create()?.decompress_using_dict(&mut out, packed, dictionary).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests;
