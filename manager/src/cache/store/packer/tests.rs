use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::advance;

use super::*;
use crate::cache::CacheSettings;
use crate::cache::object::{Form, Packing};
use crate::cache::store::{Dispatcher, Received};
use crate::cache::tests::fixtures::{config_map, object, request};
use crate::cache::{Projection, ReadError, Scope};

/// Small enough that a few dozen objects reach every threshold.
const RULES: Rules = Rules {
    auto_threshold: 20_000,
    delay: Duration::from_millis(100),
    eager: 50_000,
    full: 100_000,
    batch: 10_000,
    window: 100_000,
};

/// A synced store with its packer, filled by the test. Dropping it stops the packer.
struct Rig {
    store: Arc<ObjectStore>,
    version: u64,
    compressor: SharedCompressor,
    tasks: JoinSet<()>,
}

fn empty() -> ObjectStore {
    let limits = CacheSettings::default().limits();
    ObjectStore::new(config_map(), Scope::all(), Projection::Full, vec![None], limits)
}

impl Rig {
    fn start(pack: Pack) -> Self {
        let store = Arc::new(empty());
        store.start(None);
        let epoch = store.begin_list();
        store.end_list(0, epoch, &crate::cache::ResourceVersion::new("1"));
        let mut tasks = JoinSet::new();
        tasks.spawn(Dispatcher::new(store.clone()).run());
        let compressor = SharedCompressor::default();
        tasks.spawn(Packer::new(store.clone(), pack, RULES, compressor.clone()).run());
        Self { store, version: 10, compressor, tasks }
    }

    /// Stores an object with this data, or a newer version of it.
    fn put(&mut self, name: &str, data: &Value) {
        self.version += 1;
        let mut object = object(name, &format!("uid-{name}"), self.version);
        object["data"] = data.clone();
        self.store.receive(0, Received::Changed, object.to_string().as_bytes());
    }

    fn put_all(&mut self, count: usize, data: impl Fn(usize) -> Value) {
        for number in 0..count {
            self.put(&format!("object-{number}"), &data(number));
        }
    }

    fn packing(&self) -> Packing {
        self.store.status().packing
    }

    /// Waits until the packer is idle, and for some more rotations.
    async fn settle(&self) {
        // The paused clock does not advance while a batch is packed.
        sleep(RULES.delay * 20).await;
    }

    fn data(&self, name: &str) -> Value {
        self.get(name).decode::<Value>().unwrap()["data"].clone()
    }

    /// Returns the number of the dictionary of an object's body.
    fn dictionary(&self, name: &str) -> u32 {
        let Form::Packed(packed) = self.get(name).body().form() else { panic!("{name} is not packed") };
        packed.number()
    }

    fn get(&self, name: &str) -> View {
        self.store.get(&request(name), &self.store).unwrap().unwrap()
    }
}

/// About a kilobyte of text that compresses well with a dictionary.
fn alike(number: usize) -> Value {
    let lines: Vec<String> =
        (0..20).map(|line| format!("upstream_{line}=http://service-{line}.shop.svc:8080")).collect();
    json!({"lines": lines.join("\n"), "number": number.to_string()})
}

/// Two kilobytes of random text.
fn noise(number: usize) -> Value {
    let mut random = fastrand::Rng::with_seed(number as u64);
    json!({"noise": (0..2000).map(|_| random.char('#'..='~')).collect::<String>()})
}

/// Texts that are similar to each other and different from those of [`alike`].
fn otherwise(number: usize) -> Value {
    let words: Vec<String> = (0..60).map(|word| format!("{:x}", word * 0x9e37_79b9_u64)).collect();
    json!({"words": words.join("-"), "number": number.to_string()})
}

#[tokio::test(start_paused = true)]
async fn bodies_are_packed_after_a_delay_and_read_as_before() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(50, alike);
    rig.settle().await;
    let packing = rig.packing();
    assert_eq!((packing.objects, packing.dictionaries), (50, 1));
    assert!(packing.ratio().unwrap() > 4.0, "{packing:?}");
    rig.put("late", &alike(77));
    advance(RULES.delay.saturating_sub(Duration::from_millis(1))).await;
    tokio::task::yield_now().await;
    assert_eq!(rig.packing().objects, 50, "not packed before the delay has passed");
    rig.settle().await;
    assert_eq!(rig.packing().objects, 51);
    assert_eq!(rig.data("late"), alike(77));
    assert_eq!(rig.data("object-7"), alike(7));
}

