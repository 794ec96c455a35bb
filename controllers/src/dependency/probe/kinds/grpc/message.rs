//! The two messages of the health service, encoded and decoded by hand: each has one field.

use bytes::{BufMut as _, Bytes, BytesMut};

/// The number of the status `SERVING` in an answer of the gRPC health service.
const SERVING: u64 = 1;
/// Number of bytes before each gRPC message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Encodes a `HealthCheckRequest`. Its field 1 is the name of the service; empty stands for the whole server.
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

/// Decodes a `HealthCheckResponse`. Its field 1 is the status. Returns whether the status is `SERVING`, or
/// `None` for an invalid message.
pub(in crate::dependency::probe::kinds) fn is_serving(framed: &[u8]) -> Option<bool> {
    let (prefix, mut message) = framed.split_at_checked(PREFIX)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    if usize::try_from(length).ok()? != message.len() {
        return None;
    }
    // Protobuf omits the first value of an enum, 0.
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
mod tests;
