//! A model of two replicas, one Lease and everything that can come between, tried in every order.
//!
//! A move is one step of one party: a request reaches the server, an answer or a watch event reaches its replica, a
//! timer fires, time passes, somebody deletes the Lease. A replica that makes no moves is one that is frozen. After
//! each move at most one fence may be open, whatever the clocks' rates.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};

use super::*;
use crate::election::record::Version;
use k8s_openapi::api::coordination::v1::Lease;

/// Time passes in steps of this.
const STEP: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
struct World {
    time: Duration,
    /// The stored record and its version.
    lease: Option<(Record, u64)>,
    version: u64,
    replicas: Vec<Replica>,
}

#[derive(Clone, Debug)]
struct Replica {
    rules: ElectionSettings,
    /// How fast its clock goes, in thousandths.
    rate: u32,
    state: State,
    fence: Option<BootInstant>,
    wire: Option<Wire>,
    /// Writes it no longer waits for, which may still reach the server.
    late: Vec<Call>,
    watch: VecDeque<Event>,
    /// Leader-only work was told to end and has not.
    ending_work: bool,
    finished: bool,
}

#[derive(Clone, Debug)]
enum Wire {
    Sent(Call),
    Served(Answer),
    /// The network lost the request or its answer, and the sender does not know yet.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    TimePasses,
    Serve(usize),
    Answer(usize),
    Fail(usize),
    /// The network loses a request or its answer: nobody has to run for that, and nobody is told.
    Lose(usize),
    ServeLate(usize),
    Watch(usize),
    Tick(usize),
    WatchDown(usize),
    WatchUp(usize),
    Stop(usize),
    WorkEnds(usize),
    Delete,
    ClearByHand,
    Touch,
}

// === impl Move ===

impl Move {
    /// The replica whose process has to run for this, if one has to.
    fn runs_on(self) -> Option<usize> {
        match self {
            Self::Answer(i)
            | Self::Fail(i)
            | Self::Watch(i)
            | Self::Tick(i)
            | Self::WatchDown(i)
            | Self::WatchUp(i)
            | Self::Stop(i)
            | Self::WorkEnds(i) => Some(i),
            Self::TimePasses
            | Self::Serve(_)
            | Self::Lose(_)
            | Self::ServeLate(_)
            | Self::Delete
            | Self::ClearByHand
            | Self::Touch => None,
        }
    }
}

// === impl Replica ===

impl Replica {
    fn now(&self, time: Duration) -> Now {
        let boot = BootInstant::from_boot(time * self.rate / 1000);
        let wall = Timestamp::from_second(i64::try_from(time.as_secs()).unwrap()).unwrap();
        Now { boot, wall, random: 0.5 }
    }

    fn has_open_fence(&self, time: Duration) -> bool {
        self.fence.is_some_and(|until| self.now(time).boot < until)
    }

    fn react(&mut self, time: Duration, event: Event) {
        let now = self.now(time);
        let (state, actions) = decide(&self.rules, self.state.clone(), now, event);
        self.state = state;
        for action in actions {
            match action {
                Action::Send(call) => {
                    assert!(self.wire.is_none(), "one request at a time");
                    if matches!(&call, Call::Update { record, .. } if record.is_release()) {
                        assert!(self.fence.is_none(), "the fence is closed before a release leaves");
                    }
                    self.wire = Some(Wire::Sent(call));
                }
                Action::Abandon => self.give_up_waiting(),
                Action::Lead { until, .. } | Action::Extend { until } => self.fence = Some(until),
                Action::Suspend | Action::StopLeading(_) => self.fence = None,
                Action::EndWork => self.ending_work = true,
                Action::Finish { .. } => self.finished = true,
                Action::Standby | Action::NewHolder(_) => {}
            }
        }
    }

    fn give_up_waiting(&mut self) {
        if let Some(Wire::Sent(call)) = self.wire.take()
            && call != Call::Get
            && self.late.len() < 2
        {
            self.late.push(call);
        }
    }
}

