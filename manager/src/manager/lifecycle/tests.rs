use super::*;

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;

use crate::config::{ManagerConfiguration, Overrides};
use crate::controller::Controller;
use crate::key::Request;
use crate::manager::ManagerOptions;
use crate::reconcile::{Action, Context, Outcome, Reconciler};
use crate::watch::{Sink, Source, SourceError};

/// Servers on loopback at any free port, changed by `inspect`.
fn configuration(inspect: &str) -> ManagerConfiguration {
    let text = format!(
        "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\nleaderElection: {{enabled: false}}\n\
         health: {{bindAddress: \"\"}}\nmetrics: {{bindAddress: \"\"}}\ninspect: {{bindAddress: \"{inspect}\"}}\n"
    );
    ManagerConfiguration::parse(&text, "test", &Overrides::default(), None).unwrap()
}

/// A manager whose API server cannot be reached.
fn manager(inspect: &str) -> Manager {
    let options =
        ManagerOptions { identity: "me".to_owned(), signals: false, ..ManagerOptions::replica("test") };
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    Manager::new(options, configuration(inspect), nowhere).unwrap()
}

struct Nothing;

impl Reconciler for Nothing {
    async fn reconcile(&self, _: &Request, _: &Context) -> Outcome {
        Ok(Action::Done)
    }
}

/// Says when it runs, and feeds nothing.
struct Tells(oneshot::Sender<()>);

impl Source<Request> for Tells {
    fn run(
        self: Box<Self>,
        sink: Sink<Request>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
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
    let mut running = JoinSet::new();
    running.spawn({
        let manager = manager.clone();
        async move { manager.run().await }
    });
    runs.await.unwrap();

    let controllers = get(address, "/debug/controllers").await;
    assert!(
        controllers.contains(r#"{"controllers":[{"name":"web","workers":2,"needsLease":true,"#),
        "{controllers}"
    );
    let keys = get(address, "/debug/controllers/web/queue").await;
    assert!(keys.ends_with("\"matched\":0,\"truncated\":false,\"keys\":[]}\n"), "{keys}");
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
