//! Compresses single bodies with zstd and a dictionary of their kind.
//!
//! A [`Dictionary`] is prepared once and shared by reference. The zstd contexts refer to no dictionary, so
//! one context per thread serves all kinds. A [`Packed`] body holds a reference to its dictionary, so it can
//! be decompressed for as long as it exists.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use zstd_safe::{CCtx, CDict, DCtx, DDict, compress_bound, get_error_name, train_from_buffer};

/// The zstd compression level: the fastest one with entropy coding; the next levels take half as long again
/// and save another 5 %.
const LEVEL: i32 = 1;
/// Length of a trained compression dictionary in bytes. Twice as many save no more on Pods, and their tables
/// no longer fit into the cache of a core.
const DICTIONARY_BYTES: usize = 16 * 1024;
/// Number of training samples below which a dictionary stays empty.
const FEWEST_SAMPLES: usize = 8;
/// One training sample in this many is not trained on; it measures the dictionary.
const HELD_OUT: usize = 4;
/// Largest capacity in bytes of a compression buffer that is kept between calls; larger ones are freed.
const MAX_KEPT_CAPACITY: usize = 1024 * 1024;
/// Number of bytes behind each compressed frame, which hold the length of the plain text.
const TRAILER: usize = size_of::<u32>();

/// A compression dictionary for the objects of one kind, prepared for compression and for decompression.
pub(crate) struct Dictionary {
    /// The number of this dictionary: the first one that a store trains has number 1.
    number: u32,
    packing: CDict<'static>,
    reading: DDict<'static>,
}

/// The compressed body of one object, with its dictionary.
#[derive(Clone)]
pub(crate) struct Packed {
    dictionary: Arc<Dictionary>,
    /// The body as a zstd frame, then the length of the plain text, little-endian.
    frame: Arc<[u8]>,
}

/// The zstd context and the output buffer for compression; one per process.
#[derive(Default)]
pub(crate) struct Compressor {
    /// The zstd context for compression; created at the first use.
    context: Option<CCtx<'static>>,
    out: Vec<u8>,
}

/// The zstd context and the output buffer for decompression, of one reading thread.
struct Reader {
    context: DCtx<'static>,
    plain: Vec<u8>,
}

/// Error of a compressed body that cannot be decompressed: memory was overwritten, or this module has a bug.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packed form is damaged: {0}")]
pub struct Damage(String);

thread_local! {
    /// The zstd context and buffer with which this thread decompresses. Taken out while it is in use: the
    /// callback of a read is user code and may read another object.
    static READER: Cell<Option<Box<Reader>>> = const { Cell::new(None) };
}

// === impl Dictionary ===

impl Dictionary {
    /// Trains a compression dictionary on samples of bodies. With too few samples it is empty and compresses
    /// less. `None` if memory runs out.
    ///
    /// Takes about a tenth of a second per megabyte of samples.
    pub(crate) fn train(number: u32, samples: &Samples) -> Option<Self> {
        let text = samples.train().unwrap_or_default();
        let packing = CDict::try_create(&text, LEVEL)?;
        Some(Self { number, packing, reading: DDict::try_create(&text)? })
    }

    /// Compresses one body with this dictionary; `None` if that fails.
    pub(crate) fn pack(self: &Arc<Self>, compressor: &mut Compressor, plain: &[u8]) -> Option<Packed> {
        let length = u32::try_from(plain.len()).ok()?;
        let Compressor { context, out } = compressor;
        if context.is_none() {
            *context = CCtx::try_create();
        }
        out.clear();
        out.try_reserve(compress_bound(plain.len()) + TRAILER).ok()?;
        context.as_mut()?.compress_using_cdict(out, plain, &self.packing).ok()?;
        out.extend_from_slice(&length.to_le_bytes());
        let frame = Arc::from(out.as_slice());
        if out.capacity() > MAX_KEPT_CAPACITY {
            *out = Vec::new();
        }
        Some(Packed { dictionary: self.clone(), frame })
    }

    /// Returns the memory of the dictionary in bytes: of both of its prepared forms.
    pub(crate) fn bytes(&self) -> usize {
        self.packing.sizeof() + self.reading.sizeof()
    }
}

// === impl Packed ===

