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
async fn the_longest_waiting_connection_is_evicted_after_the_minimum_wait() {
    let mut peers = Peers::default();
    let (first, second) = (join(&mut peers), join(&mut peers));
    advance(MIN_WAIT.saturating_sub(TICK)).await;
    // The answer resets the wait of the first one.
    first.answering();
    first.wait();
    assert_eq!(peers.evict(Instant::now()), Instant::now() + TICK);
    assert_eq!(evicted(&[&first, &second]), [false, false], "the minimum wait is not over");
    advance(TICK).await;
    assert_eq!(peers.evict(Instant::now()), Instant::now() + MIN_WAIT);
    assert_eq!(evicted(&[&first, &second]), [false, true]);
    // A connection that is still closing is not evicted again instead of another.
    assert_eq!(peers.evict(Instant::now()), Instant::now() + MIN_WAIT.saturating_sub(TICK));
    assert_eq!(evicted(&[&first, &second]), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_not_evicted_while_its_handler_runs() {
    let mut peers = Peers::default();
    let only = join(&mut peers);
    only.answering();
    advance(Duration::from_hours(1)).await;
    assert_eq!(peers.evict(Instant::now()), Instant::now() + MIN_WAIT);
    assert_eq!(evicted(&[&only]), [false]);
    only.wait();
    assert_eq!(peers.evict(Instant::now()), Instant::now() + MIN_WAIT, "it has time to read its answer");
    assert_eq!(evicted(&[&only]), [false]);
    advance(MIN_WAIT).await;
    peers.evict(Instant::now());
    assert_eq!(evicted(&[&only]), [true]);
}

#[tokio::test(start_paused = true)]
async fn ended_connections_are_removed() {
    let mut peers = Peers::default();
    for _ in 0..100 {
        drop(join(&mut peers));
    }
    let open = join(&mut peers);
    assert_eq!(peers.0.len(), 1);
    drop(open);
    assert_eq!(peers.evict(Instant::now()), Instant::now() + MIN_WAIT, "no connection to evict");
}
