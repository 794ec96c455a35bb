//! A model of two or three replicas and one Lease, which tries the possible events in every order.
//!
//! A move is one step: a request reaches the server, an answer or a watch event reaches its replica, a timer
//! fires, time passes, a process is killed and restarted, the Lease is edited by hand. A replica without
//! moves is frozen.
//!
//! Checked after each move, for several clock rates: at most one fence is open; a replica with an open fence
//! is leading and knows a Lease that names it; no replica leads for longer than it may write. Checked at each
//! write: no replica acquires a Lease that another one holds, releases the Lease of another holder, or
//! releases its own before its work has ended.

mod moves;
mod replica;
mod world;

use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher as _;

use self::moves::{Hand, LENGTHENED, Move};
use self::replica::{Replica, Wire};
use self::world::World;
use super::*;

/// The rates of two clocks, in thousandths.
const PAIRS: [[u32; 2]; 3] = [[950, 1050], [1050, 950], [1000, 1000]];
/// The rates of three clocks, in thousandths.
const TRIPLES: [[u32; 3]; 3] = [[950, 1050, 1000], [1050, 1000, 950], [1000, 950, 1050]];

/// Longest time of a healthy cluster without a leader: a whole claim, which restarts if the Lease is found
/// cleared and then deleted, plus the longest wait of a candidate between two gets.
const LEADERLESS: Duration = Duration::from_secs(30);
/// Time, after a leader was elected in a healthy cluster, for which the leader must not change.
const CALM: Duration = Duration::from_secs(30);

/// Longest claim that may remain after the calm time: the longest lease duration of the replicas.
const LONGEST_CLAIM: Duration = Duration::from_secs(10);

/// Iterates over the rates of two clocks, then of three.
fn all_rates() -> impl Iterator<Item = &'static [u32]> {
    PAIRS.iter().map(|rates| &rates[..]).chain(TRIPLES.iter().map(|rates| &rates[..]))
}

/// Tries every order of moves from `start`, breadth first, until `most` states were seen; returns the depth
/// reached.
fn explore(start: World, most: usize) -> usize {
    let hasher = std::hash::RandomState::new();
    let mut seen = HashSet::from([hasher.hash_one(&start)]);
    let mut layer = vec![(start, Vec::new())];
    let mut depth = 0;
    while seen.len() < most && !layer.is_empty() {
        let mut next = Vec::new();
        for (world, path) in layer {
            // A layer may be many times as wide as all before it, so it may stay unfinished.
            if seen.len() > 4 * most {
                return depth;
            }
            for step in world.moves(true) {
                let mut world = world.clone();
                world.apply(step);
                if seen.insert(hasher.hash_one(&world)) {
                    let mut path: Vec<Move> = path.clone();
                    path.push(step);
                    world.check().unwrap_or_else(|wrong| panic!("{wrong} after {path:?}: {world:#?}"));
                    next.push((world, path));
                }
            }
        }
        layer = next;
        depth += 1;
    }
    depth
}

/// Returns whether `MAINSTAY_LONG=1` is set, for a longer search.
fn long_form() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

/// Returns a world of two or three replicas with a leader and no other event pending.
fn settled(rates: &[u32]) -> World {
    let mut world = World::new(rates, OnLost::Campaign);
    world.settle(Duration::from_secs(3));
    assert_eq!(world.holders().len(), 1, "{world:#?}");
    world
}

fn leader(world: &World) -> usize {
    let leads = |replica: &Replica| replica.state.is_leading();
    world.replicas.iter().position(leads).expect("a leader")
}

/// Steps without failures until the leader has sent a renewal.
fn until_renewal(world: &mut World) -> usize {
    let leader = leader(world);
    while !matches!(world.replicas[leader].wire, Some(Wire::Sent(Call::Update { .. }))) {
        world.step_calmly();
    }
    leader
}

#[track_caller]
fn check_every_order(start: World, least_depth: usize) {
    // Four times as much is a gigabyte of worlds.
    let depth = explore(start, if long_form() { 20_000 } else { 5_000 });
    assert!(depth >= least_depth, "only {depth} moves deep");
}

// === every order of moves, from critical states ===

#[test]
fn no_order_of_events_opens_two_fences_from_a_cold_start() {
    for rates in all_rates() {
        check_every_order(World::new(rates, OnLost::Campaign), if rates.len() == 2 { 5 } else { 4 });
    }
}

#[test]
fn no_order_of_events_opens_two_fences_from_a_settled_pair_or_three() {
    for rates in all_rates() {
        check_every_order(settled(rates), if rates.len() == 2 { 4 } else { 3 });
    }
}

