//! Clocks that jump under a running elector: the wall clock any way, the clock since boot only ahead, as after a sleep of
//! the machine.

use super::*;
use jiff::SignedDuration;

/// A clock that follows tokio's paused one and can be moved besides.
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
async fn wall_clocks_that_jump_neither_end_a_term_nor_begin_one() {
    let (server, of_leader, of_standby) = (Server::default(), Hands::default(), Hands::default());
    let mut leader = of_leader.start(&server, "a");
    leader.leads().await;
    let mut standby = of_standby.start(&server, "b");
    standby.knows("a").await;
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
async fn a_leader_that_slept_past_its_lease_leads_no_more_when_it_wakes() {
    let (server, hands) = (Server::default(), Hands::default());
    let mut leader = hands.start(&server, "a");
    leader.leads().await;
    settle().await;
    server.log();
    hands.sleep(Duration::from_hours(1));
    assert_eq!(leader.lost().await, Ending::Expired);
    assert!(!server.log().contains(&"update".to_owned()), "it has written nothing since");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_slept_for_less_renews_at_once() {
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
