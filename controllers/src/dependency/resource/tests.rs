use mainstay_api::plan::PlannedDependency;
use serde_json::{Value, json};

use super::check::is_final;
use super::kinds::Trouble;
use super::rights::Answer;
use super::*;
use crate::dependency::observation::Observation;

/// A WaitDeployment with one resource check, and the Jobs of the cluster.
struct Bench {
    resources: Resources,
    web: NamespacedName,
    plan: Plan,
    enqueued: Arc<Mutex<Vec<NamespacedName>>>,
}

fn jobs() -> KindId {
    KindId::new("batch", "v1", "Job", "jobs", true)
}

fn waits_for(resource: &Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "generation": 2},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {"serviceAccountName": "web"}},
            "waitFor": {"dependencies": [{"name": "schema", "resource": resource}]},
        },
    })
}

fn migrate(condition: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "condition": condition})
}

fn job(name: &str, condition: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "db"}},
        "status": {"conditions": [{"type": condition, "status": "True"}]},
    })
}

impl Bench {
    fn new(object: Value, allowed: &[&str]) -> Self {
        let web = NamespacedName::namespaced("shop", "web");
        let objects: Store<WaitDeployment> = Store::from_values(&KindId::of::<WaitDeployment>(), [object]);
        let plan = objects.get(&web).unwrap().unwrap().plan().unwrap();
        let enqueued = Arc::new(Mutex::new(Vec::new()));
        let enqueue = {
            let enqueued = enqueued.clone();
            move |request| enqueued.lock().push(request)
        };
        let allowed = allowed.iter().map(|kind| (*kind).to_owned()).collect();
        Self { resources: Resources::new(&objects, allowed, enqueue), web, plan, enqueued }
    }

    /// Makes a bench with Jobs that every ServiceAccount may read.
    fn with_jobs(object: Value, jobs: impl IntoIterator<Item = Value>) -> Self {
        let bench = Self::new(object, &["Job.batch"]);
        bench.observe();
        bench.found(Ok(jobs));
        bench.observe();
        bench.answer("list", None, Answer::Yes);
        bench.answer("get", None, Answer::Yes);
        bench
    }

    fn observe(&self) -> Observation {
        let mut reader = self.resources.watch(&self.web, &self.plan);
        let dependency: &PlannedDependency = &self.plan.dependencies[0];
        let Check::Resource(check) = &dependency.check else { panic!("another check") };
        reader.observe(dependency, check)
    }

    fn observation(&self) -> String {
        let Observation { state, reason, message } = self.observe();
        format!("{state:?} {reason}: {message}")
    }

    /// Discovers the group of Jobs with this answer, and where it serves Jobs, opens these.
    fn found(&self, found: Result<impl IntoIterator<Item = Value>, Trouble>) {
        let (shared, kind) = (&self.resources.shared, GroupVersionKind::gvk("batch", "v1", "Job"));
        let discovered = |served| shared.discovered("batch".to_owned(), served);
        match found {
            Err(Trouble::NotServed) => discovered(Ok([].into())),
            Err(Trouble::NotNamespaced) => discovered(Ok([(kind, Err(Trouble::NotNamespaced))].into())),
            Err(trouble) => discovered(Err(trouble)),
            Ok(objects) => {
                discovered(Ok([(kind.clone(), Ok(jobs()))].into()));
                self.observe();
                let open = Open {
                    kind: jobs(),
                    store: Store::from_values(&jobs(), objects),
                    _stop: tokio_util::sync::CancellationToken::new().drop_guard(),
                };
                self.enqueued();
                shared.opened(kind, open);
            }
        }
    }

    fn answer(&self, verb: &'static str, name: Option<&str>, answer: Answer) {
        let question = Question {
            namespace: "shop".to_owned(),
            account: "web".to_owned(),
            kind: jobs(),
            name: name.map(ToOwned::to_owned),
            verb,
        };
        self.resources.shared.answered(question, answer);
    }

    /// Returns how many times the WaitDeployment was enqueued since the last call.
    fn enqueued(&self) -> usize {
        std::mem::take(&mut *self.enqueued.lock()).len()
    }
}

const NOT_YET: &str = "Unknown Unknown: not tried yet";