/// A leader's renewal is stored at once and answered late, and its next one is lost: the fence ends a fixed
/// time after the first was sent.
#[test]
fn no_order_of_events_opens_two_fences_after_a_late_answer() {
    for rates in all_rates() {
        let mut world = settled(rates);
        let leader = until_renewal(&mut world);
        let rules = world.replicas[leader].rules.clone();
        let sent = world.time;
        world.apply(Move::Serve(leader));
        for i in 0..rates.len() {
            world.apply(Move::Watch(i));
        }
        world.freeze_until(sent + rules.retry_period + rules.renew_deadline / 2);
        world.apply(Move::Answer(leader));
        world.apply(Move::Lose(leader));
        // The leader made no move up to the end of its fence.
        world.freeze_until(sent + rules.fence_after_send());
        check_every_order(world, 4);
    }
}

/// A leader is frozen right after its renewal, and the search starts just before its fence ends.
#[test]
fn no_order_of_events_opens_two_fences_as_a_frozen_leaders_time_ends() {
    for rates in all_rates() {
        let mut world = settled(rates);
        let leader = until_renewal(&mut world);
        let (sent, holds) = (world.time, world.replicas[leader].rules.fence_after_send());
        world.apply(Move::Serve(leader));
        world.apply(Move::Answer(leader));
        for i in 0..rates.len() {
            world.apply(Move::Watch(i));
        }
        world.freeze_until(sent + holds);
        check_every_order(world, 4);
    }
}

// === edits by hand that no watch delivers ===

/// A leader is frozen right after a renewal that the others missed, and before their next get the Lease is
/// edited by hand, once or twice. The others must still wait for as long as that leader may write.
#[test]
fn no_edit_by_hand_shortens_the_wait_for_a_frozen_leader() {
    let check = |rates: &[u32], first: usize, second: Option<usize>| {
        let mut world = settled(rates);
        world.hands = u32::MAX;
        let leader = until_renewal(&mut world);
        let lasts = world.replicas[leader].rules.lease_duration * 2;
        world.apply(Move::Serve(leader));
        world.apply(Move::Answer(leader));
        let change_unseen = |world: &mut World, hand: usize| {
            for i in (0..rates.len()).filter(|i| *i != leader) {
                world.apply(Move::WatchDown(i));
            }
            let hand = world.all_hands().get(hand).copied();
            hand.map(|hand| world.apply(Move::ByHand(hand))).is_some()
        };
        let mut changed = change_unseen(&mut world, first);
        if let Some(second) = second {
            world.settle_without(leader, Duration::from_secs(1));
            changed &= change_unseen(&mut world, second);
        }
        world.settle_without(leader, lasts);
        changed
    };
    for rates in all_rates() {
        let mut first = 0;
        while check(rates, first, None) {
            let mut second = 0;
            while check(rates, first, Some(second)) {
                second += 1;
            }
            first += 1;
        }
        assert!(first >= 6, "expected to try every edit: {first}");
    }
}

// === long random runs ===