// === impl World ===

impl World {
    fn new(rates: &[u32], on_lost: OnLost) -> Self {
        let replica = |(number, rate): (usize, &u32)| {
            let rules = ElectionSettings {
                lease_duration: Duration::from_secs(10),
                renew_deadline: Duration::from_secs(6),
                retry_period: Duration::from_secs(2),
                on_lost,
                ..ElectionSettings::new("default", "model", ["a", "b", "c"][number])
            };
            assert_eq!(rules.validate(), []);
            Replica {
                rules,
                rate: *rate,
                state: State::new(BootInstant::from_boot(Duration::ZERO)),
                fence: None,
                wire: None,
                late: Vec::new(),
                watch: VecDeque::new(),
                ending_work: false,
                finished: false,
            }
        };
        let replicas = rates.iter().enumerate().map(replica).collect();
        Self { time: Duration::ZERO, lease: None, version: 0, replicas }
    }

    fn stored(version: u64) -> Version {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_string());
        Version::of(lease)
    }

    fn store(&mut self, record: Record) -> Answer {
        self.version += 1;
        let version = Self::stored(self.version);
        self.lease = Some((record.clone(), self.version));
        for replica in self.replicas.iter_mut().filter(|replica| replica.state.watching) {
            replica.watch.push_back(Event::Seen(record.clone(), version.clone()));
        }
        Answer::Is(record, version)
    }

    fn delete(&mut self) {
        if let Some((record, _)) = self.lease.take() {
            self.version += 1;
            let version = Self::stored(self.version);
            for replica in self.replicas.iter_mut().filter(|replica| replica.state.watching) {
                replica.watch.push_back(Event::Gone(record.clone(), version.clone()));
            }
        }
    }

    fn serve(&mut self, call: Call) -> Answer {
        match (call, self.lease.clone()) {
            (Call::Get, Some((record, version))) => Answer::Is(record, Self::stored(version)),
            (Call::Get | Call::Update { .. }, None) => Answer::Absent,
            (Call::Create(record), None) => self.store(record),
            (Call::Update { record, over }, Some((_, version))) if over.number() == Some(version) => {
                self.store(record)
            }
            (Call::Create(_) | Call::Update { .. }, Some(_)) => Answer::Conflict,
        }
    }

    /// Whether everybody has seen the holder's term and nobody's create is on its way: the case in which nobody
    /// takes a deleted Lease while its holder may write.
    fn is_known_to_all(&self) -> bool {
        let Some((record, _)) = &self.lease else { return false };
        let Some(holder) = &record.holder else { return record.is_release() };
        self.replicas.iter().all(|replica| {
            let knows = matches!(&replica.state.known, Known::Present(known, _)
                if known.holder.as_ref() == Some(holder) && known.acquired == record.acquired);
            let creates = matches!(replica.wire, Some(Wire::Sent(Call::Create(_))))
                || replica.late.iter().any(|call| matches!(call, Call::Create(_)));
            replica.rules.identity == *holder || (knows && !creates)
        })
    }

    fn moves(&self, failures: bool) -> Vec<Move> {
        let mut moves = vec![Move::TimePasses];
        for (i, replica) in self.replicas.iter().enumerate().filter(|(_, replica)| !replica.finished) {
            match &replica.wire {
                Some(Wire::Sent(_)) => moves.push(Move::Serve(i)),
                Some(Wire::Served(_)) => moves.push(Move::Answer(i)),
                // Its deadline is what ends it.
                Some(Wire::Lost) => moves.push(Move::Fail(i)),
                None => {}
            }
            let due = replica.state.wake_at(&replica.rules);
            if due.is_some_and(|due| due <= replica.now(self.time).boot) {
                moves.push(Move::Tick(i));
            }
            if !replica.watch.is_empty() {
                moves.push(Move::Watch(i));
            }
            if !replica.state.watching {
                moves.push(Move::WatchUp(i));
            }
            if replica.ending_work {
                moves.push(Move::WorkEnds(i));
            }
            if failures {
                if matches!(replica.wire, Some(Wire::Sent(_) | Wire::Served(_))) {
                    moves.extend([Move::Fail(i), Move::Lose(i)]);
                }
                if replica.state.watching {
                    moves.push(Move::WatchDown(i));
                }
                if !replica.state.stopping {
                    moves.push(Move::Stop(i));
                }
            }
        }
        for (i, replica) in self.replicas.iter().enumerate() {
            if failures && !replica.late.is_empty() {
                moves.push(Move::ServeLate(i));
            }
        }
        if failures && self.lease.is_some() {
            moves.push(Move::Touch);
            if self.is_known_to_all() {
                moves.extend([Move::Delete, Move::ClearByHand]);
            }
        }
        moves
    }

    fn apply(&mut self, step: Move) {
        let time = self.time;
        match step {
            Move::TimePasses => self.time += STEP,
            Move::Serve(i) | Move::ServeLate(i) => {
                let late = matches!(step, Move::ServeLate(_));
                let call = if late {
                    self.replicas[i].late.remove(0)
                } else {
                    match self.replicas[i].wire.take() {
                        Some(Wire::Sent(call)) => call,
                        other => panic!("nothing to serve: {other:?}"),
                    }
                };
                let answer = self.serve(call);
                if !late {
                    self.replicas[i].wire = Some(Wire::Served(answer));
                }
            }
            Move::Answer(i) => match self.replicas[i].wire.take() {
                Some(Wire::Served(answer)) => self.replicas[i].react(time, Event::Answered(answer)),
                other => panic!("nothing to answer: {other:?}"),
            },
            Move::Lose(i) => self.replicas[i].wire = Some(Wire::Lost),
            Move::Fail(i) => {
                self.replicas[i].give_up_waiting();
                self.replicas[i].react(time, Event::Answered(Answer::Failed));
            }
            Move::Watch(i) => {
                let event = self.replicas[i].watch.pop_front().unwrap();
                self.replicas[i].react(time, event);
            }
            Move::Tick(i) => self.replicas[i].react(time, Event::Tick),
            Move::WatchUp(i) => {
                let present = self.lease.clone();
                self.replicas[i].react(time, Event::WatchUp);
                let first = present.map(|(record, version)| Event::Seen(record, Self::stored(version)));
                self.replicas[i].watch.extend(first);
            }
            Move::WatchDown(i) => {
                self.replicas[i].watch.clear();
                self.replicas[i].react(time, Event::WatchDown);
            }
            Move::Stop(i) => self.replicas[i].react(time, Event::Stop),
            Move::WorkEnds(i) => {
                self.replicas[i].ending_work = false;
                self.replicas[i].react(time, Event::WorkEnded(true));
            }
            Move::Delete => self.delete(),
            Move::ClearByHand => {
                if let Some((record, _)) = self.lease.clone() {
                    drop(self.store(Record { holder: None, ..record }));
                }
            }
            Move::Touch => {
                if let Some((record, _)) = self.lease.clone() {
                    drop(self.store(record));
                }
            }
        }
    }

    fn holders(&self) -> Vec<&str> {
        let open = self.replicas.iter().filter(|replica| replica.has_open_fence(self.time));
        open.map(|replica| &*replica.rules.identity).collect()
    }

    /// Lets everything happen in good time for a while: what a healthy cluster does.
    fn settle(&mut self, time: Duration) {
        let end = self.time + time;
        while self.time < end {
            let busy = self.moves(false).into_iter().find(|step| *step != Move::TimePasses);
            self.apply(busy.unwrap_or(Move::TimePasses));
            assert!(self.holders().len() <= 1, "{self:#?}");
        }
    }

    fn fingerprint(&self, hasher: &impl BuildHasher) -> u64 {
        struct Into<H>(H);
        impl<H: Hasher> Write for Into<H> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.write(text.as_bytes());
                Ok(())
            }
        }
        let mut into = Into(hasher.build_hasher());
        write!(into, "{:?} {:?} {}", self.time, self.lease, self.version).unwrap();
        for r in &self.replicas {
            write!(into, "{:?}{:?}{:?}{:?}{:?}", r.state, r.fence, r.wire, r.late, r.watch).unwrap();
            write!(into, "{}{}", r.ending_work, r.finished).unwrap();
        }
        into.0.finish()
    }
}

