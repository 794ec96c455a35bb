//! One body packed and unpacked, by zstd with a dictionary of its kind.
//!
//! A [`Dictionary`] is prepared once and shared by reference; contexts hold none, so one of each thread serves all
//! kinds. A [`Packed`] body keeps its dictionary alive, and with it everything needed to read it.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use zstd_safe::{CCtx, CDict, DCtx, DDict, compress_bound, get_error_name, train_from_buffer};

/// The fastest level that entropy-codes; the next ones cost half as much again and save a twentieth.
const LEVEL: i32 = 1;
/// Bytes of a trained dictionary. Twice as many save nothing on Pods, and their tables no longer fit a core's cache.
const DICTIONARY: usize = 16 * 1024;
/// Fewer samples than this teach nothing.
const FEWEST_SAMPLES: usize = 8;
/// One sample in so many is kept to judge by.
const HELD_OUT: usize = 4;
/// The room for plain text a thread keeps between reads; more is given back.
const KEPT: usize = 1024 * 1024;
/// Bytes behind each frame that say how long the plain text is.
const TRAILER: usize = size_of::<u32>();

/// What the readers of a packed body need beside it.
pub(in crate::cache) struct Dictionary {
    /// Counts the dictionaries of a store.
    number: u32,
    prepared: DDict<'static>,
}

/// What packs bodies of one kind.
pub(in crate::cache) struct Press {
    dictionary: Arc<Dictionary>,
    prepared: CDict<'static>,
}

/// One packed body.
#[derive(Clone)]
pub(in crate::cache) struct Packed {
    dictionary: Arc<Dictionary>,
    /// A frame, then the length of the plain text, little-endian.
    frame: Arc<[u8]>,
}

/// The tools of whoever packs: one in a process.
#[derive(Default)]
pub(in crate::cache) struct Workbench {
    /// Made at the first use.
    context: Option<CCtx<'static>>,
    out: Vec<u8>,
}

/// The tools of a thread that reads.
struct Reader {
    context: DCtx<'static>,
    plain: Vec<u8>,
}

/// The packed form cannot be turned into JSON again: memory was overwritten, or there is a defect here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packed form is damaged: {0}")]
pub struct Damage(String);

thread_local! {
    /// Taken out while it is in use: decoding is the user's code, and may read another object.
    static READER: Cell<Option<Box<Reader>>> = const { Cell::new(None) };
}

// === impl Press ===

impl Press {
    /// Makes a press from samples of what it will pack. Few or useless samples make one without a dictionary's
    /// knowledge. `None` without memory.
    ///
    /// Costs about a tenth of a second per megabyte of samples.
    pub(super) fn train(number: u32, samples: &Samples) -> Option<Self> {
        let learnt = samples.learn().unwrap_or_default();
        let dictionary = Arc::new(Dictionary { number, prepared: DDict::try_create(&learnt)? });
        Some(Self { dictionary, prepared: CDict::try_create(&learnt, LEVEL)? })
    }

    pub(super) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }

    /// Packs one body; `None` where that fails.
    pub(super) fn pack(&self, bench: &mut Workbench, plain: &[u8]) -> Option<Packed> {
        let length = u32::try_from(plain.len()).ok()?;
        let packed = bench.pack(&self.prepared, plain)?;
        packed.extend_from_slice(&length.to_le_bytes());
        let frame = Arc::from(packed.as_slice());
        bench.tidy();
        Some(Packed { dictionary: self.dictionary.clone(), frame })
    }

    /// Returns bytes that this press keeps beside its dictionary.
    pub(super) fn bytes(&self) -> usize {
        self.prepared.sizeof()
    }
}

// === impl Dictionary ===

impl Dictionary {
    /// Returns the bytes it keeps.
    pub(super) fn bytes(&self) -> usize {
        self.prepared.sizeof()
    }
}

// === impl Packed ===

impl Packed {
    /// Looks at the plain text, for the call only.
    pub(in crate::cache) fn read<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T, Damage> {
        let kept = READER.try_with(Cell::take).ok().flatten();
        let mut reader = kept.map_or_else(Reader::new, Ok)?;
        self.unpack(&mut reader)?;
        let seen = look(&reader.plain);
        if reader.plain.capacity() <= KEPT {
            // At a thread's end there is nothing left to put it back into.
            READER.try_with(|kept| kept.set(Some(reader))).unwrap_or_default();
        }
        Ok(seen)
    }

    /// Returns how long the plain text is.
    pub(in crate::cache) fn plain_len(&self) -> usize {
        self.split().map_or(0, |(_, length)| length)
    }

