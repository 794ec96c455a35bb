//! The control: a raw watch in the subject's process that reads only the resourceVersion of each event.
//!
//! It has a thread, a runtime and a connection of its own, so that its processor time can be subtracted.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use mainstay::client::connect;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::subject::Arrivals;

/// Starts the watcher and sends on `ready` once the watch is open. The thread returns the processor seconds
/// that it used since then.
pub(crate) fn start(
    kubeconfig: PathBuf,
    arrivals: Arc<Arrivals>,
    ready: oneshot::Sender<()>,
    stop: CancellationToken,
) -> JoinHandle<anyhow::Result<f64>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(watch(kubeconfig, arrivals, ready, stop))
    })
}

async fn watch(
    kubeconfig: PathBuf,
    arrivals: Arc<Arrivals>,
    ready: oneshot::Sender<()>,
    stop: CancellationToken,
) -> anyhow::Result<f64> {
    let client = Client::try_from(connect::infer(Some(&kubeconfig), None).await?)?;
    let newest = Api::<Pod>::all(client.clone()).list_metadata(&ListParams::default().limit(1)).await?;
    let version = newest.metadata.resource_version.context("a list without a version")?;
    let path = format!("/api/v1/pods?watch=true&timeoutSeconds=600&resourceVersion={version}");
    let mut lines = client.request_stream(http::Request::get(path).body(Vec::new())?).await?.lines();
    ready.send(()).ok();
    let before = seconds(ClockId::ThreadCPUTime);
    loop {
        let line = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            line = lines.next() => line.context("the watch ended")??,
        };
        if let Some(version) = version_of(&line) {
            arrivals.watched(version);
        }
    }
    Ok(seconds(ClockId::ThreadCPUTime) - before)
}

/// Returns the resourceVersion of the object in an event. The first match is the right one, because the
/// server writes metadata first.
fn version_of(line: &str) -> Option<u64> {
    const FIELD: &str = r#""resourceVersion":""#;
    let rest = line.get(line.find(FIELD)? + FIELD.len()..)?;
    rest.get(..rest.find('"')?)?.parse().ok()
}

/// Returns the value of a processor clock in seconds.
pub(crate) fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)).as_secs_f64()
}
