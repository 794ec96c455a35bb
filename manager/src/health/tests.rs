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
fn all_passing_is_a_bare_ok() {
    let checks = two_healthy();
    check(&checks, "/readyz", 200, "ok");
    check(&checks, "/readyz/", 200, "ok");
    check(&checks, "//readyz//", 200, "ok");
}

#[test]
fn verbose_lists_checks_by_name_whatever_its_value() {
    let checks = two_healthy();
    let lines = "[+]api ok\n[+]cache-Pod ok\nhealthz check passed\n";
    check(&checks, "/readyz?verbose", 200, lines);
    check(&checks, "/readyz?verbose=1", 200, lines);
    check(&checks, "/readyz/?verbose=false", 200, lines);
}

#[test]
fn a_failing_check_is_always_verbose_and_withholds_its_reason() {
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
fn excluding_an_unknown_check_warns_only_where_lines_are_written() {
    let checks = two_healthy();
    check(&checks, "/readyz?exclude=nobody", 200, "ok");
    check(
        &checks,
        "/readyz?verbose&exclude=nobody&exclude=else",
        200,
        "[+]api ok\n[+]cache-Pod ok\n\
         warn: some health checks cannot be excluded: no matches for \"else\",\"nobody\"\n\
         healthz check passed\n",
    );
}

#[test]
fn one_check_is_asked_by_name_and_tells_its_reason() {
    let checks = two_healthy();
    checks.add(Group::Ready, "b-disk", broken);
    check(&checks, "/readyz/api", 200, "ok");
    check(&checks, "/readyz/api/", 200, "ok");
    check(&checks, "/readyz/b-disk", 500, "internal server error: disk on fire\n");
    check(&checks, "/readyz/nobody", 404, "404 page not found\n");
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
    assert!(!checks.remove(Group::Live, "work"), "it is gone");
    check(&checks, "/livez", 200, "ok");
    check(&checks, "/livez?verbose", 200, "[+]ping ok\nhealthz check passed\n");
    check(&checks, "/livez/ping", 200, "ok");
}

#[test]
fn groups_have_checks_of_their_own() {
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
fn responses_carry_the_headers_of_the_original_and_refuse_other_methods() {
    let checks = two_healthy();
    let ask = |method: Method| {
        checks.respond(&http::Request::builder().method(method).uri("/readyz").body(()).unwrap())
    };
    let response = ask(Method::GET);
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert_eq!(ask(Method::HEAD).status(), StatusCode::OK);
    let refused = ask(Method::POST);
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(refused.headers()["allow"], "GET, HEAD");
}

fn finding(name: &str, counts: bool, outcome: Result<(), String>) -> Finding {
    Finding { name: name.to_owned(), counts, outcome }
}

#[test]
fn findings_of_a_survey_are_checks_of_their_own() {
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
fn what_does_not_count_answers_to_its_own_name_only() {
    let checks = Checks::new();
    checks.survey(Group::Ready, "caches", || {
        vec![
            finding("cache-Gadget", false, broken()),
            // Two stores of one kind, one of them never there.
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
fn a_survey_that_panics_fails_by_its_own_name() {
    let checks = Checks::new();
    checks.survey(Group::Ready, "caches", || panic!("no"));
    check(&checks, "/readyz", 500, "[-]caches failed: reason withheld\nhealthz check failed\n");
    check(&checks, "/readyz/caches", 500, "internal server error: the check panicked\n");
}