#[tokio::test]
async fn only_listed_kinds_are_read() {
    let bench = Bench::new(waits_for(&migrate("Complete")), &["Deployment.apps", "Job"]);
    let text = "Denied PolicyDenied: kind Job.batch is not among probePolicy.resources";
    assert_eq!(bench.observation(), text);
    bench.resources.reconfigure(vec!["Job.batch".to_owned()]);
    assert_eq!(bench.enqueued(), 1);
    assert_eq!(bench.observation(), NOT_YET);
    bench.found(Ok([job("migrate", "Complete")]));
    bench.resources.reconfigure(Vec::new());
    assert_eq!(bench.observation(), text, "also of a kind that is open");
    let kind = GroupVersionKind::gvk("batch", "v1", "Job");
    let waiters = &bench.resources.shared.known.lock().waiters;
    assert_eq!(waiters.of(&Subject::Kind(kind)), [], "and the check does not keep the kind open");
}

#[tokio::test]
async fn an_object_is_read_only_if_the_service_account_may_read_it() {
    let bench = Bench::new(waits_for(&migrate("Complete")), &["Job.batch"]);
    assert_eq!(bench.observation(), NOT_YET);
    bench.found(Ok([job("migrate", "Complete")]));
    assert_eq!(bench.enqueued(), 1);
    assert_eq!(bench.observation(), NOT_YET, "no access review yet");
    bench.answer("get", None, Answer::No);
    assert_eq!(
        (bench.enqueued(), bench.observation().as_str()),
        (1, NOT_YET),
        "the one object may be allowed"
    );
    bench.answer("get", Some("migrate"), Answer::No);
    assert_eq!(bench.enqueued(), 1);
    let text = "Blind AccessDenied: ServiceAccount shop/web of the template may not get Job shop/migrate; \
                allow it by a Role";
    assert_eq!(bench.observation(), text);
    bench.answer("get", Some("migrate"), Answer::Failed);
    let text = "Blind AccessUnknown: the access review of ServiceAccount shop/web failed";
    assert_eq!(bench.observation(), text);
    bench.answer("get", Some("migrate"), Answer::Yes);
    assert_eq!(bench.observation(), "Ready InState: Job shop/migrate has condition Complete=True");
    bench.answer("get", Some("migrate"), Answer::Failed);
    assert!(bench.observation().starts_with("Ready"), "a failed review takes no right away");
    bench.answer("get", Some("migrate"), Answer::No);
    assert!(
        bench.observation().starts_with("Blind AccessDenied"),
        "a right that is taken away counts no more"
    );
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_has_a_reason() {
    let bench = Bench::new(waits_for(&migrate("Complete")), &["Job.batch"]);
    for (trouble, text) in [
        (Trouble::NotServed, "Blind KindNotServed: the API server does not serve kind Job of batch/v1"),
        (
            Trouble::NotNamespaced,
            "Invalid KindNotNamespaced: kind Job of batch/v1 is cluster-scoped; expected a namespaced kind",
        ),
        (
            Trouble::Unknown("there is no connection".to_owned()),
            "Blind KindUnknown: discovery of kind Job of batch/v1 failed: there is no connection",
        ),
    ] {
        bench.observe();
        bench.found(Err::<[Value; 0], _>(trouble));
        assert_eq!((bench.enqueued(), bench.observation().as_str()), (1, text));
    }
}

#[tokio::test]
async fn a_check_is_ready_once_the_object_has_the_condition() {
    let text = |job: Value| Bench::with_jobs(waits_for(&migrate("Complete")), [job]).observation();
    let text_of = |condition| text(job("migrate", condition));
    assert_eq!(text_of("Complete"), "Ready InState: Job shop/migrate has condition Complete=True");
    let not_yet = "NotReady NotInState: Job shop/migrate does not have condition Complete=True yet";
    assert_eq!(text_of("Suspended"), not_yet);
    let failed = "NotReady Failed: Job shop/migrate has failed and will not have condition Complete=True";
    assert_eq!(text_of("Failed"), failed);
    assert_eq!(text(job("other", "Complete")), "NotReady NotFound: Job shop/migrate does not exist");
    let mut elsewhere = job("migrate", "Complete");
    elsewhere["metadata"]["namespace"] = "pay".into();
    assert_eq!(text(elsewhere), "NotReady NotFound: Job shop/migrate does not exist");
    let mut odd = job("migrate", "Complete");
    odd["status"] = json!("the secret of another");
    assert_eq!(text(odd), not_yet, "and the message shows none of it");
    let mut early = job("migrate", "Complete");
    early["metadata"]["generation"] = 2.into();
    early["status"]["observedGeneration"] = 1.into();
    let outdated = "NotReady NotObserved: the status of Job shop/migrate is of an earlier generation: \
                    condition Complete=True does not count yet";
    assert_eq!(text(early), outdated);
}

#[tokio::test]
async fn a_check_is_ready_once_the_path_has_the_value() {
    let text = |path: &str, value: &str| {
        let resource = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "jsonPath": path, "value": value,
        });
        let mut job = job("migrate", "Complete");
        job["status"]["succeeded"] = 1.into();
        Bench::with_jobs(waits_for(&resource), [job]).observation()
    };
    assert_eq!(
        text("{.status.succeeded}", "1"),
        "Ready InState: Job shop/migrate has {.status.succeeded}=\"1\""
    );
    assert_eq!(
        text("{.status.succeeded}", "2"),
        "NotReady NotInState: Job shop/migrate does not have {.status.succeeded}=\"2\" yet"
    );
    assert_eq!(
        text("{.status.failed}", "2"),
        "NotReady NotInState: Job shop/migrate does not have {.status.failed}=\"2\" yet"
    );
    assert_eq!(
        text("{.status.conditions[?(@.status=='True')].type}", "Complete"),
        "Ready InState: Job shop/migrate has {.status.conditions[?(@.status=='True')].type}=\"Complete\""
    );
    assert_eq!(
        text("{.status.conditions}", "x"),
        "Invalid NotOneValue: {.status.conditions} of Job shop/migrate is a list; expected a string, \
         a number or a boolean"
    );
    assert_eq!(
        text("{.status.conditions[0]}", "x"),
        "Invalid NotOneValue: {.status.conditions[0]} of Job shop/migrate is an object; expected a string, a \
         number or a boolean"
    );
}

