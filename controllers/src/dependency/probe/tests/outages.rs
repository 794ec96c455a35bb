//! Outages of the network of the manager.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cut_network_differs_from_targets_that_are_down() {
    let bench = Bench::new(64, any());
    for number in 1..=10 {
        bench.set(&format!("10.1.0.{number}:80"), Net::Accept);
    }
    bench.watch_many("shop", 1, 10, 10, 3);
    pass(60.0).await;
    bench.net.hosts.lock().clear();
    pass(60.0).await;
    assert!(!bench.engine.suspects_outage(), "a refusal is an answer");
    bench.silence(1, 10);
    pass(20.0).await;
    assert!(bench.engine.suspects_outage(), "all are silent");
    bench.net.hosts.lock().clear();
    pass(10.0).await;
    assert!(bench.engine.suspects_outage(), "the alarm lasts until all were probed again");
    pass(35.0).await;
    assert!(!bench.engine.suspects_outage());
}

#[tokio::test(start_paused = true)]
async fn a_target_that_was_not_contacted_is_neither_answering_nor_silent() {
    let policy = ProbePolicy { denied_ports: vec![6000], ..any() };
    let bench = Bench::new(64, policy.clone());
    for number in 1..=3 {
        bench.set(&format!("10.1.0.{number}:80"), Net::Accept);
    }
    bench.watch_many("shop", 1, 3, 10, 3);
    for number in 1..=8 {
        bench.set(&format!("10.2.0.{number}:6000"), Net::Silent);
        bench.watch(&format!("denied-{number}"), &format!("10.2.0.{number}:6000"), 10);
        bench.watch(&format!("missing-{number}"), &format!("missing-{number}:80"), 10);
        let name = format!("loopback-{number}.example.com");
        bench.net.names.lock().insert(name.clone(), vec!["127.0.0.1".parse().unwrap()]);
        bench.watch(&format!("resolved-{number}"), &format!("{name}:80"), 10);
    }
    pass(60.0).await;
    bench.engine.reconfigure(any());
    pass(30.0).await;
    assert!(!bench.engine.suspects_outage(), "targets without an earlier answer");
    bench.engine.reconfigure(policy);
    pass(30.0).await;
    bench.silence(1, 3);
    pass(20.0).await;
    assert!(bench.engine.suspects_outage(), "results without contact do not count as answers");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_starts_without_a_network_suspects_an_outage() {
    let bench = Bench::new(64, any());
    bench.silence(1, 3);
    for number in 1..=3 {
        let address = Address::parse("address", &format!("10.1.0.{number}:80")).unwrap();
        let wants = vec![Want { was_ready: true, failure_threshold: 3, ..want(address, 10) }];
        bench.engine.watch(&request(&format!("web-{number}")), wants);
    }
    pass(15.0).await;
    assert_eq!(bench.states("web-1"), [VerdictState::Pending], "two failures of three");
    pass(60.0).await;
    assert_eq!(bench.states("web-1"), [VerdictState::NotReady]);
    assert!(bench.engine.suspects_outage());
}

#[tokio::test(start_paused = true)]
async fn denied_targets_do_not_keep_an_alarm_up() {
    let bench = Bench::new(64, any());
    for number in 1..=3 {
        bench.set(&format!("10.1.0.{number}:80"), Net::Accept);
    }
    bench.watch_many("shop", 1, 3, 10, 3);
    pass(60.0).await;
    bench.silence(1, 3);
    pass(60.0).await;
    assert!(bench.engine.suspects_outage());
    bench.engine.reconfigure(ProbePolicy { denied_ports: vec![80], ..any() });
    pass(45.0).await;
    assert!(!bench.engine.suspects_outage(), "their silence proves nothing any more");
}
