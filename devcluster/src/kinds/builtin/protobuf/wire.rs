//! The wire format of protobuf: numbered fields with one of four payloads.

use super::ProtobufError;

/// A reader that returns the fields of a message one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// The payload of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// An integer of variable length.
    Varint(u64),
    /// Four bytes, which no field of Kubernetes uses.
    Fixed32,
    /// Eight bytes, a float in the fields of Kubernetes.
    Fixed64([u8; 8]),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number and payload of the next field; `None` at the end of the message.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::Malformed("illegal tag"))?;
        if number == 0 {
            return Err(ProtobufError::Malformed("illegal tag 0"));
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(*self.take(8)?.first_chunk().ok_or(SHORT)?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| SHORT)?;
                Payload::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Payload::Fixed32
            }
            _ => return Err(ProtobufError::Malformed("illegal wireType")),
        };
        Ok(Some((number, payload)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(SHORT)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Malformed("integer overflow"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }
}

const SHORT: ProtobufError = ProtobufError::Malformed("unexpected EOF");
const WRONG: ProtobufError = ProtobufError::Malformed("wrong wireType");

impl<'a> Payload<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], ProtobufError> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(WRONG) }
    }

    /// Returns the string. Bytes that are not UTF-8 are replaced by U+FFFD, as in Go's JSON encoder.
    pub(super) fn text(self) -> Result<String, ProtobufError> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    pub(super) fn whole(self) -> Result<i64, ProtobufError> {
        if let Self::Varint(value) = self { Ok(value.cast_signed()) } else { Err(WRONG) }
    }

    pub(super) fn float(self) -> Result<f64, ProtobufError> {
        if let Self::Fixed64(bytes) = self { Ok(f64::from_le_bytes(bytes)) } else { Err(WRONG) }
    }
}