#[tokio::test(start_paused = true)]
async fn packing_statistics_follow_every_change() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(50, alike);
    rig.settle().await;
    rig.put_all(50, |number| alike(number + 1000));
    let packing = rig.packing();
    assert_eq!((packing.objects, packing.bytes, packing.plain_bytes), (0, 0, 0), "new versions are plain");
    rig.settle().await;
    assert_eq!(rig.packing().objects, 50);
    let epoch = rig.store.begin_list();
    rig.store.end_list(0, epoch, &crate::cache::ResourceVersion::new("1000"));
    let status = rig.store.status();
    assert_eq!((status.objects, status.bytes, status.packing.objects, status.packing.bytes), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn bodies_stay_plain_if_packing_is_off_or_does_not_pay() {
    let mut never = Rig::start(Pack::Never);
    never.put_all(100, alike);
    never.settle().await;
    assert_eq!(never.packing(), Packing::default());

    let mut few = Rig::start(Pack::Auto);
    few.put_all(10, alike);
    few.settle().await;
    assert_eq!(few.packing(), Packing::default(), "below the threshold");

    let mut useless = Rig::start(Pack::Auto);
    useless.put_all(100, noise);
    useless.settle().await;
    assert_eq!(useless.packing(), Packing::default());
    assert!(useless.store.has_room(), "the reflector does not wait");
    useless.put_all(400, alike);
    useless.settle().await;
    assert_eq!(useless.packing().objects, 400, "checked again at twice the size");
}

#[tokio::test(start_paused = true)]
async fn always_packs_a_single_object_and_retrains_as_more_come() {
    let mut rig = Rig::start(Pack::Always);
    rig.settle().await;
    rig.put_all(1, alike);
    rig.settle().await;
    let alone = rig.packing();
    assert_eq!(alone.objects, 1);
    rig.put_all(40, alike);
    rig.settle().await;
    let many = rig.packing();
    assert_eq!((many.objects, many.dictionaries), (40, 1));
    assert!(many.ratio() > alone.ratio().map(|ratio| ratio * 2.0), "{alone:?} {many:?}");
}

#[tokio::test(start_paused = true)]
async fn an_incompressible_body_stays_plain_among_packed_ones() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(50, alike);
    rig.put("noise", &noise(1));
    rig.settle().await;
    assert_eq!(rig.packing().objects, 50);
    assert_eq!(rig.data("noise"), noise(1));
}

#[tokio::test(start_paused = true)]
async fn an_outdated_dictionary_is_replaced_and_freed_with_its_last_body() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(200, alike);
    rig.settle().await;
    let held = rig.get("object-0");
    let before = rig.packing();
    for round in 1..10 {
        rig.put_all(200, |number| otherwise(round * 1000 + number));
        rig.settle().await;
    }
    let after = rig.packing();
    assert_eq!((after.objects, after.dictionaries), (200, 2), "one old version is still held");
    assert_eq!(held.decode::<Value>().unwrap()["data"], alike(0));
    drop(held);
    assert_eq!(rig.packing().dictionaries, 1);
    assert!(after.ratio() > before.ratio().map(|ratio| ratio / 2.0), "{before:?} {after:?}");
    assert_eq!(rig.data("object-3"), otherwise(9003));
}

#[tokio::test(start_paused = true)]
async fn a_dictionary_is_retrained_only_at_half_its_ratio() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(200, alike);
    rig.settle().await;
    let before = rig.packing().ratio().unwrap();
    let less_alike = |number: usize| {
        let mut data = alike(number);
        data["token"] = noise(number)["noise"].as_str().unwrap()[..30].into();
        data
    };
    for round in 1..10 {
        rig.put_all(200, |number| less_alike(round * 1000 + number));
        rig.settle().await;
        assert_eq!(rig.dictionary("object-0"), 1, "round {round}");
    }
    let after = rig.packing().ratio().unwrap();
    assert!((before / 2.0..before).contains(&after), "{after} is less than {before} and more than its half");
}

#[tokio::test(start_paused = true)]
async fn training_without_improvement_is_not_repeated_for_ever() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(200, alike);
    rig.settle().await;
    for round in 1..10 {
        rig.put_all(200, |number| noise(round * 1000 + number));
        rig.settle().await;
    }
    rig.put_all(200, alike);
    rig.settle().await;
    // Incompressible bodies: one training brings no improvement, and the lower ratio becomes the baseline.
    assert!(rig.dictionary("object-0") <= 3, "{}", rig.dictionary("object-0"));
}