/// Tries every order of moves from `start`, breadth first, until `most` states were seen; returns how deep it came.
fn explore(start: World, most: usize) -> usize {
    let hasher = std::hash::RandomState::new();
    let mut seen = HashSet::from([start.fingerprint(&hasher)]);
    let mut layer = vec![(start, Vec::new())];
    let mut depth = 0;
    while seen.len() < most && !layer.is_empty() {
        let mut next = Vec::new();
        for (world, path) in layer {
            // A layer may be many times as wide as all before it: it is not finished at any price.
            if seen.len() > 4 * most {
                return depth;
            }
            for step in world.moves(true) {
                let mut world = world.clone();
                world.apply(step);
                if seen.insert(world.fingerprint(&hasher)) {
                    let mut path: Vec<Move> = path.clone();
                    path.push(step);
                    assert!(world.holders().len() <= 1, "two open fences after {path:?}: {world:#?}");
                    next.push((world, path));
                }
            }
        }
        layer = next;
        depth += 1;
    }
    depth
}

/// How much to try; `MAINSTAY_LONG=1` gives the long form.
fn effort() -> usize {
    if std::env::var_os("MAINSTAY_LONG").is_some() { 20 } else { 1 }
}

const RATES: [[u32; 2]; 3] = [[950, 1050], [1050, 950], [1000, 1000]];

