use super::*;

impl Packed {
    pub(crate) fn number(&self) -> u32 {
        self.dictionary.number
    }

    pub(crate) fn cut_off(&self) -> Self {
        let (frame, length) = self.frame.split_last_chunk::<TRAILER>().unwrap();
        let frame = [&frame[..frame.len() / 2], length].concat();
        Self { dictionary: self.dictionary.clone(), frame: frame.into() }
    }
}

/// Text as in a store: mostly repetitive, partly random.
fn body(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut text = String::from(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":""#);
    for _ in 0..random.usize(0..40) {
        text.push_str(["-config", "\\u00e9", "prometheus.io/scrape", "{}", "true"][random.usize(0..5)]);
        text.extend((0..random.usize(0..8)).map(|_| random.char(..)));
    }
    let mut text = text.into_bytes();
    // Some bodies are not UTF-8: the reader has to detect that.
    text.extend((0..random.usize(0..4)).map(|_| random.u8(..)));
    text.truncate(random.usize(..=text.len() * 2));
    text
}

fn dictionary(number: u32, random: &mut fastrand::Rng) -> Arc<Dictionary> {
    let mut samples = Samples::default();
    (0..200).for_each(|_| samples.add(&body(random)));
    Arc::new(Dictionary::train(number, &samples).unwrap())
}

fn plain(packed: &Packed) -> Result<Vec<u8>, Damage> {
    packed.read(<[u8]>::to_vec)
}

#[test]
fn a_thousand_bodies_are_unchanged_after_packing_with_any_dictionary() {
    let mut random = fastrand::Rng::with_seed(5);
    let untrained = Arc::new(Dictionary::train(0, &Samples::default()).unwrap());
    let dictionaries = [untrained, dictionary(1, &mut random), dictionary(2, &mut random)];
    let mut compressor = Compressor::default();
    let bodies: Vec<Vec<u8>> = (0..1000).map(|_| body(&mut random)).collect();
    let packed: Vec<[Packed; 3]> = bodies
        .iter()
        .map(|body| dictionaries.each_ref().map(|one| one.pack(&mut compressor, body).unwrap()))
        .collect();
    for (body, packed) in bodies.iter().zip(&packed) {
        for one in packed {
            assert_eq!((&plain(one).unwrap(), one.plain_len()), (body, body.len()));
        }
    }
}

#[test]
fn a_dictionary_lives_as_long_as_its_bodies() {
    let mut random = fastrand::Rng::with_seed(6);
    let dictionary = dictionary(1, &mut random);
    let body = body(&mut random);
    let packed = dictionary.pack(&mut Compressor::default(), &body).unwrap();
    let weak = Arc::downgrade(&dictionary);
    drop(dictionary);
    assert_eq!(plain(&packed).unwrap(), body);
    drop(packed);
    assert_eq!(weak.strong_count(), 0);
}

#[test]
fn a_damaged_body_is_an_error_or_text_of_the_same_length() {
    let mut random = fastrand::Rng::with_seed(7);
    let dictionary = dictionary(1, &mut random);
    let body: Vec<u8> = std::iter::repeat_with(|| body(&mut random)).take(9).flatten().collect();
    let packed = dictionary.pack(&mut Compressor::default(), &body).unwrap();
    let with = |frame: Vec<u8>| Packed { dictionary: packed.dictionary.clone(), frame: frame.into() };
    for at in 0..packed.frame.len() {
        for bit in 0..8 {
            let mut frame = packed.frame.to_vec();
            frame[at] ^= 1 << bit;
            let read = plain(&with(frame));
            assert!(read.is_err() || read.is_ok_and(|text| text.len() == body.len()), "bit {bit} of {at}");
        }
        assert!(plain(&with(packed.frame[..at].to_vec())).is_err(), "cut at {at}");
    }
    let frame = packed.frame.clone();
    let stranger = Packed { dictionary: super::tests::dictionary(2, &mut random), frame };
    assert!(plain(&stranger).is_err(), "another dictionary");
}

#[test]
fn a_read_within_a_read_has_a_buffer_of_its_own() {
    let mut random = fastrand::Rng::with_seed(8);
    let dictionary = dictionary(1, &mut random);
    let mut compressor = Compressor::default();
    let (one, two) = (body(&mut random), body(&mut random));
    let packed =
        (dictionary.pack(&mut compressor, &one).unwrap(), dictionary.pack(&mut compressor, &two).unwrap());
    let both = packed.0.read(|outer| (plain(&packed.1), outer.to_vec())).unwrap();
    assert_eq!(both, (Ok(two), one));
}

#[test]
fn samples_are_bounded_in_number_and_size() {
    let (large, mut samples) = (vec![b'x'; 1_000_000], Samples::default());
    (0..1000).for_each(|_| samples.add(&large));
    assert_eq!(samples.0.len(), 64);
    let mut samples = Samples::default();
    (0..1000).for_each(|_| samples.add(b"small"));
    assert_eq!((samples.0.len(), samples.0.iter().filter(|one| *one == b"small").count()), (128, 128));
}
