//! The control: a bare watch in the same process, and the times at which it sees each patch.
//!
//! It has its own connection, thread and runtime and only decodes, so no other code in this process can see a
//! patch earlier.

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ledger::{Ledger, Side};
use super::load::patch_of;
use super::site::LABEL;

/// Records each patch when its object is decoded, until `stop`. Sends on `ready` once it watches.
pub(crate) async fn watch(
    maps: Api<ConfigMap>,
    ledger: &Ledger,
    ready: oneshot::Sender<()>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let list = maps.list_metadata(&ListParams::default().labels(LABEL)).await?;
    let mut version = list.metadata.resource_version.context("a list without a version")?;
    // The server's own limit; far longer than a storm.
    let parameters = WatchParams::default().labels(LABEL).timeout(290);
    let mut ready = Some(ready);
    loop {
        let mut events = maps.watch(&parameters, &version).await?.boxed();
        if let Some(ready) = ready.take() {
            // Fails if the storm was cancelled.
            ready.send(()).ok();
        }
        loop {
            // Biased: at the end all patches have been seen, and the stream continues.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                event = events.try_next() => event?,
            };
            // The server may end any watch, that of a slow reader first. The next one continues at the last
            // version.
            let Some(event) = event else { break };
            version = seen(event, ledger)?.unwrap_or(version);
        }
    }
}

/// Records the patch of an event, and returns the version at which the watch continues.
fn seen(event: WatchEvent<ConfigMap>, ledger: &Ledger) -> anyhow::Result<Option<String>> {
    let now = Instant::now();
    match event {
        WatchEvent::Added(map) | WatchEvent::Modified(map) => {
            if let Some(patch) = patch_of(&map) {
                ledger.saw(Side::Watcher, patch, now);
            }
            Ok(map.metadata.resource_version)
        }
        WatchEvent::Deleted(map) => Ok(map.metadata.resource_version),
        WatchEvent::Bookmark(bookmark) => Ok(Some(bookmark.metadata.resource_version)),
        WatchEvent::Error(status) => anyhow::bail!("the watch failed: {}", status.message),
    }
}
