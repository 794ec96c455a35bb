//! The example of `mainstay dev`: a WaitDeployment and its prerequisite, a port of this machine that opens
//! some seconds later.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mainstay::manager::{RunContext, Runnable, RunnableGroup};
use mainstay::program::{DevContext, Story};
use mainstay::reconcile::BoxError;
use mainstay_api::WaitDeployment;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::time::sleep;

/// Configuration of `mainstay dev` without `--config`: no election, ports on loopback, probes of loopback
/// addresses allowed.
pub(crate) const CONFIGURATION: &str = include_str!("dev/manager.yaml");

const NAMESPACE: &str = "default";
const NAME: &str = "hello";

/// Time until the prerequisite comes up: long enough to see the closed gate.
const SLOW_START: Duration = Duration::from_secs(8);

/// The prerequisite of the example: a loopback port that is closed at first.
struct Prerequisite {
    address: SocketAddr,
    /// The socket of the port: bound, so that no other process gets the port, and not listening yet, so that
    /// connections are refused.
    socket: TcpSocket,
    story: Story,
    /// The example, to be deleted at the end; `None` if the cluster ends with the command.
    delete: Option<Api<WaitDeployment>>,
}

/// Applies the example and adds its prerequisite to the manager.
pub(crate) async fn begin(dev: &DevContext) -> Result<(), BoxError> {
    let objects = Api::<WaitDeployment>::namespaced(dev.client.clone(), NAMESPACE);
    let delete = (!dev.owns_cluster).then(|| objects.clone());
    let prerequisite = Prerequisite::reserve(dev.story.clone(), delete)?;
    let apply = PatchParams::apply("mainstay-dev").force();
    objects.patch(NAME, &apply, &Patch::Apply(example(prerequisite.address))).await?;
    dev.story.print(format_args!(
        "applied WaitDeployment {NAMESPACE}/{NAME}: two replicas, once {} answers",
        prerequisite.address
    ));
    dev.story.print("inspect it with these commands, or press Ctrl-C to stop everything:");
    dev.story.print("    kubectl get waitdeployments,deployments,pods");
    dev.story.print(format_args!("    kubectl describe waitdeployment {NAME}"));
    dev.manager.add(prerequisite)?;
    Ok(())
}

// === impl Prerequisite ===

impl Prerequisite {
    /// Binds a free loopback port, without listening on it.
    fn reserve(story: Story, delete: Option<Api<WaitDeployment>>) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: socket.local_addr()?, socket, story, delete })
    }
}

impl Runnable for Prerequisite {
    fn name(&self) -> &'static str {
        "prerequisite"
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::Others
    }

    /// Listens on the port after a delay and accepts connections until the manager stops. Then deletes the
    /// example from a cluster that stays.
    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            let Self { address, socket, story, delete } = *self;
            let serve = async {
                sleep(SLOW_START).await;
                let listener = socket.listen(16)?;
                story.print(format_args!("the prerequisite now listens on {address}"));
                loop {
                    // A connection is all that a probe needs.
                    drop(listener.accept().await?);
                }
            };
            if let Some(failed) = cx.stop.run_until_cancelled(serve).await {
                return failed;
            }
            if let Some(objects) = delete {
                objects.delete(NAME, &DeleteParams::default()).await?;
                story.print("deleted the sample; the CRD stays in your cluster");
            }
            Ok(())
        })
    }
}

/// Returns the manifest of the example, as a user would write it.
fn example(prerequisite: SocketAddr) -> Value {
    json!({
        "apiVersion": "apps.mainstay.dev/v1alpha1",
        "kind": "WaitDeployment",
        "metadata": {"namespace": NAMESPACE, "name": NAME},
        "waitProbe": {"address": prerequisite.to_string(), "timeout": "1s", "periodSeconds": 1},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {"containers": [{"name": "hello", "image": "hello"}]},
            },
        },
    })
}
