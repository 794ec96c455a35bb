//! Runs a user's test under exactly the rights that the manager declares.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use http::{Method, Uri};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::client::ResourcePath;
use crate::client::connect::{RequestGuard, is_watch};
use crate::client::observe::only_name;
use crate::config::ConfigSchema;
use crate::manager::Manager;
use crate::rbac::{Rights, Rule, Target};
use crate::reconcile::BoxError;

/// Runs `test` beside a manager that may send only the requests that its declared
/// [rights](Manager::rights) allow, as under a role that grants them and nothing else. `setup` registers the
/// controllers, as in [`Manager::for_test`].
///
/// Let `test` use every feature that writes or reads: a right that the manager never used is an error, unless
/// its declaration is [seldom](crate::rbac::Access::seldom) used. The first request without a right ends the
/// test. Works on every API server, also on one that enforces no rules.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::api::Api;
/// use mainstay::prelude::*;
/// use mainstay::testing::{Condition, rights};
///
/// # async fn test(
/// #     connection: kube::Config, setup: fn(&Manager) -> Result<(), BoxError>, copies: Api<ConfigMap>,
/// # ) -> Result<(), BoxError> {
/// rights(connection, setup, async |_manager| {
///     Condition::exists().wait(&copies, "shop-prices").await?;
///     Ok(())
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A [`RightsError`] with the missing and the unused rights, each with its line of code; else the error of
/// `setup` or `test`.
pub async fn rights(
    connection: kube::Config,
    setup: impl FnOnce(&Manager) -> Result<(), BoxError>,
    test: impl AsyncFnOnce(&Manager) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    RightsTest::new(connection).run(setup, test).await
}

/// A test of rights as [`rights`] runs it, with options.
#[derive(Debug)]
#[must_use = "it tests nothing until it is run"]
pub struct RightsTest {
    connection: kube::Config,
    schema: ConfigSchema,
    namespaces: Vec<String>,
    /// The right that is withheld, as text; empty for none.
    withheld: String,
}

// === impl RightsTest ===

impl RightsTest {
    /// Makes a test of a manager with this connection.
    pub fn new(connection: kube::Config) -> Self {
        Self { connection, schema: ConfigSchema::new(), namespaces: Vec::new(), withheld: String::new() }
    }

    /// Sets the schema of the program's configuration, for a program with sections of its own.
    pub fn schema(self, schema: &ConfigSchema) -> Self {
        Self { schema: schema.clone(), ..self }
    }

    /// Restricts the manager to these namespaces, as `cache.namespaces` in its configuration does.
    pub fn namespaces(self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { namespaces: namespaces.into_iter().map(Into::into).collect(), ..self }
    }

    /// Withholds one of the declared rights, written as in the error texts, such as `patch configmaps in
    /// attic`: for a test which shows that each right is needed.
    pub fn without(self, right: impl Into<String>) -> Self {
        Self { withheld: right.into(), ..self }
    }

    /// Runs the test.
    ///
    /// # Errors
    /// As [`rights`].
    pub async fn run(
        self,
        setup: impl FnOnce(&Manager) -> Result<(), BoxError>,
        test: impl AsyncFnOnce(&Manager) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let Self { connection, schema, namespaces, withheld } = self;
        let mut guard = None;
        let manager = Manager::start_in(&namespaces, &schema, connection, |manager| {
            setup(manager)?;
            let (seen, refused) = (Mutex::default(), Notify::new());
            let guarded = Arc::new(Guarded { manager: manager.clone(), withheld, seen, refused });
            manager.guard(Some(Arc::clone(&guarded) as Arc<dyn RequestGuard>));
            guard = Some(guarded);
            Ok(())
        })?;
        let Some(guard) = guard else { return Ok(()) };
        let outcome = tokio::select! {
            outcome = test(&manager) => outcome,
            () = guard.refused.notified() => Ok(()),
        };
        let rights = guard.rights();
        manager.guard(None);
        manager.stop().await?;
        let seen = std::mem::take(&mut *guard.seen.lock());
        match seen.judge(&rights) {
            // A test that failed has perhaps not reached what uses the other rights.
            Some(error) if outcome.is_ok() || !error.missing.is_empty() => Err(error.into()),
            _ => outcome,
        }
    }
}

/// The error of a test of rights: the rights that were missing, and those that were never used.
#[derive(Debug)]
pub struct RightsError {
    /// The refused requests, such as `delete configmaps in attic`, each once.
    pub missing: Vec<String>,
    /// The declared rights that were never used, with the lines of code that declare them.
    pub unused: Vec<String>,
}

/// Lets the requests of a manager pass that its rights allow, and records them.
struct Guarded {
    manager: Manager,
    /// The right that is withheld, as text; empty for none.
    withheld: String,
    seen: Mutex<Seen>,
    /// Notified of the first request without a right.
    refused: Notify,
}

