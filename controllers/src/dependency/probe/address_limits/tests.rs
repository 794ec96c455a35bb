use mainstay_api::ProbeCheck;

use super::*;
use crate::dependency::probe::Target;

fn address(text: &str) -> Address {
    let address = mainstay_api::Address::parse("address", text).unwrap();
    let port = address.port;
    let target = Target::new("shop", ProbeCheck::Tcp(address));
    (Arc::clone(target.shared_namespace()), target.host(), port)
}

#[test]
fn turns_come_in_order_and_no_faster_than_the_rate() {
    let start = Instant::now();
    let mut limits = AddressLimits::new(10);
    let db = address("db:80");
    assert_eq!(limits.take(&db, false, start), Ok(()));
    let turns: Vec<_> = (1..=20).map(|_| limits.take(&db, false, start).unwrap_err()).collect();
    let expected = (1..=20).map(|turn| start + Duration::from_millis(100) * turn);
    assert_eq!(turns, expected.collect::<Vec<_>>());
    assert_eq!(limits.take(&address("db.shop:80"), false, start), Err(start + Duration::from_millis(2100)));
    assert_eq!(limits.take(&address("db:81"), false, start), Ok(()), "another port has its own queue");

    // A probe that misses its turn does not start together with the next one.
    let late = turns[4];
    assert_eq!(limits.take(&db, true, late), Ok(()));
    assert!(limits.take(&db, true, late).is_err());
    assert!(limits.take(&db, false, late).is_err(), "and not before the waiting probes");
}

#[test]
fn a_late_probe_does_not_cost_the_next_one_its_turn() {
    let start = Instant::now();
    let mut limits = AddressLimits::new(10);
    let db = address("db:80");
    assert_eq!(limits.take(&db, false, start), Ok(()));
    let turns: Vec<_> = (1..=100).map(|_| limits.take(&db, false, start).unwrap_err()).collect();
    for (at, turn) in turns.into_iter().enumerate() {
        let late = Duration::from_millis(if at % 3 == 0 { 40 } else { 0 });
        assert_eq!(limits.take(&db, true, turn + late), Ok(()), "turn {at}");
    }
}

#[test]
fn queues_have_a_longest_wait_and_idle_queues_are_removed() {
    let start = Instant::now();
    let mut limits = AddressLimits::new(1);
    for _ in 0..1000 {
        assert!(limits.take(&address("db:80"), false, start) <= Err(start + LONGEST));
    }
    assert_eq!(limits.take(&address("db:80"), false, start), Err(start + LONGEST));
    for port in 1..=1000 {
        limits.take(&address(&format!("db:{port}")), false, start + 3 * LONGEST).unwrap();
    }
    let later = start + 6 * LONGEST;
    for port in 2001..=3000 {
        limits.take(&address(&format!("db:{port}")), false, later).unwrap();
    }
    assert!(limits.queues.len() <= 1024, "{}", limits.queues.len());
}
