//! The life of a manager from start to end, without a real API server.

mod adding;
mod ends;
mod order;
mod part;
mod readiness;
mod serving;

use super::*;

use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};

use crate::client::EventType;
use crate::client::tests::server::{Answer, TestServer};
use crate::config::{ConfigSchema, ManagerConfiguration, Overrides};
use crate::controller::Controller;
use crate::key::{Key as _, NamespacedName};
use crate::manager::ManagerOptions;
use crate::metrics::Format;
use crate::reconcile::{Action, BoxError, Context, Outcome, Reconciler};
use crate::watch::{Sink, Source, SourceFuture, channel};

/// Returns a configuration with all servers on loopback at any free port, changed by `inspect`.
fn configuration(inspect: &str) -> ManagerConfiguration {
    let text = format!(
        "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
         leaderElection: {{enabled: false}}\nhealth: {{bindAddress: \"\"}}\n\
         metrics: {{bindAddress: \"\"}}\ninspect: {{bindAddress: \"{inspect}\"}}\n"
    );
    ConfigSchema::new().parse(&text, "test", &Overrides::default()).unwrap().configuration
}

/// Makes a manager without a reachable API server.
pub(in crate::manager) fn manager(inspect: &str) -> Manager {
    manager_of("127.0.0.1:1", inspect)
}

fn manager_of(server: &str, inspect: &str) -> Manager {
    manager_with(server, configuration(inspect))
}

fn manager_with(server: &str, configuration: ManagerConfiguration) -> Manager {
    let options = ManagerOptions {
        identity: "me".to_owned(),
        signals: false,
        preflight: false,
        ..ManagerOptions::replica("test")
    };
    let connection = kube::Config::new(format!("http://{server}").parse().unwrap());
    Manager::new(options, configuration, connection).unwrap()
}

pub(in crate::manager) fn run(manager: &Manager) -> JoinSet<Result<(), ManagerError>> {
    let manager = manager.clone();
    JoinSet::from_iter([async move { manager.run().await }])
}

struct Nothing;

impl Reconciler for Nothing {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome {
        Ok(Action::Done)
    }
}

/// A source that reports when it runs, and adds no keys.
struct Tells(oneshot::Sender<()>);

impl Source<NamespacedName> for Tells {
    fn run(self: Box<Self>, sink: Sink<NamespacedName>, stop: CancellationToken) -> SourceFuture {
        Box::pin(async move {
            sink.synced();
            self.0.send(()).unwrap();
            stop.cancelled().await;
            Ok(())
        })
    }
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn inspection_is_served_where_the_configuration_says_for_as_long_as_the_manager_runs() {
    let manager = manager("127.0.0.1:0");
    let address = manager.inspect_addr().unwrap();
    let (tell, runs) = oneshot::channel();
    manager.register(Controller::new("web").source(Tells(tell)).reconciler(Nothing)).unwrap();
    let running = run(&manager);
    runs.await.unwrap();

    let controllers = get(address, "/debug/controllers").await;
    assert!(
        controllers.contains(r#"{"controllers":[{"name":"web","workers":2,"needsLease":true,"#),
        "{controllers}"
    );
    let keys = get(address, "/debug/controllers/web/queue").await;
    assert!(keys.ends_with("\"matched\":0,\"truncated\":false,\"next\":null,\"keys\":[]}\n"), "{keys}");
    let caches = get(address, "/debug/caches").await;
    assert!(caches.ends_with("{\"caches\":[]}\n"), "{caches}");
    let leader = get(address, "/debug/leader").await;
    assert!(leader.contains(r#"{"identity":"me","lease":null,"#), "{leader}");

    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn inspection_is_off_where_the_configuration_says_so() {
    assert_eq!(manager("").inspect_addr(), None);
}

/// A reconciler that reports its run, waits for the stop, and records it.
struct Parting(mpsc::UnboundedSender<()>);

impl Reconciler for Parting {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        self.0.send(()).expect("the test listens");
        cx.stopping().cancelled().await;
        let regarding = ObjectReference { name: Some(request.name().to_owned()), ..Default::default() };
        cx.events().event(&regarding, EventType::Normal, "Left", "Leave", "until the next time");
        Ok(Action::Done)
    }
}

#[tokio::test]
async fn an_event_recorded_while_the_manager_stops_is_written_before_it_has_stopped() {
    let mut server = TestServer::start([Answer::Reply(201, "{}".to_owned())]).await;
    let manager = manager_of(&server.address.to_string(), "");
    let (begun, mut runs) = mpsc::unbounded_channel();
    let controller = Controller::new("web").source(channel().1).reconciler(Parting(begun));
    let handle = manager.register(controller).unwrap();
    let running = run(&manager);
    handle.trigger(NamespacedName::namespaced("shop", "web")).unwrap();
    runs.recv().await.unwrap();
    assert!(server.nothing_arrived());

    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
    let written = server.arrival().now_or_never().expect("written by now");
    assert_eq!(
        (written.method.as_str(), written.uri.path()),
        ("POST", "/apis/events.k8s.io/v1/namespaces/default/events")
    );
    let event: serde_json::Value = serde_json::from_slice(&written.body).unwrap();
    assert_eq!((&event["reason"], &event["reportingController"]), (&"Left".into(), &"test/web".into()));
    let metrics = manager.registry().encode(Format::Text).unwrap();
    assert!(metrics.contains("mainstay_events_total{outcome=\"new\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("outcome=\"stopped\"") && !metrics.contains("outcome=\"late\""), "{metrics}");
}
