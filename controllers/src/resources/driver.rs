//! Asks the API server what the checks of resources need to know.
//!
//! On the leader only: who does not reconcile waits for nothing. With the Lease go all lists and watches that were opened
//! for checks, and all answers.

use std::fmt;
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
use mainstay::cache::{KindStore, Store};
use mainstay::config::ManagerConfiguration;
use mainstay::key::KindId;
use mainstay::manager::{RunContext, Runnable, RunnableGroup};
use mainstay::reconcile::BoxError;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::kinds::{Served, Step, Trouble};
use super::rights::{Answer, Question};
use super::{Known, Listener, Open, Resources, Shared, Thing};
use crate::dependencies::Waiters;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most requests under way at one time.
const AT_ONCE: usize = 8;

/// Declares a kind to the cache.
type Declare = Box<dyn Fn(KindId) -> Store<DynamicObject> + Send + Sync>;

/// The half of [`Resources`] that asks the API server; nothing is found out unless it runs.
pub struct ResourceWatch {
    resources: Resources,
    declare: Declare,
    /// Where another list of kinds comes from.
    configurations: watch::Receiver<Arc<ManagerConfiguration>>,
}

/// Something that was found out.
enum Done {
    Group(String, Result<Served, Trouble>),
    Right(Question, Answer),
    /// A kind is not watched any more.
    Closed,
}

/// Something to do.
enum Work {
    Find(String),
    Open(GroupVersionKind, KindId),
    Ask(Question),
    /// Nothing before this time; `None`: nothing until something changes.
    Wait(Option<Instant>),
}

// === impl ResourceWatch ===

impl ResourceWatch {
    /// Asks for `resources`, has kinds listed and watched by `declare`, and follows the list of kinds in
    /// `configurations`.
    pub fn new(
        resources: &Resources,
        declare: impl Fn(KindId) -> Store<DynamicObject> + Send + Sync + 'static,
        configurations: watch::Receiver<Arc<ManagerConfiguration>>,
    ) -> Self {
        Self { resources: resources.clone(), declare: Box::new(declare), configurations }
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
            let Self { resources, declare, mut configurations } = *self;
            let (client, mut leading) = (cx.context().client().clone(), cx.leading.clone());
            let follow = async {
                // The sender is the manager's, which outlives its members.
                while configurations.changed().await.is_ok() {
                    let kinds = configurations.borrow_and_update().probe_policy.resources.clone();
                    resources.reconfigure(kinds);
                }
            };
            let work = async {
                while leading.wait_for(|leading| *leading).await.is_ok() {
                    let mut led = leading.clone();
                    // Biased: nothing is found out for somebody else's term.
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

impl fmt::Debug for ResourceWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceWatch").finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    fn next(&self, now: Instant) -> Work {
        loop {
            let mut known = self.known.lock();
            let Known { kinds, rights, waiters, .. } = &mut *known;
            let kinds = kinds.next(now, |kind| waiters.has(&Thing::Kind(kind.clone())));
            let until = match kinds {
                Step::Find(group) => return Work::Find(group),
                Step::Open(kind, id) => return Work::Open(kind, id),
                Step::Close(open) => {
                    drop(known);
                    info!(kind = %open.kind, "nobody waits for objects of this kind any more");
                    continue;
                }
                Step::Wait(until) => until,
            };
            return match rights.next(now, |question| waiters.has(&Thing::Right(question.clone()))) {
                Ok(question) => Work::Ask(question),
                Err(at) => Work::Wait(until.into_iter().chain(at).min()),
            };
        }
    }

    fn tell_who_waits_for(&self, thing: &Thing) {
        let waiting = self.known.lock().waiters.of(thing);
        waiting.into_iter().for_each(&self.tell);
    }

    pub(super) fn found(&self, group: &str, served: Result<Served, Trouble>) {
        let concerned = self.known.lock().kinds.found(group, served, Instant::now());
        for kind in concerned {
            self.tell_who_waits_for(&Thing::Kind(kind));
        }
    }

    pub(super) fn opened(&self, kind: GroupVersionKind, open: Open) {
        let late = self.known.lock().kinds.opened(&kind, open);
        drop(late);
        self.tell_who_waits_for(&Thing::Kind(kind));
    }

    pub(super) fn answered(&self, question: Question, answer: Answer) {
        if self.known.lock().rights.answered(&question, answer, Instant::now()) {
            self.tell_who_waits_for(&Thing::Right(question));
        }
    }

    /// Lets go of everything. Who waits says so again in the next term.
    fn clear(&self) {
        let open = {
            let mut known = self.known.lock();
            known.rights.clear();
            known.waiters = Waiters::default();
            known.kinds.clear()
        };
        drop(open);
    }
}

// === private ===

/// Finds out for as long as it is polled.
async fn work(shared: &Arc<Shared>, declare: &Declare, client: &Client) {
    let mut under_way: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
    // Those that follow a kind are no requests.
    let mut requests = 0;
    loop {
        let wake_at = loop {
            if requests >= AT_ONCE {
                break None;
            }
            match shared.next(Instant::now()) {
                Work::Find(group) => under_way.push(Box::pin(find(client.clone(), group))),
                Work::Ask(question) => under_way.push(Box::pin(ask(client.clone(), question))),
                Work::Wait(until) => break until,
                Work::Open(kind, id) => {
                    let (store, stop) = (declare(id.clone()), CancellationToken::new());
                    let follow =
                        follow(Arc::clone(shared), kind.clone(), store.kind_store().clone(), stop.clone());
                    under_way.push(Box::pin(follow));
                    info!(kind = %id, "objects of this kind are waited for");
                    shared.opened(kind, Open { kind: id, store, _stop: stop.drop_guard() });
                    continue;
                }
            }
            requests += 1;
        };
        // Order does not matter: each is looked at in turn.
        let done = tokio::select! {
            Some(done) = under_way.next() => done,
            () = shared.wake.notified() => continue,
            () = sleep_until(wake_at) => continue,
        };
        match done {
            Done::Closed => continue,
            Done::Right(question, answer) => shared.answered(question, answer),
            Done::Group(group, served) => {
                if let Err(trouble) = &served {
                    warn!(group, ?trouble, "What a group serves was not told");
                }
                shared.found(&group, served);
            }
        }
        requests -= 1;
    }
}

async fn find(client: Client, group: String) -> Done {
    let served = match timeout(PATIENCE, discovery::group(&client, &group)).await {
        Err(_) => Err(Trouble::Unknown("it did not answer in time".to_owned())),
        Ok(Ok(found)) => Ok(served(&found)),
        Ok(Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_)))) => Ok(Served::new()),
        Ok(Err(kube::Error::Api(status))) => Err(Trouble::Unknown(status.reason.clone())),
        // Not in its own words: they would change with each attempt.
        Ok(Err(_)) => Err(Trouble::Unknown("there is no connection".to_owned())),
    };
    Done::Group(group, served)
}

