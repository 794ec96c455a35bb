//! The case of the article: one object with a reconcile that always fails, and the times of its attempts.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use mainstay::key::NamespacedName;
use mainstay::queue::RetryPolicy;
use mainstay::reconcile::{Context, Outcome, Reconciler};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::say;
use super::site::{Site, create_map, create_namespace};

/// The failures of the article's controller (controller-runtime 0.5.5), in seconds since its start.
const LOG: [f64; 17] = [
    0.733_524,
    1.734_013,
    2.734_431,
    3.734_734,
    4.735_303,
    5.735_928,
    6.736_358,
    7.736_812,
    8.737_275,
    10.017_688,
    12.579_856,
    17.700_489,
    27.940_962,
    48.421_326,
    89.381_644,
    171.302_192,
    335.142_640,
];
/// Attempts that the example waits for, ten seconds in all; the others are computed.
const LIVE: usize = 12;
/// One attempt after the first one that had the longest wait.
const LAST: usize = 21;

/// A reconciler that always fails, and sends the time of each attempt.
struct AlwaysFails {
    runs: mpsc::UnboundedSender<(u32, Instant)>,
}

impl Reconciler for AlwaysFails {
    async fn reconcile(&self, _request: &NamespacedName, cx: &Context) -> Outcome {
        let now = Instant::now();
        self.runs.send((cx.attempt(), now))?;
        Err("err".into())
    }
}

/// Lets the object fail and prints its attempts beside the attempts of the log.
pub(crate) async fn run(connection: &kube::Config) -> anyhow::Result<()> {
    const NAMESPACE: &str = "article";
    let client = Client::try_from(connection.clone())?;
    create_namespace(&client, NAMESPACE).await?;
    create_map(&Api::<ConfigMap>::namespaced(client, NAMESPACE), "web").await?;

    let (sender, mut runs) = mpsc::unbounded_channel();
    let mut site = Site::start(connection, NAMESPACE, "article", &json!({"workers": 1}), |_| AlwaysFails {
        runs: sender,
    })?;
    say("\none object that always fails, one worker");
    if let Some(url) = site.queue_url() {
        say(&format!("its queue, live: curl {url}"));
    }
    say("\nattempt    waited    at most    in the article's log");
    site.meanwhile(async {
        let mut last = None;
        for number in 1..=LIVE {
            let (attempt, at) = runs.recv().await.context("the controller ended")?;
            anyhow::ensure!(attempt as usize == number, "attempt {attempt} instead of {number}");
            line(number, last.replace(at).map(|last| at - last));
        }
        Ok(())
    })
    .await?;
    for number in LIVE + 1..=LAST {
        line(number, None);
    }
    site.stop().await
}

fn line(number: usize, waited: Option<Duration>) {
    let before = number.checked_sub(2);
    let at_most = before.and_then(|failures| u32::try_from(failures).ok()).map(longest);
    let logged = before.and_then(|before| Some(LOG.get(before + 1)? - LOG.get(before)?));
    say(&format!(
        "{number:>7} {} {} {}",
        seconds(waited.map(|waited| waited.as_secs_f64()), 9),
        seconds(at_most.map(|at_most| at_most.as_secs_f64()), 10),
        seconds(logged, 23),
    ));
}

/// Returns the longest delay after a failure that follows so many others: the delay without jitter.
fn longest(earlier_failures: u32) -> Duration {
    RetryPolicy::default().delay(earlier_failures, 0.0)
}

fn seconds(value: Option<f64>, width: usize) -> String {
    value.map_or_else(|| format!("{:>width$}", "-"), |value| format!("{:>width$}", format!("{value:.3} s")))
}
