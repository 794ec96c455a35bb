//! Writes in process, from one task per processor.

use std::thread::available_parallelism;

use anyhow::ensure;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, Full};
use mainstay_devcluster::Embedded;
use mainstay_devcluster::api::User;
use mainstay_devcluster::server::ApiService;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::Service as _;

use super::{Form, figure, objects, rate};

/// Number of Deployments that are applied in turn.
const APPLIED: usize = 100;

/// A request: method, path, media type and body.
type Request = (&'static str, String, &'static str, Value);

pub(crate) async fn measure(form: Form) -> anyhow::Result<()> {
    let server = Embedded::start().await?;
    let service = server.service().as_user(User::admin());
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned();
    exchange(&service, "POST", definitions, "application/json", objects::definition().to_string()).await?;

    let created = run(&service, form.writes, |number| {
        let path = "/apis/bench.example.com/v1/namespaces/default/widgets".to_owned();
        ("POST", path, "application/json", objects::widget(&format!("widget-{number}")))
    });
    figure("dev.creates_per_s", created.await?, "1/s");

    let applied = run(&service, form.writes, |number| {
        let name = format!("web-{}", number % APPLIED);
        let path =
            format!("/apis/apps/v1/namespaces/default/deployments/{name}?fieldManager=bench&force=true");
        ("PATCH", path, "application/apply-patch+yaml", objects::deployment(&name, number / APPLIED))
    });
    figure("dev.apply_per_s", applied.await?, "1/s");
    Ok(())
}

/// Sends many requests and returns their number per second.
async fn run(service: &ApiService, count: usize, request: impl Fn(usize) -> Request) -> anyhow::Result<f64> {
    let callers = available_parallelism()?.get();
    // Made before the measurement: the objects are the client's work.
    let mut shares: Vec<Vec<_>> = (0..callers).map(|_| Vec::new()).collect();
    for number in 0..count {
        let (method, path, media_type, body) = request(number);
        shares[number % callers].push((method, path, media_type, body.to_string()));
    }
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for share in shares {
        let service = service.clone();
        tasks.spawn(async move {
            for (method, path, media_type, body) in share {
                exchange(&service, method, path, media_type, body).await?;
            }
            anyhow::Ok(())
        });
    }
    for result in tasks.join_all().await {
        result?;
    }
    Ok(rate(count, start))
}

/// Sends one request and reads its whole answer, which must be a success.
async fn exchange(
    service: &ApiService,
    method: &str,
    path: String,
    media_type: &str,
    body: String,
) -> anyhow::Result<()> {
    let request = http::Request::builder().method(method).uri(path).header(CONTENT_TYPE, media_type);
    let response = service.clone().call(request.body(Full::<Bytes>::from(body))?).await?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&answer));
    Ok(())
}
