use super::*;
use http::{Method, StatusCode};

const fn passing() -> impl Fn() -> Result<(), String> + Send + Sync {
    || Ok(())
}

fn broken() -> Result<(), String> {
    Err("disk on fire".to_owned())
}

fn two_healthy() -> Checks {
    let checks = Checks::new();
    checks.add(Group::Ready, "cache-Pod", passing());
    checks.add(Group::Ready, "api", passing());
    checks
}

#[track_caller]
fn check(checks: &Checks, target: &str, status: u16, body: &str) {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let answer = checks.answer(path, query);
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (status, body), "{target}");
}

#[test]
fn the_answer_is_ok_if_all_checks_pass() {
    let checks = two_healthy();
    check(&checks, "/readyz", 200, "ok");
    check(&checks, "/readyz/", 200, "ok");
    check(&checks, "//readyz//", 200, "ok");
}

#[test]
fn verbose_with_any_value_lists_checks_by_name() {
    let checks = two_healthy();
    let lines = "[+]api ok\n[+]cache-Pod ok\nhealthz check passed\n";
    check(&checks, "/readyz?verbose", 200, lines);
    check(&checks, "/readyz?verbose=1", 200, lines);
    check(&checks, "/readyz/?verbose=false", 200, lines);
}

#[test]
fn a_failing_check_lists_all_checks_and_withholds_its_reason() {
    let checks = two_healthy();
    checks.add(Group::Ready, "b-disk", broken);
    let lines = "[+]api ok\n[-]b-disk failed: reason withheld\n[+]cache-Pod ok\nhealthz check failed\n";
    check(&checks, "/readyz", 500, lines);
    check(&checks, "/readyz?verbose", 500, lines);
    assert_eq!(checks.failures(Group::Ready), [("b-disk".to_owned(), "disk on fire".to_owned())]);
}

#[test]
fn excluded_checks_do_not_run() {
    let checks = two_healthy();
    checks.add(Group::Ready, "b-disk", broken);
    checks.add(Group::Ready, "net", broken);
    check(&checks, "/readyz?exclude=b-disk&exclude=net", 200, "ok");
    check(
        &checks,
        "/readyz?verbose&exclude=b%2Ddisk&exclude=net",
        200,
        "[+]api ok\n[+]b-disk excluded: ok\n[+]cache-Pod ok\n[+]net excluded: ok\nhealthz check passed\n",
    );
}

#[test]
fn excluding_an_unknown_check_warns_only_in_verbose_answers() {
    let checks = two_healthy();
    check(&checks, "/readyz?exclude=none", 200, "ok");
    check(
        &checks,
        "/readyz?verbose&exclude=none&exclude=else",
        200,
        "[+]api ok\n[+]cache-Pod ok\n\
         warn: some health checks cannot be excluded: no matches for \"else\",\"none\"\n\
         healthz check passed\n",
    );
}

#[test]
fn the_path_of_a_single_check_shows_its_reason() {
    let checks = two_healthy();
    checks.add(Group::Ready, "b-disk", broken);
    check(&checks, "/readyz/api", 200, "ok");
    check(&checks, "/readyz/api/", 200, "ok");
    check(&checks, "/readyz/b-disk", 500, "internal server error: disk on fire\n");
    check(&checks, "/readyz/none", 404, "404 page not found\n");
    check(&checks, "/readyz/ping", 404, "404 page not found\n");
}

#[test]
fn an_endpoint_exists_from_its_first_check_on() {
    let checks = two_healthy();
    check(&checks, "/livez", 404, "404 page not found\n");
    check(&checks, "/", 404, "404 page not found\n");
    checks.add(Group::Live, "work", passing());
    check(&checks, "/livez", 200, "ok");
    assert!(checks.remove(Group::Live, "work"));
    assert!(!checks.remove(Group::Live, "work"), "already removed");
    check(&checks, "/livez", 200, "ok");
    check(&checks, "/livez?verbose", 200, "[+]ping ok\nhealthz check passed\n");
    check(&checks, "/livez/ping", 200, "ok");
    let beside = || vec![Finding { name: "rights".to_owned(), counts: false, outcome: Err("no".to_owned()) }];
    checks.survey(Group::Live, "rights", beside);
    check(&checks, "/livez?verbose", 200, "[+]ping ok\nhealthz check passed\n");
    check(&checks, "/livez/ping", 200, "ok");
    check(&checks, "/livez/rights", 500, "internal server error: no\n");
}

#[test]
fn groups_do_not_share_checks() {
    let checks = two_healthy();
    checks.add(Group::Health, "b-disk", broken);
    check(&checks, "/readyz", 200, "ok");
    check(&checks, "/healthz", 500, "[-]b-disk failed: reason withheld\nhealthz check failed\n");
}

#[test]
fn a_panicking_check_fails() {
    let checks = Checks::new();
    checks.add(Group::Ready, "bad", || panic!("no"));
    check(&checks, "/readyz/bad", 500, "internal server error: the check panicked\n");
}

#[test]
fn responses_have_the_headers_of_controller_runtime_and_other_methods_are_refused() {
    let checks = two_healthy();
    let respond = |method: Method| {
        checks.respond(&http::Request::builder().method(method).uri("/readyz").body(()).unwrap())
    };
    let response = respond(Method::GET);
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert_eq!(respond(Method::HEAD).status(), StatusCode::OK);
    let refused = respond(Method::POST);
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(refused.headers()["allow"], "GET, HEAD");
}

fn finding(name: &str, counts: bool, outcome: Result<(), String>) -> Finding {
    Finding { name: name.to_owned(), counts, outcome }
}

#[test]
fn each_finding_of_a_survey_is_a_check() {
    let checks = Checks::new();
    checks.survey(Group::Ready, "caches", || {
        vec![finding("cache-Pod", true, Ok(())), finding("cache-Node", true, broken())]
    });
    let lines = "[-]cache-Node failed: reason withheld\n[+]cache-Pod ok\nhealthz check failed\n";
    check(&checks, "/readyz", 500, lines);
    check(&checks, "/readyz/cache-Pod", 200, "ok");
    check(&checks, "/readyz/cache-Node", 500, "internal server error: disk on fire\n");
    check(&checks, "/readyz/caches", 404, "404 page not found\n");
    assert_eq!(checks.failures(Group::Ready), [("cache-Node".to_owned(), "disk on fire".to_owned())]);
    assert!(checks.remove(Group::Ready, "caches"));
    check(&checks, "/readyz", 200, "ok");
}

#[test]
fn a_finding_that_does_not_count_is_reported_only_at_its_own_path() {
    let checks = Checks::new();
    checks.survey(Group::Ready, "caches", || {
        vec![
            finding("cache-Gadget", false, broken()),
            // Two stores of one kind, of which one does not count.
            finding("cache-Pod", true, Ok(())),
            finding("cache-Pod", false, broken()),
        ]
    });
    check(&checks, "/readyz", 200, "ok");
    check(&checks, "/readyz?verbose", 200, "[+]cache-Pod ok\nhealthz check passed\n");
    for name in ["cache-Gadget", "cache-Pod"] {
        check(&checks, &format!("/readyz/{name}"), 500, "internal server error: disk on fire\n");
    }
    assert_eq!(checks.failures(Group::Ready), []);
}

#[test]
fn a_survey_that_panics_is_a_failed_check_with_its_name() {
    let checks = Checks::new();
    checks.survey(Group::Ready, "caches", || panic!("no"));
    check(&checks, "/readyz", 500, "[-]caches failed: reason withheld\nhealthz check failed\n");
    check(&checks, "/readyz/caches", 500, "internal server error: the check panicked\n");
}