#[test]
fn half_the_ratio_is_a_comparison_of_plain_bytes_per_kept_byte() {
    let sum = |plain, kept| Sizes { plain, kept };
    for (ours, half) in [(sum(1_000, 200), true), (sum(1_010, 200), false), (sum(500, 100), true)] {
        assert_eq!(ours.has_half_the_ratio_of(sum(10_000, 1_000)), half, "{ours:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_reflector_waits_while_too_many_bytes_are_unpacked() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(50, alike);
    rig.settle().await;
    let mut sent = 0;
    while rig.store.has_room() {
        rig.put(&format!("more-{sent}"), &alike(sent));
        sent += 1;
    }
    assert!(sent < 150, "{sent} bodies of a kilobyte");
    let began = Instant::now();
    rig.store.room().await;
    assert_eq!(began.elapsed(), Duration::ZERO, "packed without delay");
    rig.settle().await;
    assert_eq!(rig.packing().objects, 50 + sent);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_packer_costs_memory_but_no_watch() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(50, alike);
    rig.settle().await;
    // Stands for a full blocking pool: a batch holds the compressor and does not end.
    let compressor = rig.compressor.clone().lock_owned().await;
    let mut sent = 0;
    while rig.store.has_room() {
        rig.put(&format!("more-{sent}"), &alike(sent));
        sent += 1;
    }
    let began = Instant::now();
    rig.store.room().await;
    assert_eq!((began.elapsed(), rig.store.status().pack_stalls), (STALL_TIMEOUT, 1));
    rig.put_all(400, alike);
    assert!(rig.store.has_room(), "the reflector does not wait for a stalled packer");
    drop(compressor);
    rig.settle().await;
    assert_eq!(rig.packing().objects, 400 + sent, "the bodies left plain meanwhile are packed too");
}

#[tokio::test(start_paused = true)]
async fn after_the_packer_ends_objects_are_readable_and_the_reflector_continues() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(50, alike);
    rig.settle().await;
    rig.tasks.shutdown().await;
    rig.put_all(300, |number| alike(number + 5));
    rig.store.room().await;
    assert_eq!((rig.data("object-1"), rig.data("object-299")), (alike(6), alike(304)));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_body_is_reported_to_its_reader_only() {
    let mut rig = Rig::start(Pack::Auto);
    rig.put_all(50, alike);
    rig.settle().await;
    let view = rig.get("object-1");
    let Form::Packed(packed) = view.body().form() else { panic!("it is packed") };
    view.body().replace(Form::Packed(packed.cut_off()));
    let error = view.decode::<Value>().unwrap_err();
    assert!(matches!(error, ReadError::Damaged { .. }), "{error:?}");
    assert_eq!(error.to_string(), "ConfigMap shop/object-1 cannot be read from memory; restart the process");
    assert!(view.bytes().is_err());
    assert_eq!(rig.data("object-2"), alike(2));
}

#[test]
fn a_replaced_version_is_not_packed() {
    let store = empty();
    let put = |version: u64| {
        let object = object("a", "u1", version).to_string();
        store.receive(0, Received::Changed, object.as_bytes());
        store.everything().remove(0)
    };
    let dictionary = Arc::new(Dictionary::train(1, &Samples::default()).unwrap());
    let (old, new) = (put(5), put(6));
    let pack = |view: &View| {
        let plain = view.bytes().unwrap();
        (view.clone(), dictionary.pack(&mut Compressor::default(), &plain).unwrap())
    };
    store.packed(vec![pack(&old)], 0);
    assert_eq!(store.status().packing.objects, 0);
    assert!(matches!(old.body().form(), Form::Plain(_)));
    store.packed(vec![pack(&new)], 0);
    assert_eq!(store.status().packing.objects, 1);
}

#[test]
fn readers_see_the_same_bytes_while_dictionaries_change() {
    let store = empty();
    for number in 0..50 {
        let mut object = object(&format!("object-{number}"), &format!("u{number}"), 5);
        object["data"] = alike(number);
        store.receive(0, Received::Changed, object.to_string().as_bytes());
    }
    let views = store.everything();
    let expected: Vec<_> = views.iter().map(|view| view.bytes().unwrap()).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    for (view, expected) in views.iter().zip(&expected) {
                        assert_eq!(view.bytes().unwrap(), expected);
                    }
                }
            });
        }
        let mut compressor = Compressor::default();
        for number in 0..10 {
            let dictionary = Trained::measure(number, &views, None, &mut compressor).unwrap().dictionary;
            let mut batch = Batch::default();
            for view in &views {
                batch.pack(&dictionary, &mut compressor, view.clone());
            }
            assert_eq!(batch.packed.len(), 50);
            store.packed(batch.packed, 0);
        }
    });
    assert_eq!(store.status().packing.objects, 50);
}

#[test]
fn a_batch_takes_the_bodies_that_fit_and_at_least_one() {
    let store = empty();
    for number in 0..10 {
        let object = object(&format!("object-{number}"), &format!("u{number}"), 5);
        store.receive(0, Received::Changed, object.to_string().as_bytes());
    }
    let views = store.everything();
    let length = views[0].body().plain_len();
    let mut queue: VecDeque<_> = views.into_iter().map(|view| QueuedBody { view, bytes: 0 }).collect();
    assert_eq!(take_batch(&mut queue, 3 * length).len(), 3);
    assert_eq!(take_batch(&mut queue, 1).len(), 1);
    assert_eq!(take_batch(&mut queue, usize::MAX).len(), 6);
    assert!(take_batch(&mut queue, 1).is_empty());
}
