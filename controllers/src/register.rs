//! Builds the built-in controllers and registers them with a manager.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mainstay::cache::{Scope, Store, View};
use mainstay::client::Applier;
use mainstay::controller::Controller;
use mainstay::key::{KindId, NamespacedName};
use mainstay::manager::{Manager, RegisterError, RunContext, Runnable, RunnableGroup};
use mainstay::rbac::Access;
use mainstay::reconcile::BoxError;
use mainstay::watch::{EnqueueForOwner, channel, map_view};
use mainstay_api::WaitDeployment;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::dependency::Dependencies;
use crate::dependency::cluster_info::LiveClusterInfo;
use crate::dependency::cycles::Cycles;
use crate::dependency::probe::{
    ClusterInfo, Dial, Driver, Engine, MAX_IN_FLIGHT, Resolve, Seams, TokioDial, TokioResolve,
};
use crate::dependency::resource::{ResourceWatch, Resources};
use crate::dependency::service::CachedServices;
use crate::settings::{JOBS, PROBE_POLICY, ProbePolicy, WAIT_DEPLOYMENT, WaitDeploymentSettings};
use crate::status::{StatusLocks, StatusWriter};
use crate::status_mirror::StatusMirror;
use crate::wait_deployment::{GateMetrics, WaitDeploymentReconciler};
use crate::why::{self, Why};
use crate::{deployment, status_mirror, wait_deployment};

/// Names of the built-in controllers, as a configuration file may use them.
pub const CONTROLLERS: [&str; 2] = [wait_deployment::NAME, status_mirror::NAME];

/// The access of probes to the network; tests replace it.
#[derive(Clone, derive_more::Debug)]
#[debug("Sockets {{ .. }}")]
pub struct Sockets {
    /// Opens connections to the targets of probes.
    pub dial: Arc<dyn Dial>,
    /// Resolves by DNS the host names of targets other than those of Services.
    pub resolve: Arc<dyn Resolve>,
}

/// Runs the probe engine beside the controllers, as a runnable of the manager.
///
/// It needs no Lease, because it must run as long as the manager does, and probes only while this replica
/// leads. In each new term the reconciler names the targets again.
struct ProbeEngine {
    engine: Engine,
    driver: Driver,
    /// The metrics of all gates, cleared at the end of each leadership term.
    gates: GateMetrics,
    /// Reads facts about the cluster for probes, once the manager runs.
    cluster: Arc<LiveClusterInfo>,
    /// Receives the present probe policy, and each new one.
    policies: watch::Receiver<Arc<ProbePolicy>>,
}

/// Registers the built-in controllers and their probe engine with a manager.
///
/// # Errors
/// Fails if one of the names is taken, or the manager has been stopped.
pub fn register(manager: &Manager, sockets: Sockets) -> Result<(), RegisterError> {
    let objects = manager.store::<WaitDeployment>(Scope::all()).limited_to_share(deployment::DECODED_SHARE);
    let deployments = manager.store::<Deployment>(Scope::all()).limited_to_share(deployment::DECODED_SHARE);
    let services = manager.store::<Service>(Scope::all());
    let slices = manager.store::<EndpointSlice>(Scope::all());

    let (notifier, results) = channel::<NamespacedName>();
    let found = Arc::new(CachedServices::new(&services, &slices));
    let cluster = Arc::new(LiveClusterInfo::new(&manager.server()));
    let seams = Seams {
        dial: sockets.dial,
        resolve: sockets.resolve,
        services: found.clone(),
        cluster: Arc::clone(&cluster) as Arc<dyn ClusterInfo>,
        random: Arc::new(fastrand::f64),
    };
    let mut policies = manager.section::<ProbePolicy>(PROBE_POLICY)?;
    let policy = ProbePolicy::clone(&policies.borrow_and_update());
    if policy.resources.iter().any(|kind| kind == JOBS) {
        let jobs = Access::to::<Job>(["list", "watch"]).because("resource checks, by probePolicy.resources");
        manager.needs(jobs);
    }
    // Not through the cache, which may be limited to other namespaces.
    let server = "finds the addresses of the API server, which probes must not connect to";
    manager.needs(Access::to::<Service>(["list"]).in_namespace("default").because(server));
    manager.needs(Access::to::<EndpointSlice>(["list"]).in_namespace("default").because(server));
    let reviews = Access::to::<SubjectAccessReview>(["create"]);
    manager.needs(reviews.because("a resource check tells only what the account of the Pods may read"));
    let settings = manager.section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT)?.borrow().clone();
    let (of_resources, of_cycles) = (notifier.clone(), notifier.clone());
    let resources =
        Resources::new(&objects, policy.resources.clone(), move |request| of_resources.notify(request));
    let notify = move |request| notifier.notify(request);
    let (engine, driver) = Engine::new(MAX_IN_FLIGHT, policy, seams, notify, manager.registry());
    let engine = engine.while_leading(manager.leading());

    let cycles = Cycles::new(move |request| of_cycles.notify(request));
    let dependencies = Dependencies::new(engine.clone(), found, resources.clone(), cycles);
    let why = Why::new(&objects, dependencies.clone(), manager.leading());
    manager.page(why::PAGE, move |path| why.page(path, Timestamp::now()))?;
    let (of_service, of_slice) = (dependencies.clone(), dependencies.clone());

    let locks = StatusLocks::default();
    let applier = |name| Applier::new(KindId::of::<WaitDeployment>(), name);
    let status = |name| StatusWriter::new(&objects, &applier(name), &locks);
    let gates = GateMetrics::register(manager.registry(), manager.leading());
    let gate = Controller::new(wait_deployment::NAME)
        .reconciles(&objects)
        .writes_status::<WaitDeployment>()
        .writes::<Deployment>()
        .needs(Access::to::<Deployment>(["get"]).because("reads one with its managedFields to take it over"))
        .needs(block_deletion())
        .needs(
            Access::to::<Namespace>(["get"])
                .because("reads its Pod Security level for probePolicy.allow")
                .seldom(),
        )
        .watches(&deployments, map_view(namesake(objects.clone())))
        .watches(&services, map_view(move |service| of_service.on_service_change(service.request())))
        .watches(&slices, map_view(move |slice| of_slice.on_slice_change(slice)))
        .source(results)
        .reconciler(WaitDeploymentReconciler::new(
            &objects,
            &deployments,
            &Applier::new(KindId::of::<Deployment>(), deployment::FIELD_MANAGER),
            status(deployment::FIELD_MANAGER),
            dependencies,
            settings.not_passed_on.clone(),
            gates.clone(),
        ));
    let of_owner = EnqueueForOwner::controller(KindId::of::<WaitDeployment>());
    let mirror = Controller::new(status_mirror::NAME)
        .reconciles(&objects)
        .writes_status::<WaitDeployment>()
        .watches(&deployments, of_owner)
        .reconciler(StatusMirror::new(
            &objects,
            &deployments,
            status(status_mirror::mirror::FIELD_MANAGER),
            manager.registry(),
        ));
    let declare = manager.clone();
    let declare = move |kind| declare.store(Scope::all().of(kind));
    manager.add(ResourceWatch::new(&resources, declare, policies.clone()))?;
    manager.add(ProbeEngine { engine, driver, gates, cluster, policies })?;
    manager.register(gate)?;
    manager.register(mirror)?;
    Ok(())
}

