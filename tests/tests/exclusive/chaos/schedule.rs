//! The faults and edits of one run with their times, a pure function of the seed.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

/// Number of managers. The last one is never killed or terminated, so that growth over time shows in its
/// process.
pub(super) const MANAGERS: usize = 3;
/// Number of WaitDeployments.
pub(super) const OBJECTS: usize = 100;
/// Number of addresses that the WaitDeployments wait for.
pub(super) const PREREQUISITES: usize = 4;
/// Collections that may lose their watch.
const WATCHED: [&str; 3] = ["waitdeployments", "deployments", "leases"];

const EDIT_PERIOD_MILLIS: Range<u64> = 50..150;
/// Pause between two faults of one target.
const CALM_MILLIS: Range<u64> = 1_000..7_000;
const CALM_OF_SERVERS_MILLIS: Range<u64> = 6_000..18_000;

/// All faults and edits of one run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) duration: Duration,
    /// Ordered by their begin. Faults of one target never overlap.
    pub(super) faults: Vec<Fault>,
    /// Ordered by time.
    pub(super) edits: Vec<Edit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) target: Target,
    pub(super) kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Manager(usize),
    Servers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// SIGKILL, and a new process at the end.
    Kill,
    /// SIGTERM, and a new process at the end.
    Terminate,
    /// SIGSTOP, and SIGCONT at the end.
    Freeze,
    /// The watch of a collection ends, and every request for the collection is cut off.
    Cut(&'static str),
    /// The proxy answers every request with this status.
    Refuse(u16),
    /// SIGKILL, and a new process at the end.
    KillApiServer,
    /// SIGKILL, and a new process on the same data at the end.
    KillEtcd,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) at: Duration,
    pub(super) object: usize,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create,
    Replicas(usize),
    Image(usize),
    /// Replaces the dependency by another address.
    WaitFor(usize),
    Delete(Propagation),
    /// Deletes the object and immediately creates one of the same name.
    Again(Propagation),
    /// Deletes the child of the object.
    DeleteDeployment,
    /// Edits the child of the object.
    ScaleDeployment(usize),
    /// Stops or starts the listener on an address.
    Toggle(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

// === impl Schedule ===

impl Schedule {
    pub(super) fn draw(seed: u64, duration: Duration) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut faults = faults_of(Target::Servers, duration, &mut random);
        for manager in 0..MANAGERS {
            faults.extend(faults_of(Target::Manager(manager), duration, &mut random));
        }
        faults.sort_by_key(|fault| fault.at);
        Self { duration, faults, edits: edits(duration, &mut random) }
    }

    pub(super) fn faults_of(&self, target: Target) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| fault.target == target)
    }
}

/// Prints one line per fault, and the number of edits.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Fault { at, lasts, target, kind } in &self.faults {
            writeln!(f, "{:7.3} s for {:.3} s: {target:?} {kind:?}", at.as_secs_f64(), lasts.as_secs_f64())?;
        }
        write!(f, "{} edits in {:?}", self.edits.len(), self.duration)
    }
}

fn faults_of(target: Target, duration: Duration, random: &mut Rng) -> Vec<Fault> {
    let calm = match target {
        Target::Manager(_) => CALM_MILLIS,
        Target::Servers => CALM_OF_SERVERS_MILLIS,
    };
    let mut faults = Vec::new();
    let mut free = Duration::ZERO;
    loop {
        let at = free + millis(calm.clone(), random);
        let (kind, lasts) = draw_fault(target, random);
        free = at + lasts;
        if free > duration {
            return faults;
        }
        faults.push(Fault { at, lasts, target, kind });
    }
}

fn draw_fault(target: Target, random: &mut Rng) -> (FaultKind, Duration) {
    let first = match target {
        Target::Servers => {
            return (
                if random.bool() { FaultKind::KillApiServer } else { FaultKind::KillEtcd },
                millis(0..4_000, random),
            );
        }
        // Leaves out Kill and Terminate.
        Target::Manager(manager) if manager + 1 == MANAGERS => 3,
        Target::Manager(_) => 0,
    };
    match random.u8(first..8) {
        0 => (FaultKind::Kill, millis(0..3_000, random)),
        1..3 => (FaultKind::Terminate, millis(0..3_000, random)),
        // The longer half lasts longer than the Lease.
        3..5 => (FaultKind::Freeze, millis(1_000..12_000, random)),
        5 => (FaultKind::Cut(WATCHED[random.usize(..WATCHED.len())]), millis(0..3_000, random)),
        6 => (FaultKind::Refuse(429), millis(1_000..8_000, random)),
        _ => (FaultKind::Refuse(500), millis(1_000..8_000, random)),
    }
}

fn edits(duration: Duration, random: &mut Rng) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut at = Duration::ZERO;
    while at < duration {
        let object = random.usize(..OBJECTS);
        let propagation =
            [Propagation::Background, Propagation::Foreground, Propagation::Orphan][random.usize(..3)];
        let change = match random.u8(..20) {
            0..4 => Change::Create,
            4..8 => Change::Image(random.usize(..1_000)),
            8..11 => Change::Replicas(random.usize(..3)),
            11..13 => Change::WaitFor(random.usize(..PREREQUISITES)),
            13..15 => Change::Delete(propagation),
            15..17 => Change::Again(propagation),
            17 => Change::DeleteDeployment,
            18 => Change::ScaleDeployment(random.usize(..3)),
            _ => Change::Toggle(random.usize(..PREREQUISITES)),
        };
        edits.push(Edit { at, object, change });
        at += millis(EDIT_PERIOD_MILLIS, random);
    }
    edits
}

fn millis(range: Range<u64>, random: &mut Rng) -> Duration {
    Duration::from_millis(random.u64(range))
}

// === tests ===

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn equal_seeds_draw_equal_schedules_and_other_seeds_do_not() {
    assert_eq!(Schedule::draw(7, MINUTE), Schedule::draw(7, MINUTE));
    assert_ne!(Schedule::draw(7, MINUTE), Schedule::draw(8, MINUTE));
}

#[test]
fn faults_of_one_target_never_overlap_and_end_in_time() {
    for seed in 0..100 {
        let schedule = Schedule::draw(seed, MINUTE);
        assert!(schedule.faults.is_sorted_by_key(|fault| fault.at), "{schedule}");
        for target in (0..MANAGERS).map(Target::Manager).chain([Target::Servers]) {
            let mut free = Duration::ZERO;
            for fault in schedule.faults_of(target) {
                assert!(fault.at >= free, "{fault:?} in {schedule}");
                free = fault.at + fault.lasts;
            }
            assert!(free <= MINUTE, "{schedule}");
        }
    }
}

#[test]
fn the_last_manager_is_never_killed_or_terminated() {
    let schedule = Schedule::draw(1, MINUTE * 100);
    let ended = |fault: &&Fault| matches!(fault.kind, FaultKind::Kill | FaultKind::Terminate);
    assert_eq!(schedule.faults_of(Target::Manager(MANAGERS - 1)).find(ended), None);
    assert!(schedule.faults_of(Target::Manager(0)).any(|fault| ended(&fault)));
}
