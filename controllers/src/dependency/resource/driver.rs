//! Requests discovery and access reviews for resource checks, and opens their kinds.
//!
//! On the leader only, since only a reconcile registers checks. The end of a term closes all kinds and
//! forgets all answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{self, ApiCapabilities, ApiGroup, ApiResource, Scope};
use kube::error::DiscoveryError;
use kube::{Api, Client};
use mainstay::cache::{Store, UntypedStore};
use mainstay::key::KindId;
use mainstay::manager::{RunContext, Runnable, RunnableGroup};
use mainstay::reconcile::BoxError;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::kinds::{Served, Step, Trouble};
use super::rights::{Answer, Question};
use super::{Known, Listener, Open, Resources, Shared, Subject};
use crate::dependency::sleep_until;
use crate::settings::ProbePolicy;

/// Longest duration of one request for discovery or an access review.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests for discovery and access reviews under way at a time.
const MAX_REQUESTS: usize = 8;

/// Function that declares a kind to the cache, which lists and watches it, and returns the store of the kind.
type Declare = Box<dyn Fn(KindId) -> Store<DynamicObject> + Send + Sync>;

/// The half of [`Resources`] that sends requests to the API server. Without it all `resource` checks stay
/// unknown.
#[derive(derive_more::Debug)]
#[debug("ResourceWatch {{ .. }}")]
pub struct ResourceWatch {
    resources: Resources,
    declare: Declare,
    /// Publishes the probe policy with the list of kinds that checks may read.
    policies: watch::Receiver<Arc<ProbePolicy>>,
}

/// The next thing to do for `resource` checks: a step for a kind, or an access review.
enum Work {
    Kind(Step<Open>),
    Review(Question),
}

// === impl ResourceWatch ===

impl ResourceWatch {
    /// Makes a watch that sends requests for `resources`, lists and watches kinds with `declare`, and applies
    /// the list of allowed kinds in `policies`.
    pub fn new(
        resources: &Resources,
        declare: impl Fn(KindId) -> Store<DynamicObject> + Send + Sync + 'static,
        policies: watch::Receiver<Arc<ProbePolicy>>,
    ) -> Self {
        Self { resources: resources.clone(), declare: Box::new(declare), policies }
    }
}

impl Runnable for ResourceWatch {
    fn name(&self) -> &'static str {
        "resource-watch"
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::Others
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            let Self { resources, declare, mut policies } = *self;
            let (client, mut leading) = (cx.context().client().clone(), cx.leading.clone());
            let follow = async {
                // The sender is the manager's, which outlives its members.
                while policies.changed().await.is_ok() {
                    let kinds = policies.borrow_and_update().resources.clone();
                    resources.reconfigure(kinds);
                }
            };
            let work = async {
                while leading.wait_for(|leading| *leading).await.is_ok() {
                    let mut led = leading.clone();
                    // Biased, so that no request is sent after the term has ended.
                    tokio::select! {
                        biased;
                        _ = led.wait_for(|leading| !*leading) => {}
                        () = work(&resources.shared, &declare, &client) => {}
                    }
                    resources.shared.clear();
                }
            };
            cx.stop.run_until_cancelled(async { tokio::join!(follow, work) }).await;
            Ok(())
        })
    }
}

// === impl Shared ===

impl Shared {
    /// Returns the next thing to do for `resource` checks. Fails with the time to call again; `None` is when
    /// something changes.
    fn next(&self, now: Instant) -> Result<Work, Option<Instant>> {
        let mut known = self.known.lock();
        let Known { kinds, rights, waiters, .. } = &mut *known;
        let step = kinds.next(
            now,
            |kind| waiters.has(&Subject::Kind(kind.clone())),
            |group| waiters.has(&Subject::Group(group.to_owned())),
        );
        step.map(Work::Kind).or_else(|until| {
            let question = rights.next(now, |question| waiters.has(&Subject::Right(question.clone())));
            question.map(Work::Review).map_err(|at| until.into_iter().chain(at).min())
        })
    }

    fn enqueue_waiters_of(&self, subject: &Subject) {
        let waiting = self.known.lock().waiters.of(subject);
        waiting.into_iter().for_each(&self.enqueue);
    }

    pub(super) fn discovered(&self, group: String, served: Result<Served, Trouble>) {
        if self.known.lock().kinds.discovered(&group, served, Instant::now()) {
            self.enqueue_waiters_of(&Subject::Group(group));
        }
    }

    pub(super) fn opened(&self, kind: GroupVersionKind, open: Open) {
        let late = self.known.lock().kinds.opened(&kind, open);
        drop(late);
        self.enqueue_waiters_of(&Subject::Kind(kind));
    }

    pub(super) fn answered(&self, question: Question, answer: Answer) {
        if self.known.lock().rights.answered(&question, answer, Instant::now()) {
            self.enqueue_waiters_of(&Subject::Right(question));
        }
    }

