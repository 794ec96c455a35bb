//! Creates, watches and lists over HTTP, on either server.

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use kube::Config;
use memchr::memchr_iter;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::Connection;
use super::{Form, figure, median, objects, rate};

const CONNECTIONS: usize = 16;
const WATCHERS: usize = 100;
const LISTED: usize = 5_000;

/// Prints the figures of a server; `suffix` ends their names, and `divisor` makes the measurements shorter.
pub(crate) async fn measure(config: &Config, suffix: &str, form: Form, divisor: usize) -> anyhow::Result<()> {
    let start = Instant::now();
    let created = form.http_creates / divisor;
    create(config, &namespace(config, "created").await?, created).await?;
    figure(&format!("dev.creates_http_per_s{suffix}"), rate(created, start), "1/s");

    let frames = watch(config, form.watched_creates / divisor).await?;
    figure(&format!("dev.watch_events_per_s{suffix}"), frames, "1/s");

    let path = namespace(config, "listed").await?;
    create(config, &path, LISTED).await?;
    let mut connection = Connection::open(config).await?;
    let mut times = Vec::new();
    for _ in 0..form.lists {
        let start = Instant::now();
        read(connection.get(&path).await?, usize::MAX).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    figure(&format!("dev.list_{LISTED}_ms{suffix}"), median(times), "ms");
    Ok(())
}

/// Returns the frames per second that 100 watchers together receive, until each has one of every object. A
/// watcher that the server cuts, as the real one does under load, counts with the frames that it has.
async fn watch(config: &Config, count: usize) -> anyhow::Result<f64> {
    let path = namespace(config, "watched").await?;
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let mut connection = Connection::open(config).await?;
        let frames = connection.get(&format!("{path}?watch=true")).await?;
        watchers.spawn(async move {
            let _open = connection;
            read(frames, count).await
        });
    }
    let start = Instant::now();
    create(config, &path, count).await?;
    let mut seen = 0;
    while let Some(lines) = watchers.join_next().await {
        seen += lines?.context("reading a watch")?;
    }
    Ok(rate(seen, start))
}

/// Reads a body to its end, or to the given number of lines; returns the number of lines.
async fn read(mut body: Incoming, lines: usize) -> anyhow::Result<usize> {
    let mut seen = 0;
    while seen < lines {
        let Some(frame) = body.frame().await else { break };
        seen += frame?.data_ref().map_or(0, |data| memchr_iter(b'\n', data).count());
    }
    Ok(seen)
}

/// Creates objects of 1 KB on 16 connections.
async fn create(config: &Config, path: &str, count: usize) -> anyhow::Result<()> {
    let mut creators = JoinSet::new();
    for number in 0..CONNECTIONS {
        let (mut connection, path) = (Connection::open(config).await?, path.to_owned());
        creators.spawn(async move {
            for index in (number..count).step_by(CONNECTIONS) {
                connection.post(&path, objects::config_map(&format!("map-{index}")).to_string()).await?;
            }
            anyhow::Ok(())
        });
    }
    creators.join_all().await.into_iter().collect()
}

/// Creates a namespace and returns the path of its objects.
async fn namespace(config: &Config, name: &str) -> anyhow::Result<String> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    Connection::open(config).await?.post("/api/v1/namespaces", object.to_string()).await?;
    Ok(format!("/api/v1/namespaces/{name}/configmaps"))
}
