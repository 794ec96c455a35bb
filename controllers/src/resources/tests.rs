use mainstay_api::plan::PlannedDependency;
use serde_json::{Value, json};

use super::check::is_final;
use super::kinds::{Served, Trouble};
use super::rights::Answer;
use super::*;
use crate::dependencies::Observation;

/// A WaitDeployment that waits for one thing, what it waits for, and the Jobs there are.
struct Bench {
    resources: Resources,
    web: Request,
    plan: Plan,
    told: Arc<Mutex<Vec<Request>>>,
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
        let web = Request::namespaced("shop", "web");
        let objects: Store<WaitDeployment> = Store::from_values(&KindId::of::<WaitDeployment>(), [object]);
        let plan = objects.get(&web).unwrap().unwrap().plan().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let told = told.clone();
            move |request| told.lock().push(request)
        };
        let allowed = allowed.iter().map(|kind| (*kind).to_owned()).collect();
        Self { resources: Resources::new(&objects, allowed, tell), web, plan, told }
    }

    /// With Jobs that can be read, by everybody.
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
        let mut look = self.resources.watch(&self.web, &self.plan);
        let dependency: &PlannedDependency = &self.plan.dependencies[0];
        let Check::Resource(check) = &dependency.check else { panic!("another check") };
        look.observe(dependency, check)
    }

    fn said(&self) -> String {
        let Observation { state, reason, message } = self.observe();
        format!("{state:?} {reason}: {message}")
    }

    /// What the server tells of the group, and where it serves Jobs, these.
    fn found(&self, found: Result<impl IntoIterator<Item = Value>, Trouble>) {
        let (shared, kind) = (&self.resources.shared, GroupVersionKind::gvk("batch", "v1", "Job"));
        match found {
            Err(Trouble::NotServed) => shared.found("batch", Ok(Served::new())),
            Err(Trouble::NotNamespaced) => shared.found("batch", Ok(Served::from([(kind, None)]))),
            Err(trouble) => shared.found("batch", Err(trouble)),
            Ok(objects) => {
                let open = Open {
                    kind: jobs(),
                    store: Store::from_values(&jobs(), objects),
                    _stop: tokio_util::sync::CancellationToken::new().drop_guard(),
                };
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

    fn told(&self) -> usize {
        std::mem::take(&mut *self.told.lock()).len()
    }
}

const NOT_YET: &str = "Unknown Unknown: not tried yet";

#[tokio::test]
async fn only_listed_kinds_are_looked_at() {
    let bench = Bench::new(waits_for(&migrate("Complete")), &["Deployment.apps", "Job"]);
    let text = "Denied PolicyDenied: kind Job.batch is not among probePolicy.resources";
    assert_eq!(bench.said(), text);
    bench.resources.reconfigure(vec!["Job.batch".to_owned()]);
    assert_eq!(bench.told(), 1);
    assert_eq!(bench.said(), NOT_YET);
    bench.found(Ok([job("migrate", "Complete")]));
    bench.resources.reconfigure(Vec::new());
    assert_eq!(bench.said(), text, "also what is watched already");
    let kind = GroupVersionKind::gvk("batch", "v1", "Job");
    let waiters = &bench.resources.shared.known.lock().waiters;
    assert_eq!(waiters.of(&Thing::Kind(kind)), [], "and nobody has it watched any more");
}

#[tokio::test]
async fn an_object_is_told_about_to_whose_account_may_read_it() {
    let bench = Bench::new(waits_for(&migrate("Complete")), &["Job.batch"]);
    assert_eq!(bench.said(), NOT_YET);
    bench.found(Ok([job("migrate", "Complete")]));
    assert_eq!(bench.told(), 1);
    assert_eq!(bench.said(), NOT_YET, "nobody was asked");
    bench.answer("get", None, Answer::No);
    assert_eq!((bench.told(), bench.said().as_str()), (1, NOT_YET), "the one may be allowed");
    bench.answer("get", Some("migrate"), Answer::No);
    assert_eq!(bench.told(), 1);
    let text = "Blind AccessDenied: ServiceAccount shop/web of the template may not get Job shop/migrate; a Role that \
                admits it lets this be told";
    assert_eq!(bench.said(), text);
    bench.answer("get", Some("migrate"), Answer::Failed);
    let text = "Blind AccessUnknown: the API server does not tell what ServiceAccount shop/web may read";
    assert_eq!(bench.said(), text);
    bench.answer("get", Some("migrate"), Answer::Yes);
    assert_eq!(bench.said(), "Ready InState: Job shop/migrate has condition Complete=True");
    bench.answer("get", Some("migrate"), Answer::Failed);
    assert!(bench.said().starts_with("Ready"), "a question that fails takes no right away");
    bench.answer("get", Some("migrate"), Answer::No);
    assert!(bench.said().starts_with("Blind AccessDenied"), "a right that is taken away counts no more");
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_says_why() {
    let bench = Bench::new(waits_for(&migrate("Complete")), &["Job.batch"]);
    for (trouble, text) in [
        (Trouble::NotServed, "Blind KindNotServed: the API server does not serve kind Job of batch/v1"),
        (
            Trouble::NotNamespaced,
            "Invalid KindNotNamespaced: kind Job of batch/v1 is in no namespace; expected one whose objects are",
        ),
        (
            Trouble::Unknown("there is no connection".to_owned()),
            "Blind KindUnknown: the API server cannot be asked for kind Job of batch/v1: there is no connection",
        ),
    ] {
        bench.observe();
        bench.found(Err::<[Value; 0], _>(trouble));
        assert_eq!((bench.told(), bench.said().as_str()), (1, text));
    }
}

#[tokio::test]
async fn one_object_holds_once_it_has_the_condition() {
    let text = |job: Value| Bench::with_jobs(waits_for(&migrate("Complete")), [job]).said();
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
    assert_eq!(text(odd), not_yet, "and nothing of it is told");
    let mut early = job("migrate", "Complete");
    early["metadata"]["generation"] = 2.into();
    early["status"]["observedGeneration"] = 1.into();
    let outdated =
        "NotReady NotObserved: condition Complete=True of Job shop/migrate speaks of an earlier generation";
    assert_eq!(text(early), outdated);
}

#[tokio::test]
async fn one_object_holds_once_the_expression_is_true_of_it() {
    let text = |expression: &str| {
        let resource =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "expression": expression});
        Bench::with_jobs(waits_for(&resource), [job("migrate", "Complete")]).said()
    };
    let state = "the state that the expression asks for";
    let is_true = "object.status.conditions.exists(c, c.type == 'Complete')";
    assert_eq!(text(is_true), format!("Ready InState: Job shop/migrate has {state}"));
    let is_false = "object.status.conditions.exists(c, c.type == 'Failed')";
    assert_eq!(text(is_false), format!("NotReady NotInState: Job shop/migrate does not have {state} yet"));
    let missing = "NotReady NotInState: the expression reads succeeded, which Job shop/migrate may not have yet; has() \
                   asks whether it is there";
    assert_eq!(text("object.status.succeeded > 0"), missing);
    let failed =
        "NotReady ExpressionFailed: the expression gives neither true nor false for Job shop/migrate";
    assert_eq!(text("object.status"), failed);
    let resource =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "expression": "object."});
    let invalid = Bench::new(waits_for(&resource), &["Job.batch"]).said();
    let expected = "Invalid ExpressionInvalid: the expression is refused: it cannot be read as CEL";
    assert!(invalid.starts_with(expected), "at once, whatever there is to look at: {invalid}");
}