#[test]
fn long_random_runs_never_open_two_fences_and_end_with_a_leader() {
    let first = std::env::var("MAINSTAY_SEED").ok().and_then(|seed| seed.parse().ok());
    let lives = if long_form() { 50_000 } else { 3_000 };
    let seeds = first.map_or(0..lives, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let rates: Vec<u32> = (0..random.usize(2..=3)).map(|_| random.u32(950..=1050)).collect();
        let mut world = World::new(&rates, OnLost::Campaign);
        (world.hands, world.restarts) = (u32::MAX, u32::MAX);
        for replica in &mut world.replicas {
            replica.rules.on_lost = if random.bool() { OnLost::Exit } else { OnLost::Campaign };
        }
        // Some runs have few failures and some have many; time must pass often enough for timers to expire.
        let (wildness, haste) = (random.f64() * 0.5, random.f64() * 0.5);
        let mut path = VecDeque::new();
        // From time to time one replica is frozen and thawed; its request arrives meanwhile, or is lost.
        let (mut frozen, mut cut, mut lengthened) = (None, false, false);
        for _ in 0..600 {
            if random.f64() < 0.03 {
                frozen = frozen.is_none().then(|| random.usize(..rates.len()));
                cut = random.bool();
            }
            let mut moves = world.moves(random.f64() < wildness);
            // At least one replica is never stopped, so that one can lead.
            let stopping = world.replicas.iter().filter(|replica| replica.state.stopping).count();
            let may_stop = stopping + 1 < rates.len() && random.f64() < 0.02;
            let may_restart = random.f64() < 0.1;
            moves.retain(|step| {
                (may_stop || !matches!(step, Move::Stop(_)))
                    && (may_restart || !matches!(step, Move::Restart(_)))
                    && (frozen.is_none() || step.runs_on() != frozen)
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
            lengthened |= step == Move::ByHand(Hand::Lengthen);
            for replica in &mut world.replicas {
                replica.random = random.f64();
            }
            world.apply(step);
            world.check().unwrap_or_else(|wrong| {
                panic!("{wrong}, MAINSTAY_SEED={seed}, rates {rates:?}, last {path:?}: {world:#?}")
            });
        }
        world.settle_with_restarts(LEADERLESS);
        if lengthened && world.holders().is_empty() {
            // The holder ended before it could overwrite the lengthened duration, so the candidates wait for
            // it.
            world.settle_with_restarts(Duration::from_secs(LENGTHENED.unsigned_abs().into()));
        }
        let holders: Vec<_> = world.holders().into_iter().map(str::to_owned).collect();
        assert_eq!(holders.len(), 1, "expected a leader, MAINSTAY_SEED={seed}: {world:#?}");
        let end = world.time + CALM;
        while world.time < end {
            world.step_calmly();
            assert_eq!(world.holders(), holders, "expected no change, MAINSTAY_SEED={seed}: {world:#?}");
        }
        let longest = world.longest_wait();
        assert!(longest <= LONGEST_CLAIM, "a claim of {longest:?} remains, MAINSTAY_SEED={seed}: {world:#?}");
    }
}

// === take-over without a wait, and overlaps that cannot be prevented ===

#[test]
fn a_released_lease_is_acquired_without_waiting() {
    let mut world = World::new(&[1000, 1000], OnLost::Exit);
    world.settle(Duration::from_secs(5));
    let leader = leader(&world);
    let before = world.time;
    world.apply(Move::Stop(leader));
    while world.replicas[1 - leader].fence.is_none() {
        world.step_calmly();
    }
    assert!(world.replicas[leader].finished);
    assert_eq!(world.time, before, "no time passed");
}

#[test]
fn a_new_replica_overlaps_with_the_holder_of_a_deleted_lease_until_its_watch_event() {
    let mut world = World::new(&[1000, 1000], OnLost::Campaign);
    world.apply(Move::WatchUp(0));
    // Replica b starts after the deletion, so it makes no move before.
    while world.replicas[0].fence.is_none() {
        let step = world
            .moves(false)
            .into_iter()
            .find(|step| matches!(step, Move::Serve(0) | Move::Answer(0) | Move::Tick(0)));
        world.apply(step.unwrap_or(Move::TimePasses));
    }
    world.delete();
    world.renewal = None;
    world.replicas[0].watch.retain(|event| matches!(event, Event::Gone(..)));
    for step in [Move::WatchUp(1), Move::Serve(1), Move::Answer(1), Move::Serve(1), Move::Answer(1)] {
        world.apply(step);
    }
    assert_eq!(world.holders(), ["a", "b"], "an overlap that cannot be prevented");
    world.apply(Move::Watch(0));
    assert_eq!(world.holders(), ["b"], "the watch event ends the overlap");
}

#[test]
fn a_new_replica_does_not_acquire_a_shortened_lease_once_the_leader_has_the_event() {
    for rates in PAIRS {
        let mut world = settled(&rates);
        let leader = until_renewal(&mut world);
        let held = world.replicas[leader].rules.identity.to_string();
        world.apply(Move::Serve(leader));
        world.apply(Move::Answer(leader));
        world.apply(Move::ByHand(Hand::Shorten));
        world.apply(Move::Restart(1 - leader));
        world.settle(CALM);
        assert_eq!(world.holders(), [held], "rates {rates:?}");
    }
}

#[test]
fn a_new_replica_overlaps_with_the_holder_of_a_shortened_lease_until_its_watch_event() {
    let mut world = settled(&[1000, 1000]);
    let leader = until_renewal(&mut world);
    world.apply(Move::Serve(leader));
    world.apply(Move::Answer(leader));
    world.apply(Move::ByHand(Hand::Shorten));
    world.renewal = None;
    let new = 1 - leader;
    world.apply(Move::Restart(new));
    // The leader is frozen and makes no move.
    while world.replicas[new].fence.is_none() {
        let step = world.moves(false).into_iter().find(|step| {
            matches!(step, Move::Serve(i) | Move::Answer(i) | Move::Tick(i) | Move::WatchUp(i) if *i == new)
        });
        world.apply(step.unwrap_or(Move::TimePasses));
    }
    assert_eq!(world.holders().len(), 2, "an overlap that cannot be prevented");
    while !world.replicas[leader].watch.is_empty() {
        world.apply(Move::Watch(leader));
    }
    assert_eq!(world.holders(), [&*world.replicas[new].rules.identity], "the watch event ends the overlap");
}