/// Returns the access that a cluster asks for where a Deployment keeps its WaitDeployment from being deleted
/// first.
fn block_deletion() -> Access {
    let access = Access::of(&KindId::of::<WaitDeployment>(), "finalizers", ["update"]).seldom();
    access.because("owner references, where OwnerReferencesPermissionEnforcement is on")
}

/// Returns the function that maps a Deployment to the WaitDeployment of its name, whichever owner it has: a
/// Deployment in conflict matters as much as an owned one. Most Deployments in a cluster have no such
/// WaitDeployment and are ignored.
fn namesake(objects: Store<WaitDeployment>) -> impl Fn(&View) -> Vec<NamespacedName> + Send + Sync + 'static {
    move |view| {
        let request = &view.meta().request;
        // Before the first list the read fails; the list enqueues every WaitDeployment anyway.
        let exists = objects.entry(request).is_ok_and(|entry| entry.is_some());
        exists.then(|| request.clone()).into_iter().collect()
    }
}

// === impl Sockets ===

impl Default for Sockets {
    fn default() -> Self {
        Self { dial: Arc::new(TokioDial), resolve: Arc::new(TokioResolve::default()) }
    }
}

// === impl ProbeEngine ===

impl Runnable for ProbeEngine {
    fn name(&self) -> &'static str {
        "probe-engine"
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::Others
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        let Self { engine, driver, gates, cluster, policies } = *self;
        cluster.set_context(cx.context());
        let follow = follow_policy(engine, policies, cx.stop.clone());
        let probe = async move {
            let mut leading = cx.leading.clone();
            while !cx.stop.is_cancelled() {
                // The order does not matter: the loop checks both.
                tokio::select! {
                    () = cx.stop.cancelled() => {}
                    led = leading.wait_for(|leading| *leading) => if led.is_err() { return },
                }
                let term = cx.stop.child_token();
                let drive = async {
                    // Without these addresses, each term would begin by denying probes of all raw addresses.
                    term.run_until_cancelled(cluster.wait_for_api_server_addresses()).await;
                    driver.run(term.clone()).await;
                };
                let end = async {
                    // The sender belongs to the manager, which outlives its runnables.
                    drop(term.run_until_cancelled(leading.wait_for(|leading| !*leading)).await);
                    term.cancel();
                };
                tokio::join!(drive, end, term.run_until_cancelled(cluster.follow_api_server()));
                gates.clear();
                cluster.end_term();
            }
        };
        Box::pin(async {
            tokio::join!(probe, follow);
            Ok(())
        })
    }
}

/// Applies each new probe policy to the engine until `stop`, also while another replica leads.
async fn follow_policy(
    engine: Engine,
    mut policies: watch::Receiver<Arc<ProbePolicy>>,
    stop: CancellationToken,
) {
    while let Some(Ok(())) = stop.run_until_cancelled(policies.changed()).await {
        engine.reconfigure(ProbePolicy::clone(&policies.borrow_and_update()));
    }
}
