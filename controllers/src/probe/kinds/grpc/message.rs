//! The two messages of the health service: one field each, written and read by hand.

use bytes::{BufMut as _, Bytes, BytesMut};

/// The status `SERVING`.
const SERVING: u64 = 1;
/// What stands before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Makes a `HealthCheckRequest`, whose field 1 is the name of the service; empty asks about the whole server.
pub(super) fn request(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        put_varint(&mut message, service.len());
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or_default());
    framed.put(message);
    framed.freeze()
}

/// Reads field 1, an enum, of a `HealthCheckResponse`. `None` for what is no such message.
pub(super) fn is_serving(framed: &[u8]) -> Option<bool> {
    let (prefix, mut message) = framed.split_at_checked(PREFIX)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    if usize::try_from(length).ok()? != message.len() {
        return None;
    }
    // The first of an enum is left out.
    let mut status = 0;
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        match (key >> 3, key & 7) {
            (1, 0) => status = take_varint(&mut message)?,
            (_, 0) => {
                take_varint(&mut message)?;
            }
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status == SERVING)
}

fn put_varint(out: &mut BytesMut, mut value: usize) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.put_u8(low & 0x7f);
        }
        out.put_u8(low | 0x80);
    }
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_that_of_the_health_service() {
        assert_eq!(request("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(request("a.B")[..], [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B']);
        let long = request(&"s".repeat(200));
        assert_eq!(long[..8], [0, 0, 0, 0, 203, 0x0a, 0xc8, 0x01]);
    }

    #[test]
    fn a_status_is_read_and_what_is_unknown_is_passed_over() {
        let framed = |message: &[u8]| {
            let length = u8::try_from(message.len()).unwrap();
            [&[0, 0, 0, 0, length], message].concat()
        };
        assert_eq!(is_serving(&framed(&[0x08, 1])), Some(true));
        assert_eq!(is_serving(&framed(&[])), Some(false));
        let others = [0x12, 2, 9, 9, 0x08, 1, 0x1d, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0x28, 0x80, 1];
        assert_eq!(is_serving(&framed(&others)), Some(true));
        for wrong in [&[][..], &[0; 4], &[0, 0, 0, 0, 9, 8, 1], &[1, 0, 0, 0, 2, 8, 1]] {
            assert_eq!(is_serving(wrong), None, "{wrong:?}");
        }
        for wrong in [&[0x08][..], &[0x08, 0xff], &[0x0a, 200], &[0x0b], &[0x09, 1], &[0xff; 12]] {
            assert_eq!(is_serving(&framed(wrong)), None, "{wrong:?}");
        }
    }
}