#[test]
fn no_order_of_events_opens_two_fences_from_a_cold_start() {
    for rates in RATES {
        let depth = explore(World::new(&rates, OnLost::Campaign), 6_000 * effort());
        assert!(depth >= 5, "only {depth} moves deep");
    }
}

#[test]
fn no_order_of_events_opens_two_fences_from_a_settled_pair() {
    for rates in RATES {
        let mut world = World::new(&rates, OnLost::Campaign);
        world.settle(Duration::from_secs(3));
        assert_eq!(world.holders().len(), 1, "{world:#?}");
        let depth = explore(world, 6_000 * effort());
        assert!(depth >= 4, "only {depth} moves deep");
    }
}

/// A leader whose renewal was stored at once and answered late, and whose next one is lost: what counts is when it asked.
#[test]
fn no_order_of_events_opens_two_fences_after_a_late_answer() {
    for rates in RATES {
        let mut world = World::new(&rates, OnLost::Campaign);
        world.settle(Duration::from_secs(3));
        let leader = usize::from(world.holders() == ["b"]);
        while !matches!(world.replicas[leader].wire, Some(Wire::Sent(Call::Update { .. }))) {
            let calm = world.moves(false).into_iter().find(|step| *step != Move::TimePasses);
            world.apply(calm.unwrap_or(Move::TimePasses));
        }
        for step in [Move::Serve(leader), Move::Watch(1 - leader), Move::Watch(leader)] {
            world.apply(step);
        }
        let rules = world.replicas[leader].rules.clone();
        let pass = |world: &mut World, from: u64, to: Duration| {
            (from..to.as_secs()).for_each(|_| world.apply(Move::TimePasses));
        };
        pass(&mut world, 1, rules.give_up_after_send());
        world.apply(Move::Answer(leader));
        world.apply(Move::Lose(leader));
        // From here on it is frozen, as far as the moves that are tried are those of the others.
        pass(&mut world, rules.give_up_after_send().as_secs(), rules.lease_duration);
        let depth = explore(world, 6_000 * effort());
        assert!(depth >= 5, "only {depth} moves deep");
    }
}