impl Packed {
    /// Decompresses the body and calls `parse` with the plain text, which is borrowed for this call only.
    /// Returns the result of the call.
    pub(crate) fn read<T>(&self, parse: impl FnOnce(&[u8]) -> T) -> Result<T, Damage> {
        let kept = READER.try_with(Cell::take).ok().flatten();
        let mut reader = kept.map_or_else(Reader::new, Ok)?;
        self.unpack(&mut reader)?;
        let seen = parse(&reader.plain);
        if reader.plain.capacity() <= MAX_KEPT_CAPACITY {
            // During thread shutdown the thread-local storage may be gone already.
            READER.try_with(|kept| kept.set(Some(reader))).unwrap_or_default();
        }
        Ok(seen)
    }

    /// Returns the length of the uncompressed body in bytes.
    pub(crate) fn plain_len(&self) -> usize {
        self.split().map_or(0, |(_, length)| length)
    }

    /// Returns the length of the compressed body in bytes, without its dictionary.
    pub(crate) fn len(&self) -> usize {
        self.frame.len()
    }

    /// Returns whether this body was compressed with this dictionary.
    pub(crate) fn is_of(&self, dictionary: &Arc<Dictionary>) -> bool {
        Arc::ptr_eq(&self.dictionary, dictionary)
    }

    fn unpack(&self, reader: &mut Reader) -> Result<(), Damage> {
        let (frame, length) = self.split().ok_or_else(|| Damage("it is cut off".to_owned()))?;
        reader.plain.clear();
        // Reserves the recorded length, so that a damaged frame cannot claim more memory.
        if reader.plain.try_reserve_exact(length).is_err() {
            return Err(Damage(format!("no memory for {length} bytes")));
        }
        let written =
            reader.context.decompress_using_ddict(&mut reader.plain, frame, &self.dictionary.reading);
        match written {
            Ok(written) if written == length => Ok(()),
            Ok(written) => Err(Damage(format!("{written} bytes instead of {length}"))),
            Err(code) => Err(Damage(get_error_name(code).to_owned())),
        }
    }

    fn split(&self) -> Option<(&[u8], usize)> {
        let (frame, length) = self.frame.split_last_chunk::<TRAILER>()?;
        Some((frame, usize::try_from(u32::from_le_bytes(*length)).ok()?))
    }
}

// === impl Reader ===

impl Reader {
    fn new() -> Result<Box<Self>, Damage> {
        let context = DCtx::try_create().ok_or_else(|| Damage("no memory for a context".to_owned()))?;
        Ok(Box::new(Self { context, plain: Vec::new() }))
    }
}

/// Training samples for a compression dictionary: the first bytes of several bodies.
#[derive(Default)]
pub(crate) struct Samples(Vec<Vec<u8>>);

// === impl Samples ===

impl Samples {
    /// Largest number of objects in the training samples; more take longer and save little.
    pub(crate) const MOST: usize = 128;
    /// Largest number of bytes taken from one object as a training sample.
    const HEAD: usize = 16 * 1024;
    /// Largest number of bytes of all training samples together.
    const TEXT: usize = 1024 * 1024;

    /// Adds one body to the training samples, unless a bound is reached.
    pub(crate) fn add(&mut self, plain: &[u8]) {
        let head = plain.get(..Self::HEAD).unwrap_or(plain);
        let total: usize = self.0.iter().map(Vec::len).sum();
        if self.0.len() < Self::MOST && total + head.len() <= Self::TEXT {
            self.0.push(head.to_vec());
        }
    }

    /// Returns the samples that [`Self::train`] does not use, to measure the dictionary: one in four. Few
    /// samples serve both purposes.
    pub(crate) fn held_out(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice).step_by(if self.are_few() { 1 } else { HELD_OUT })
    }

    fn are_few(&self) -> bool {
        self.0.len() < FEWEST_SAMPLES * 2
    }

    fn train(&self) -> Option<Vec<u8>> {
        if self.0.len() < FEWEST_SAMPLES {
            return None;
        }
        let used = self.0.iter().enumerate().filter(|(at, _)| self.are_few() || at % HELD_OUT != 0);
        let used: Vec<&[u8]> = used.map(|(_, plain)| plain.as_slice()).collect();
        let (text, lengths) = (used.concat(), used.iter().map(|plain| plain.len()).collect::<Vec<_>>());
        // A dictionary as long as its samples would contain all of them.
        let mut dictionary = Vec::with_capacity(DICTIONARY_BYTES.min(text.len() / 4));
        train_from_buffer(&mut dictionary, &text, &lengths).ok()?;
        Some(dictionary)
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({})", self.number)
    }
}

#[cfg(any(test, fuzzing))]
#[path = "dictionary/tests/fuzz.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests;