#[tokio::test]
async fn a_path_with_several_values_is_refused() {
    let path = "{.status.conditions[?(@.status==\"True\")].type}";
    let text = |which: Value, jobs: Vec<Value>| {
        let mut resource =
            json!({"apiVersion": "batch/v1", "kind": "Job", "jsonPath": path, "value": "Complete"});
        resource.as_object_mut().unwrap().extend(which.as_object().unwrap().clone());
        Bench::with_jobs(waits_for(&resource), jobs).observation()
    };
    let mut twice = job("migrate", "Complete");
    twice["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Other", "status": "True"}));
    assert_eq!(
        text(json!({"name": "migrate"}), vec![twice.clone()]),
        "Invalid NotOneValue: {.status.conditions[?(@.status==\"True\")].type} of Job shop/migrate is \
         several values; expected one"
    );
    assert_eq!(
        text(json!({"selector": {"matchLabels": {"app": "db"}}}), vec![job("a", "Complete"), twice]),
        "Invalid NotOneValue: {.status.conditions[?(@.status==\"True\")].type} of one of the selected \
         objects of kind Job in namespace shop is several values; expected one"
    );
}

#[tokio::test]
async fn the_objects_of_all_checks_are_read_within_one_bound() {
    let selects = |name: &str, state: Value| {
        let mut resource =
            json!({"apiVersion": "batch/v1", "kind": "Job", "selector": {"matchLabels": {"app": "db"}}});
        resource.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
        json!({"name": name, "resource": resource})
    };
    let condition = json!({"condition": "Complete"});
    let path = json!({"jsonPath": "{.status.conditions[0].type}", "value": "Complete"});
    let mut object = waits_for(&Value::Null);
    object["spec"]["waitFor"]["dependencies"] =
        json!([selects("first", condition.clone()), selects("second", path), selects("third", condition)]);
    let jobs = (0..MAX_SELECTED).map(|number| {
        let mut job = job(&number.to_string(), "Complete");
        job["metadata"]["annotations"]["large"] = "x".repeat(14 << 10).into();
        job
    });
    let bench = Bench::with_jobs(object, jobs);
    let observe = || {
        let mut reader = bench.resources.watch(&bench.web, &bench.plan);
        let observations = bench.plan.dependencies.iter().map(|dependency| {
            let Check::Resource(check) = &dependency.check else { panic!("another check") };
            reader.observe(dependency, check)
        });
        observations.map(|observation| observation.reason).collect::<Vec<_>>()
    };
    // Seven MiB each. The path has four steps and counts four times; too little is left for the last check.
    for _ in 0..2 {
        let expected = ["InState", "TooManyObjects", "TooManyObjects"];
        assert_eq!(observe(), expected, "the same in each reconcile");
    }
}