    /// Returns the bytes of the packed form, its dictionary left out.
    pub(in crate::cache) fn len(&self) -> usize {
        self.frame.len()
    }

    /// Returns whether it was packed with this dictionary.
    pub(super) fn is_of(&self, dictionary: &Arc<Dictionary>) -> bool {
        Arc::ptr_eq(&self.dictionary, dictionary)
    }

    #[cfg(test)]
    pub(super) fn cut_off(&self) -> Self {
        let (frame, length) = self.frame.split_last_chunk::<TRAILER>().unwrap();
        let frame = [&frame[..frame.len() / 2], length].concat();
        Self { dictionary: self.dictionary.clone(), frame: frame.into() }
    }

    fn unpack(&self, reader: &mut Reader) -> Result<(), Damage> {
        let (frame, length) = self.split().ok_or_else(|| Damage("it is cut off".to_owned()))?;
        reader.plain.clear();
        // Never more than was packed, whatever the frame says of itself.
        if reader.plain.try_reserve_exact(length).is_err() {
            return Err(Damage(format!("no memory for {length} bytes")));
        }
        let written =
            reader.context.decompress_using_ddict(&mut reader.plain, frame, &self.dictionary.prepared);
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

// === impl Workbench ===

impl Workbench {
    fn pack(&mut self, prepared: &CDict<'static>, plain: &[u8]) -> Option<&mut Vec<u8>> {
        if self.context.is_none() {
            self.context = CCtx::try_create();
        }
        self.out.clear();
        self.out.try_reserve(compress_bound(plain.len()) + TRAILER).ok()?;
        self.context.as_mut()?.compress_using_cdict(&mut self.out, plain, prepared).ok()?;
        Some(&mut self.out)
    }

    fn tidy(&mut self) {
        if self.out.capacity() > KEPT {
            self.out = Vec::new();
        }
    }
}

/// Heads of bodies, one after the other, to learn a dictionary from.
#[derive(Default)]
pub(super) struct Samples {
    text: Vec<u8>,
    lengths: Vec<usize>,
}

// === impl Samples ===

impl Samples {
    /// Most objects looked at: more cost time and save little.
    pub(super) const MOST: usize = 128;
    /// Most bytes taken of one object.
    const HEAD: usize = 16 * 1024;
    /// Most bytes taken of all.
    const TEXT: usize = 1024 * 1024;

    /// Adds one body; what is over a bound is left out.
    pub(super) fn add(&mut self, plain: &[u8]) {
        let head = plain.get(..Self::HEAD).unwrap_or(plain);
        if self.lengths.len() < Self::MOST && self.text.len() + head.len() <= Self::TEXT {
            self.text.extend_from_slice(head);
            self.lengths.push(head.len());
        }
    }

    pub(super) fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Returns whether more objects would teach little more.
    pub(super) fn are_enough(&self) -> bool {
        self.lengths.len() >= Self::MOST || self.text.len() >= Self::TEXT / 2
    }

    /// Goes through those that are not learnt from, to judge by: one in four. All of them where they are few.
    pub(super) fn held_out(&self) -> impl Iterator<Item = &[u8]> {
        let step = if self.lengths.len() < FEWEST_SAMPLES * 2 { 1 } else { HELD_OUT };
        self.iter().step_by(step)
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.lengths.iter().scan(self.text.as_slice(), |rest, length| rest.split_off(..*length))
    }

    fn learn(&self) -> Option<Vec<u8>> {
        if self.lengths.len() < FEWEST_SAMPLES {
            return None;
        }
        let all = self.lengths.len() < FEWEST_SAMPLES * 2;
        let mut taught = Self::default();
        for (_, plain) in self.iter().enumerate().filter(|(at, _)| all || at % HELD_OUT != 0) {
            taught.lengths.push(plain.len());
            taught.text.extend_from_slice(plain);
        }
        // A dictionary as long as its samples would be the samples.
        let mut learnt = Vec::with_capacity(DICTIONARY.min(taught.text.len() / 4));
        train_from_buffer(&mut learnt, &taught.text, &taught.lengths).ok()?;
        Some(learnt)
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({})", self.number)
    }
}

impl fmt::Debug for Press {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Press").field(&self.dictionary).finish()
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes with {:?}", self.frame.len(), self.dictionary)
    }
}

impl fmt::Debug for Workbench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workbench").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of the kind a store holds: much that repeats, some that does not.
    fn body(random: &mut fastrand::Rng) -> Vec<u8> {
        let mut text = String::from(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":""#);
        for _ in 0..random.usize(0..40) {
            text.push_str(["-config", "\\u00e9", "prometheus.io/scrape", "{}", "true"][random.usize(0..5)]);
            text.extend((0..random.usize(0..8)).map(|_| random.char(..)));
        }
        let mut text = text.into_bytes();
        // Some are not even text: that is for the reader to say.
        text.extend((0..random.usize(0..4)).map(|_| random.u8(..)));
        text.truncate(random.usize(..=text.len() * 2));
        text
    }

    fn press(number: u32, random: &mut fastrand::Rng) -> Press {
        let mut samples = Samples::default();
        (0..200).for_each(|_| samples.add(&body(random)));
        Press::train(number, &samples).unwrap()
    }

    fn plain(packed: &Packed) -> Result<Vec<u8>, Damage> {
        packed.read(<[u8]>::to_vec)
    }

    #[test]
    fn a_thousand_bodies_read_as_they_were_whatever_dictionary_they_have() {
        let mut random = fastrand::Rng::with_seed(5);
        let untaught = Press::train(0, &Samples::default()).unwrap();
        let presses = [untaught, press(1, &mut random), press(2, &mut random)];
        let mut bench = Workbench::default();
        let bodies: Vec<Vec<u8>> = (0..1000).map(|_| body(&mut random)).collect();
        let packed: Vec<[Packed; 3]> = bodies
            .iter()
            .map(|body| presses.each_ref().map(|press| press.pack(&mut bench, body).unwrap()))
            .collect();
        for (body, packed) in bodies.iter().zip(&packed) {
            for one in packed {
                assert_eq!((&plain(one).unwrap(), one.plain_len()), (body, body.len()));
            }
        }
    }

    #[test]
    fn a_dictionary_lives_as_long_as_a_body_needs_it() {
        let mut random = fastrand::Rng::with_seed(6);
        let press = press(1, &mut random);
        let body = body(&mut random);
        let packed = press.pack(&mut Workbench::default(), &body).unwrap();
        let dictionary = Arc::downgrade(press.dictionary());
        drop(press);
        assert_eq!(plain(&packed).unwrap(), body);
        drop(packed);
        assert_eq!(dictionary.strong_count(), 0);
    }

    #[test]
    fn a_damaged_body_is_an_error_or_other_text_of_its_length_and_never_more() {
        let mut random = fastrand::Rng::with_seed(7);
        let press = press(1, &mut random);
        let body: Vec<u8> = std::iter::repeat_with(|| body(&mut random)).take(9).flatten().collect();
        let packed = press.pack(&mut Workbench::default(), &body).unwrap();
        let with = |frame: Vec<u8>| Packed { dictionary: packed.dictionary.clone(), frame: frame.into() };
        for at in 0..packed.frame.len() {
            for bit in 0..8 {
                let mut frame = packed.frame.to_vec();
                frame[at] ^= 1 << bit;
                let read = plain(&with(frame));
                assert!(
                    read.is_err() || read.is_ok_and(|text| text.len() == body.len()),
                    "bit {bit} of {at}"
                );
            }
            assert!(plain(&with(packed.frame[..at].to_vec())).is_err(), "cut at {at}");
        }
        let frame = packed.frame.clone();
        let stranger = Packed { dictionary: super::tests::press(2, &mut random).dictionary, frame };
        assert!(plain(&stranger).is_err(), "another dictionary");
    }

    #[test]
    fn a_read_within_a_read_has_a_buffer_of_its_own() {
        let mut random = fastrand::Rng::with_seed(8);
        let press = press(1, &mut random);
        let mut bench = Workbench::default();
        let (one, two) = (body(&mut random), body(&mut random));
        let packed = (press.pack(&mut bench, &one).unwrap(), press.pack(&mut bench, &two).unwrap());
        let both = packed.0.read(|outer| (plain(&packed.1), outer.to_vec())).unwrap();
        assert_eq!(both, (Ok(two), one));
    }

    #[test]
    fn samples_are_bounded_however_large_and_many_the_objects_are() {
        let (large, mut samples) = (vec![b'x'; 1_000_000], Samples::default());
        (0..1000).for_each(|_| samples.add(&large));
        assert_eq!((samples.count(), samples.are_enough()), (64, true));
        let mut samples = Samples::default();
        (0..1000).for_each(|_| samples.add(b"small"));
        assert_eq!((samples.count(), samples.iter().filter(|one| one == b"small").count()), (128, 128));
    }
}
