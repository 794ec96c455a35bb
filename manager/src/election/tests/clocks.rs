//! Clocks that jump under a running elector: the wall clock in both directions, the boot clock only forward,
//! as after a suspend of the machine.

use super::*;
use jiff::SignedDuration;

/// A clock that follows tokio's paused one, plus offsets that a test sets.
#[derive(Clone, Default)]
struct Hands(Arc<Mutex<(Duration, SignedDuration)>>);

impl Hands {
    fn clock(&self) -> Clock {
        let (hands, follows) = (self.clone(), clock());
        Arc::new(move || {
            let (now, (boot, wall)) = (follows(), *hands.0.lock());
            Now { boot: now.boot + boot, wall: now.wall + wall, ..now }
        })
    }

    fn start(&self, server: &Server, identity: &str) -> Replica {
        Replica::start_by(self.clock(), server, ElectionSettings::new("default", "mainstay", identity))
    }

    fn move_wall(&self, by: SignedDuration) {
        self.0.lock().1 = by;
    }

    fn sleep(&self, time: Duration) {
        self.0.lock().0 += time;
    }
}

#[tokio::test(start_paused = true)]
async fn jumps_of_the_wall_clock_neither_end_nor_start_a_term() {
    let (server, of_leader, of_standby) = (Server::default(), Hands::default(), Hands::default());
    let mut leader = of_leader.start(&server, "a");
    leader.leads().await;
    let mut standby = of_standby.start(&server, "b");
    standby.sees_holder("a").await;
    let year = SignedDuration::from_hours(365 * 24);
    for by in [
        SignedDuration::from_secs(-2),
        SignedDuration::from_hours(1),
        year * 20,
        year * -20,
        SignedDuration::ZERO,
    ] {
        for hands in [&of_leader, &of_standby] {
            hands.move_wall(by);
            let renewed = server.spec()["renewTime"].clone();
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                settle().await;
                assert!(leader.fence.is_open() && !standby.fence.is_open(), "{by:?}");
            }
            assert_ne!(server.spec()["renewTime"], renewed, "{by:?}: the Lease is renewed");
        }
    }
    assert_eq!(*leader.leadership.borrow(), Leadership::Leading { transitions: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_leader_suspended_past_its_lease_no_longer_leads_after_waking() {
    let (server, hands) = (Server::default(), Hands::default());
    let mut leader = hands.start(&server, "a");
    leader.leads().await;
    settle().await;
    server.log();
    hands.sleep(Duration::from_hours(1));
    assert_eq!(leader.lost().await, Ending::Expired);
    assert!(!server.log().contains(&"update".to_owned()), "no write since");
}

#[tokio::test(start_paused = true)]
async fn a_leader_suspended_for_less_renews_at_once() {
    let (server, hands) = (Server::default(), Hands::default());
    let mut leader = hands.start(&server, "a");
    leader.leads().await;
    for _ in 0..10 {
        settle().await;
        hands.sleep(Duration::from_secs(5));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(leader.fence.is_open());
    assert_eq!(*leader.leadership.borrow(), Leadership::Leading { transitions: 0 });
}
