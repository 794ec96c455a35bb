//! The servers of a running manager, and their end with it.

use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream;

use super::part::{Diary, Part, Way};
use super::*;
use crate::health::Group;
use crate::manager::RunnableGroup::{LeaderElection, Others, Servers};

fn serving() -> Manager {
    let mut configuration = configuration("127.0.0.1:0");
    let anywhere = configuration.inspect.bind_address;
    configuration.health.bind_address = anywhere;
    configuration.metrics.bind_address = anywhere;
    manager_with("127.0.0.1:1", configuration)
}

/// The status and the body of an answer.
async fn ask(method: &str, address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn metrics_are_served_with_those_of_users_and_nothing_else_is() {
    let manager = serving();
    let sold = Counter::<u64>::default();
    manager.registry().register("cakes_sold", "Cakes sold so far", sold.clone());
    let address = manager.metrics_addr().unwrap();
    let running = run(&manager);
    manager.leading().wait_for(|leading| *leading).await.unwrap();
    sold.inc_by(3);
    let (status, body) = ask("GET", address, "/metrics").await;
    assert_eq!(status, 200);
    assert!(body.contains("\ncakes_sold_total 3\n"), "{body}");
    assert!(body.contains("workqueue_depth"), "{body}");
    assert_eq!(ask("HEAD", address, "/metrics").await, (200, String::new()));
    for path in ["/", "/metric", "/metrics/cakes", "/debug/pprof"] {
        assert_eq!(ask("GET", address, path).await, (404, String::new()), "{path}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(ask(method, address, "/metrics").await, (405, String::new()), "{method}");
    }
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn probes_are_served_from_the_start_and_until_the_last_has_ended() {
    let (manager, diary) = (serving(), Diary::default());
    manager.checks().add(Group::Ready, "oven", || Err("cold".to_owned()));
    let address = manager.probes_addr().unwrap();
    let part = Part::new("webhooks", Servers, Way::NeverReady, &diary);
    manager.add(part).unwrap();
    let running = run(&manager);
    diary.until("webhooks starts").await;
    assert_eq!(ask("GET", address, "/livez").await, (200, "ok".to_owned()));
    let (status, body) = ask("GET", address, "/readyz?verbose").await;
    assert_eq!(status, 500);
    for line in ["[-]oven failed: reason withheld", "[-]webhooks failed: reason withheld"] {
        assert!(body.contains(line), "{body}");
    }
    manager.checks().remove(Group::Ready, "oven");
    assert_eq!(ask("GET", address, "/readyz?exclude=webhooks").await, (200, "ok".to_owned()));
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn a_manager_that_has_ended_leaves_no_task_and_no_port() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let (manager, diary) = (serving(), Diary::default());
    let served = [manager.probes_addr(), manager.metrics_addr(), manager.inspect_addr()];
    let parts = [
        ("webhooks", Servers, Way::Slow),
        ("feed", Others, Way::FailsWhenTold),
        ("sweep", LeaderElection, Way::Slow),
    ];
    for (name, group, way) in parts {
        manager.add(Part::new(name, group, way, &diary)).unwrap();
    }
    let running = run(&manager);
    diary.until("sweep starts").await;
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap_err();
    for port in served {
        TcpStream::connect(port.unwrap()).await.unwrap_err();
    }
    drop(manager);
    // The clients' own tasks end with them, as soon as they are polled.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tasks(), before);
}