fn served(group: &ApiGroup) -> Served {
    let resources = group.versions().flat_map(|version| group.versioned_resources(version));
    let listed = |(resource, found): (ApiResource, ApiCapabilities)| {
        let kind = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
        let id = (found.scope == Scope::Namespaced).then(|| KindId::of_resource(&resource, true));
        (kind, id)
    };
    resources.map(listed).collect()
}

async fn ask(client: Client, question: Question) -> Done {
    let Question { namespace, account, kind, name, verb } = &question;
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
    let (reviews, params) = (Api::<SubjectAccessReview>::all(client), PostParams::default());
    let answer = match timeout(PATIENCE, reviews.create(&params, &review)).await {
        Ok(Ok(review)) if review.status.as_ref().is_some_and(|status| status.allowed) => Answer::Yes,
        Ok(Ok(_)) => Answer::No,
        failed => {
            let error = failed.ok().and_then(Result::err);
            let error =
                error.map_or_else(|| "it did not answer in time".to_owned(), |error| error.to_string());
            warn!(error, namespace, account, "What a ServiceAccount may read was not told");
            Answer::Failed
        }
    };
    Done::Right(question, answer)
}

/// Tells of every change of a kind, and of when its store has an answer at all, until `stop`.
async fn follow(
    shared: Arc<Shared>,
    kind: GroupVersionKind,
    store: Arc<KindStore>,
    stop: CancellationToken,
) -> Done {
    let mut told =
        store.subscribe(Box::new(Listener { kind: kind.clone(), shared: Arc::downgrade(&shared) }));
    let follow = async {
        let thing = Thing::Kind(kind);
        // It can be read, or it is known that it cannot for now.
        store.settled().await;
        shared.tell_who_waits_for(&thing);
        told.synced().await;
        shared.tell_who_waits_for(&thing);
        std::future::pending::<()>().await;
    };
    stop.run_until_cancelled(follow).await;
    Done::Closed
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