#[tokio::test]
async fn a_selector_holds_once_all_objects_it_picks_do() {
    let resource = json!({
        "apiVersion": "batch/v1", "kind": "Job", "condition": "Complete",
        "selector": {"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]},
    });
    let text = |jobs: Vec<Value>| Bench::with_jobs(waits_for(&resource), jobs).said();
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
    assert_eq!(text(vec![old]), format!("NotReady NotFound: {objects} do not exist"), "none is not all");
    let many = (0..=MAX_SELECTED).map(|number| job(&number.to_string(), "Complete")).collect();
    let text = text(many);
    assert_eq!(text, format!("Blind TooManyObjects: {objects} are more than 500; narrow the selector"));
}

#[tokio::test]
async fn what_is_over_for_good_may_be_gone() {
    let gone = |condition: &str, generation: i64, message: &str| {
        let mut object = waits_for(&migrate(condition));
        let entry = json!({"name": "schema", "ready": true, "message": message});
        object["status"] = json!({"observedGeneration": generation, "dependencies": [entry]});
        Bench::with_jobs(object, []).said()
    };
    let told = "Job shop/migrate has condition Complete=True";
    let text = format!("Ready GoneAfterSuccess: {told}");
    assert_eq!(gone("Complete", 1, told), text, "told in the words of this very check");
    let missing = "NotReady NotFound: Job shop/migrate does not exist";
    let other = "Job shop/migrate-1 has condition Complete=True";
    assert_eq!(gone("Complete", 2, other), missing, "an edit while nobody looked put this one in its place");
    assert_eq!(gone("Complete", 1, "Job shop/other has condition Complete=True"), missing, "another check");

    let mut object = waits_for(&migrate("Complete"));
    object["status"] = json!({"observedGeneration": 2, "dependencies": [{"name": "schema", "ready": false}]});
    assert_eq!(Bench::with_jobs(object, []).said(), missing, "it never held");
}

#[test]
fn only_what_does_not_pass_is_final() {
    let check = |kind: &str, condition: &str| {
        let resource = json!({"apiVersion": kind, "kind": kind.rsplit_once('/').unwrap().1, "name": "x", "condition": condition});
        let mut resource = resource;
        resource["apiVersion"] = format!("{}/v1", kind.split_once('/').unwrap().0).into();
        let object: WaitDeployment = serde_json::from_value(waits_for(&resource)).unwrap();
        let plan = object.plan().unwrap();
        let Check::Resource(check) = &plan.dependencies[0].check else { panic!("another check") };
        is_final(check)
    };
    assert!(check("batch/Job", "Complete") && check("batch/Job", "SuccessCriteriaMet"));
    assert!(check("tekton.dev/PipelineRun", "Succeeded") && check("example.com/Backup", "completed=True"));
    assert!(!check("apps/Deployment", "Available") && !check("tekton.dev/PipelineRun", "Succeeded=False"));
}

#[tokio::test]
async fn who_waits_no_more_is_not_told() {
    let bench = Bench::with_jobs(waits_for(&migrate("Complete")), [job("migrate", "Complete")]);
    bench.told();
    bench.resources.forget(&bench.web);
    bench.answer("get", None, Answer::No);
    bench.found(Ok([job("migrate", "Complete")]));
    assert_eq!(bench.told(), 0);
}