#[tokio::test]
async fn a_selector_is_ready_once_all_selected_objects_are_in_the_state() {
    let resource = json!({
        "apiVersion": "batch/v1", "kind": "Job", "condition": "Complete",
        "selector": {
            "matchLabels": {"app": "db"},
            "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}],
        },
    });
    let text = |jobs: Vec<Value>| Bench::with_jobs(waits_for(&resource), jobs).observation();
    let (good, bad) = (job("a", "Complete"), job("b", "Suspended"));
    let mut old = bad.clone();
    old["metadata"]["labels"]["old"] = "yes".into();
    let objects = "the selected objects of kind Job in namespace shop";
    assert_eq!(
        text(vec![good.clone(), old.clone()]),
        format!("Ready InState: {objects} have condition Complete=True")
    );
    assert_eq!(
        text(vec![good, bad]),
        format!("NotReady NotInState: {objects} do not all have condition Complete=True yet")
    );
    assert_eq!(
        text(vec![old]),
        format!("NotReady NotFound: {objects} do not exist"),
        "no object is not all objects"
    );
    let many = (0..=MAX_SELECTED).map(|number| job(&number.to_string(), "Complete")).collect();
    let text = text(many);
    assert_eq!(text, format!("Blind TooManyObjects: {objects} are more than 500; narrow the selector"));
}

#[tokio::test]
async fn an_object_in_a_final_state_may_be_deleted() {
    let gone = |condition: &str, generation: i64, message: &str| {
        let mut object = waits_for(&migrate(condition));
        let entry = json!({"name": "schema", "ready": true, "message": message});
        object["status"] = json!({"observedGeneration": generation, "dependencies": [entry]});
        Bench::with_jobs(object, []).observation()
    };
    let message = "Job shop/migrate has condition Complete=True";
    let text = format!("Ready GoneAfterSuccess: {message}");
    assert_eq!(gone("Complete", 1, message), text, "the message is of this very check");
    let missing = "NotReady NotFound: Job shop/migrate does not exist";
    let other = "Job shop/migrate-1 has condition Complete=True";
    assert_eq!(gone("Complete", 2, other), missing, "the spec was edited since");
    assert_eq!(gone("Complete", 1, "Job shop/other has condition Complete=True"), missing, "another check");
    let suspended = "Job shop/migrate has condition Suspended=True";
    assert_eq!(gone("Suspended", 1, suspended), missing, "its work is not finished");

    let mut object = waits_for(&migrate("Complete"));
    object["status"] = json!({"observedGeneration": 2, "dependencies": [{"name": "schema", "ready": false}]});
    assert_eq!(Bench::with_jobs(object, []).observation(), missing, "it was never ready");
}

#[test]
fn only_conditions_of_finished_work_are_final() {
    let check = |kind: &str, condition: &str| {
        let (group, kind) = kind.split_once('/').unwrap();
        let version = format!("{group}/v1");
        let resource = json!({"apiVersion": version, "kind": kind, "name": "x", "condition": condition});
        let object: WaitDeployment = serde_json::from_value(waits_for(&resource)).unwrap();
        let plan = object.plan().unwrap();
        let Check::Resource(check) = &plan.dependencies[0].check else { panic!("another check") };
        is_final(check)
    };
    assert!(check("batch/Job", "Complete") && check("batch/Job", "SuccessCriteriaMet"));
    assert!(check("tekton.dev/PipelineRun", "Succeeded") && check("example.com/Backup", "completed=True"));
    assert!(!check("batch/Job", "Suspended") && !check("batch/Job", "Complete=False"));
    assert!(!check("apps/Deployment", "Available") && !check("tekton.dev/PipelineRun", "Succeeded=False"));
}

/// The Lease may be won back before the end of the last term is seen here.
#[tokio::test]
async fn the_end_of_a_term_enqueues_the_objects_that_wait() {
    let bench = Bench::with_jobs(waits_for(&migrate("Complete")), [job("migrate", "Complete")]);
    bench.enqueued();
    bench.resources.shared.clear();
    assert_eq!(bench.enqueued(), 1);
    assert_eq!(bench.observation(), NOT_YET);
}

#[tokio::test]
async fn nothing_is_enqueued_after_forget() {
    let bench = Bench::with_jobs(waits_for(&migrate("Complete")), [job("migrate", "Complete")]);
    bench.enqueued();
    bench.resources.forget(&bench.web);
    bench.answer("get", None, Answer::No);
    bench.found(Err::<[Value; 0], _>(Trouble::NotServed));
    assert_eq!(bench.enqueued(), 0);
}
