use std::net::Ipv4Addr;

use tokio::time::advance;

use super::*;

const TICK: Duration = Duration::from_millis(1);

fn join(peers: &mut Peers) -> Arc<Peer> {
    peers.join(Ipv4Addr::LOCALHOST.into())
}

fn evicted(peers: &[&Arc<Peer>]) -> Vec<bool> {
    peers.iter().map(|peer| peer.evicted.is_cancelled()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_longest_waiting_connection_makes_room_but_not_before_its_turn_is_over() {
    let mut peers = Peers::default();
    let (first, second) = (join(&mut peers), join(&mut peers));
    advance(TURN.saturating_sub(TICK)).await;
    // After an answer the first one has waited for less.
    first.answering();
    first.wait();
    assert_eq!(peers.evict(Instant::now()), Instant::now() + TICK);
    assert_eq!(evicted(&[&first, &second]), [false, false], "the turn is not over");
    advance(TICK).await;
    assert_eq!(peers.evict(Instant::now()), Instant::now() + TURN);
    assert_eq!(evicted(&[&first, &second]), [false, true]);
    // One that is still closing is not evicted once more in place of another.
    assert_eq!(peers.evict(Instant::now()), Instant::now() + TURN.saturating_sub(TICK));
    assert_eq!(evicted(&[&first, &second]), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_being_answered_is_kept_however_long_that_takes() {
    let mut peers = Peers::default();
    let only = join(&mut peers);
    only.answering();
    advance(Duration::from_hours(1)).await;
    assert_eq!(peers.evict(Instant::now()), Instant::now() + TURN);
    assert_eq!(evicted(&[&only]), [false]);
    only.wait();
    assert_eq!(peers.evict(Instant::now()), Instant::now() + TURN, "it has time to read its answer");
    assert_eq!(evicted(&[&only]), [false]);
    advance(TURN).await;
    peers.evict(Instant::now());
    assert_eq!(evicted(&[&only]), [true]);
}

#[tokio::test(start_paused = true)]
async fn connections_that_have_ended_are_forgotten() {
    let mut peers = Peers::default();
    for _ in 0..100 {
        drop(join(&mut peers));
    }
    let open = join(&mut peers);
    assert_eq!(peers.0.len(), 1);
    drop(open);
    assert_eq!(peers.evict(Instant::now()), Instant::now() + TURN, "there is none to evict");
}