#[test]
fn long_random_lives_never_open_two_fences_and_end_with_a_leader() {
    let first = std::env::var("MAINSTAY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..400 * effort() as u64, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let rates: Vec<u32> = (0..random.usize(2..=3)).map(|_| random.u32(950..=1050)).collect();
        let mut world = World::new(&rates, OnLost::Campaign);
        // Some lives are calm and some are wild; in most of them time must get on, or nothing ever runs out.
        let (wildness, haste) = (random.f64() * 0.5, random.f64() * 0.5);
        let mut path = VecDeque::new();
        // Every so often one replica is stopped and thawed; what it has asked for arrives meanwhile, or is lost.
        let (mut frozen, mut cut) = (None, false);
        for _ in 0..600 {
            if random.f64() < 0.03 {
                frozen = frozen.is_none().then(|| random.usize(..rates.len()));
                cut = random.bool();
            }
            let mut moves = world.moves(random.f64() < wildness);
            moves.retain(|step| {
                !matches!(step, Move::Stop(_)) && (frozen.is_none() || step.runs_on() != frozen)
            });
            let asks = |i: &usize| matches!(world.replicas[*i].wire, Some(Wire::Sent(_) | Wire::Served(_)));
            let step = match frozen.filter(|_| cut).filter(asks) {
                Some(i) => Move::Lose(i),
                None if random.f64() < haste => Move::TimePasses,
                None => moves[random.usize(..moves.len())],
            };
            path.push_back((world.time, step));
            if path.len() > 40 {
                path.pop_front();
            }
            world.apply(step);
            assert!(
                world.holders().len() <= 1,
                "MAINSTAY_SEED={seed}, rates {rates:?}, last {path:?}: {world:#?}"
            );
        }
        world.settle(Duration::from_secs(40));
        assert_eq!(
            world.holders().len(),
            1,
            "nobody leads although all can, MAINSTAY_SEED={seed}: {world:#?}"
        );
    }
}

#[test]
fn a_released_lease_is_taken_without_waiting() {
    let mut world = World::new(&[1000, 1000], OnLost::Exit);
    world.settle(Duration::from_secs(5));
    let leader = usize::from(world.holders() == ["b"]);
    let before = world.time;
    world.apply(Move::Stop(leader));
    while world.replicas[1 - leader].fence.is_none() {
        let busy = world.moves(false).into_iter().find(|step| *step != Move::TimePasses);
        world.apply(busy.unwrap_or(Move::TimePasses));
    }
    assert!(world.replicas[leader].finished);
    assert_eq!(world.time, before, "no time passed");
}

#[test]
fn a_new_replica_takes_a_deleted_lease_only_until_the_deletion_is_told() {
    let mut world = World::new(&[1000, 1000], OnLost::Campaign);
    world.apply(Move::WatchUp(0));
    // Replica b starts after the deletion: it makes no move before.
    while world.replicas[0].fence.is_none() {
        let step = world
            .moves(false)
            .into_iter()
            .find(|step| matches!(step, Move::Serve(0) | Move::Answer(0) | Move::Tick(0)));
        world.apply(step.unwrap_or(Move::TimePasses));
    }
    world.delete();
    world.replicas[0].watch.retain(|event| matches!(event, Event::Gone(..)));
    for step in [Move::WatchUp(1), Move::Serve(1), Move::Answer(1), Move::Serve(1), Move::Answer(1)] {
        world.apply(step);
    }
    assert_eq!(world.holders(), ["a", "b"], "the overlap that nobody can prevent");
    world.apply(Move::Watch(0));
    assert_eq!(world.holders(), ["b"], "it ends with the delivery of the event");
}