/// The requests of a test.
#[derive(Default)]
struct Seen {
    used: BTreeSet<Request>,
    missing: BTreeSet<Request>,
}

/// A request as an authorizer sees it: one verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    verb: &'static str,
    group: String,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
}

// === impl Guarded ===

impl Guarded {
    fn rights(&self) -> Rights {
        self.manager.rights().without(&self.withheld)
    }

    fn refuse(&self, request: Request) -> String {
        let message = format!("{request} is not among the rights that the manager declares");
        self.seen.lock().missing.insert(request);
        self.refused.notify_one();
        message
    }
}

impl RequestGuard for Guarded {
    fn refuse(&self, method: &Method, uri: &Uri) -> Option<String> {
        let (request, rights) = (Request::of(method, uri)?, self.rights());
        if !request.is_allowed_by(&rights) {
            return Some(self.refuse(request));
        }
        // A watch that begins with all objects is a list too.
        let lists = uri.query().is_some_and(|query| query.contains("sendInitialEvents=true"));
        if request.verb == "watch" && lists {
            let list = Request { verb: "list", ..request.clone() };
            if !list.is_allowed_by(&rights) {
                return Some(self.refuse(list));
            }
            self.seen.lock().used.insert(list);
        }
        self.seen.lock().used.insert(request);
        None
    }

    fn created(&self, uri: &Uri) {
        let Some(request) = Request::of(&Method::PATCH, uri) else { return };
        let request = Request { verb: "create", name: None, ..request };
        if request.is_allowed_by(&self.rights()) {
            self.seen.lock().used.insert(request);
        } else {
            self.refuse(request);
        }
    }
}

// === impl Request ===

impl Request {
    /// Returns the request of a method and a URI; `None` for one that every account may send.
    fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let path = ResourcePath::parse(uri.path())?;
        let query = uri.query().unwrap_or_default();
        let verb = match (method, &path.name) {
            (&Method::GET, _) if is_watch(uri) => "watch",
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            _ => return None,
        };
        if path.group == "authorization.k8s.io" && path.plural.starts_with("selfsubject") {
            return None;
        }
        let field = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "fieldSelector");
        let only = field.and_then(|(_, fields)| only_name(&fields).map(str::to_owned));
        let resource = match &path.subresource {
            Some(subresource) => format!("{}/{subresource}", path.plural),
            None => path.plural,
        };
        let name = path.name.or(only).filter(|_| verb != "create");
        Some(Self { verb, group: path.group, resource, namespace: path.namespace, name })
    }

    fn is_allowed_by(&self, rights: &Rights) -> bool {
        rights.rules().iter().any(|rule| self.is_within(rule))
    }

    /// Returns whether a rule allows the request. `*` stands for everything, as in a role.
    fn is_within(&self, rule: &Rule) -> bool {
        let Target::Resource { group, resource, name } = &rule.target else { return false };
        let is = |wanted: &str, given: &str| wanted == "*" || wanted == given;
        rule.verbs().any(|verb| is(verb, self.verb))
            && is(group, &self.group)
            && is(resource, &self.resource)
            && (name.is_none() || *name == self.name)
            && (rule.namespace.is_none() || rule.namespace == self.namespace)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, namespace, name } = self;
        let target =
            Target::Resource { group: group.clone(), resource: resource.clone(), name: name.clone() };
        write!(f, "{verb} {target}")?;
        namespace.as_ref().map_or(Ok(()), |namespace| write!(f, " in {namespace}"))
    }
}

// === impl Seen ===

impl Seen {
    /// Compares the requests with the rights; `None` if they are equal.
    fn judge(&self, rights: &Rights) -> Option<RightsError> {
        let missing: Vec<String> = self.missing.iter().map(ToString::to_string).collect();
        let unused = rights.rules().iter().filter_map(|rule| {
            let mut unused = rule.clone();
            unused.verbs.retain(|verb, grounds| {
                let used = |request: &Request| request.verb == verb.as_str() && request.is_within(rule);
                !grounds.iter().all(|one| one.seldom) && !self.used.iter().any(used)
            });
            (!unused.verbs.is_empty()).then(|| unused.to_string())
        });
        let unused: Vec<String> = unused.collect();
        (!missing.is_empty() || !unused.is_empty()).then_some(RightsError { missing, unused })
    }
}

// === impl RightsError ===

impl fmt::Display for RightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = [
            ("requests without a right; declare it with .needs(..) on the controller:", &self.missing),
            ("rights that the test never used:", &self.unused),
        ];
        for (head, lines) in heads.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            writeln!(f, "{head}")?;
            lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        Ok(())
    }
}

impl std::error::Error for RightsError {}
