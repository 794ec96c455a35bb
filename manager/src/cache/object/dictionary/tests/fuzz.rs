//! A fuzz target: a packed body unpacks to equal bytes, and a damaged one to an error or to text of its
//! length.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use super::{Compressor, Damage, Dictionary, Packed, Samples};

/// An empty dictionary, and one trained on similar bodies.
static DICTIONARIES: LazyLock<[Arc<Dictionary>; 2]> = LazyLock::new(|| {
    let mut samples = Samples::default();
    for number in 0..64 {
        let metadata =
            format!(r#"{{"name":"shop-{number}","namespace":"shop","uid":"{number:032x}","labels":{{}}}}"#);
        samples.add(format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}"#).as_bytes());
    }
    [Samples::default(), samples]
        .map(|samples| Arc::new(Dictionary::train(0, &samples).expect("memory for a dictionary")))
});

thread_local! {
    static COMPRESSOR: RefCell<Compressor> = RefCell::default();
}

/// Packs the bytes behind the first four, and reads them intact and damaged. The first byte chooses the
/// dictionary and the kind of damage, the second is the change, and the next two are the position of the
/// damage.
pub fn packed(data: &[u8]) {
    let [first, change, low, high, body @ ..] = data else { return };
    let dictionary = &DICTIONARIES[usize::from(first & 1)];
    let packed = COMPRESSOR
        .with_borrow_mut(|compressor| dictionary.pack(compressor, body))
        .expect("every body can be packed");
    assert_eq!((plain(&packed).as_deref(), packed.plain_len()), (Ok(body), body.len()));

    let (frame, _) = packed.split().expect("an intact frame");
    let frame = if first & 2 == 0 { frame } else { body };
    let mut frame = frame.to_vec();
    let at = usize::from(u16::from_le_bytes([*low, *high])) % frame.len().max(1);
    if first & 4 == 0 {
        frame.get_mut(at).into_iter().for_each(|byte| *byte ^= change);
    } else {
        frame.truncate(at);
    }
    let length = body.len() * if first & 8 == 0 { 1 } else { 16 };
    frame.extend_from_slice(&u32::try_from(length).unwrap_or_default().to_le_bytes());
    let damaged = Packed { dictionary: Arc::clone(dictionary), frame: frame.into() };
    if let Ok(text) = plain(&damaged) {
        assert_eq!(text.len(), length, "exactly the recorded length");
    }
    // The reader still works.
    assert_eq!(plain(&packed).as_deref(), Ok(body));
}

fn plain(packed: &Packed) -> Result<Vec<u8>, Damage> {
    packed.read(<[u8]>::to_vec)
}