    /// Forgets all kinds, answers and waiting WaitDeployments, and enqueues the latter: the next term may
    /// have begun before, and their reconciles in it are over.
    pub(super) fn clear(&self) {
        let (open, waiting) = {
            let mut known = self.known.lock();
            known.rights.clear();
            (known.kinds.clear(), std::mem::take(&mut known.waiters).all())
        };
        drop(open);
        waiting.into_iter().for_each(&self.enqueue);
    }
}

// === private ===

/// Sends the requests for `resource` checks, and opens and closes the watches of kinds, for as long as the
/// future is polled.
async fn work(shared: &Arc<Shared>, declare: &Declare, client: &Client) {
    let mut requests: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    let mut watches: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    loop {
        let wake_at = loop {
            if requests.len() >= MAX_REQUESTS {
                break None;
            }
            match shared.next(Instant::now()) {
                Err(until) => break until,
                Ok(Work::Review(question)) => requests.push(Box::pin(async move {
                    let answer = review(client, &question).await;
                    shared.answered(question, answer);
                })),
                Ok(Work::Kind(Step::Discover(group))) => requests.push(Box::pin(async move {
                    let served = discover(client, &group).await;
                    if let Err(trouble) = &served {
                        warn!(group, ?trouble, "discovery of a group failed");
                    }
                    shared.discovered(group, served);
                })),
                Ok(Work::Kind(Step::Close(open))) => {
                    info!(kind = %open.kind, "no check needs this kind any more; its watch ends");
                }
                Ok(Work::Kind(Step::Open(kind, id))) => {
                    let (store, stop) = (declare(id.clone()), CancellationToken::new());
                    let follow = follow(shared, kind.clone(), store.untyped().clone(), stop.clone());
                    watches.push(Box::pin(follow));
                    info!(kind = %id, "a check needs this kind; its watch begins");
                    shared.opened(kind, Open { kind: id, store, _stop: stop.drop_guard() });
                }
            }
        };
        // Order does not matter: each branch leads back to the next step.
        tokio::select! {
            Some(()) = requests.next() => {}
            Some(()) = watches.next() => {}
            () = shared.wake.notified() => {}
            () = sleep_until(wake_at) => {}
        }
    }
}

async fn discover(client: &Client, group: &str) -> Result<Served, Trouble> {
    match timeout(TIMEOUT, discovery::group(client, group)).await {
        Err(_) => Err(Trouble::Unknown("it did not answer in time".to_owned())),
        Ok(Ok(found)) => Ok(served(&found)),
        Ok(Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_)))) => Ok(Served::new()),
        Ok(Err(kube::Error::Api(status))) => Err(Trouble::Unknown(status.reason.clone())),
        // The text of the error would change with each attempt.
        Ok(Err(_)) => Err(Trouble::Unknown("there is no connection".to_owned())),
    }
}

fn served(group: &ApiGroup) -> Served {
    let resources = group.versions().flat_map(|version| group.versioned_resources(version));
    let listed = |(resource, found): (ApiResource, ApiCapabilities)| {
        let kind = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
        let id = (found.scope == Scope::Namespaced).then(|| KindId::of_resource(&resource, true));
        (kind, id.ok_or(Trouble::NotNamespaced))
    };
    resources.map(listed).collect()
}

async fn review(client: &Client, question: &Question) -> Answer {
    let Question { namespace, account, kind, name, verb } = question;
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(groups.into_iter().chain(["system:authenticated".to_owned()]).collect()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(kind.group().to_owned()),
                version: Some(kind.version().to_owned()),
                resource: Some(kind.plural().to_owned()),
                name: name.clone(),
                namespace: Some(namespace.clone()),
                verb: Some((*verb).to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let (reviews, params) = (Api::<SubjectAccessReview>::all(client.clone()), PostParams::default());
    match timeout(TIMEOUT, reviews.create(&params, &review)).await {
        Ok(Ok(review)) if review.status.as_ref().is_some_and(|status| status.allowed) => Answer::Yes,
        Ok(Ok(_)) => Answer::No,
        failed => {
            let error = failed.ok().and_then(Result::err);
            let error =
                error.map_or_else(|| "it did not answer in time".to_owned(), |error| error.to_string());
            warn!(error, namespace, account, "the access review of a ServiceAccount failed");
            Answer::Failed
        }
    }
}

/// Enqueues the WaitDeployments that wait for objects of a kind at every change of the kind, and when its
/// store can be read or cannot, until `stop`.
async fn follow(
    shared: &Arc<Shared>,
    kind: GroupVersionKind,
    store: Arc<UntypedStore>,
    stop: CancellationToken,
) {
    let listener = Listener { kind: kind.clone(), shared: Arc::downgrade(shared) };
    let mut subscription = store.subscribe(Box::new(listener));
    let follow = async {
        let subject = Subject::Kind(kind);
        // The first list has succeeded or failed.
        store.settled().await;
        shared.enqueue_waiters_of(&subject);
        subscription.synced().await;
        shared.enqueue_waiters_of(&subject);
        std::future::pending::<()>().await;
    };
    stop.run_until_cancelled(follow).await;
}
