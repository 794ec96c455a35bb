use std::fs;

use super::*;

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs(seconds))
}

fn identity(due: u64, end: u64) -> Arc<Identity> {
    let config = kube::Config::new("https://server".parse().unwrap());
    Arc::new(Identity {
        config,
        authorise: Box::new(|inner| inner),
        fetched: at(0),
        due: at(due),
        end: at(end),
    })
}

/// What a fetch ends with, and where it ends.
type Ending = oneshot::Sender<Result<Arc<Identity>, Arc<CredentialError>>>;

/// Asks a state at a moment, and returns which identity is used, if one is, and the fetch that began, if one did.
fn ask(state: &mut State, seconds: u64) -> (Option<Arc<Identity>>, Option<Ending>) {
    let mut began = None;
    let known = state.at(at(seconds), || {
        let (ending, outcome) = oneshot::channel();
        began = Some(ending);
        outcome.shared()
    });
    let known = match known {
        Ok(identity) => Some(identity),
        // What a request that waits would get now.
        Err(awaited) => awaited.outcome.now_or_never().and_then(|ended| ended.ok()?.ok()),
    };
    (known, began)
}

fn with(identity: &Arc<Identity>) -> State {
    State { current: Some(Current::new(Arc::clone(identity))), ..State::default() }
}

fn is(known: Option<Arc<Identity>>, expected: &Arc<Identity>) -> bool {
    known.is_some_and(|known| Arc::ptr_eq(&known, expected))
}

#[test]
fn the_first_request_begins_the_fetch_and_all_wait_for_it() {
    let mut state = State::default();
    let (known, first) = ask(&mut state, 0);
    assert!(known.is_none());
    let (known, second) = ask(&mut state, 1);
    assert!(known.is_none() && second.is_none(), "one fetch for both");
    let fetched = identity(100, 200);
    assert!(first.unwrap().send(Ok(Arc::clone(&fetched))).is_ok());
    let (known, third) = ask(&mut state, 2);
    assert!(is(known, &fetched) && third.is_none());
}

#[test]
fn credentials_are_fetched_before_they_end_and_used_meanwhile() {
    let (old, new) = (identity(100, 160), identity(400, 460));
    let mut state = with(&old);
    assert!(ask(&mut state, 99).1.is_none());
    let (known, fetch) = ask(&mut state, 100);
    assert!(is(known, &old), "the old ones are good until 160");
    let (known, again) = ask(&mut state, 159);
    assert!(is(known, &old) && again.is_none());
    assert!(ask(&mut state, 160).0.is_none(), "from here on requests wait");
    assert!(fetch.unwrap().send(Ok(Arc::clone(&new))).is_ok());
    assert!(is(ask(&mut state, 161).0, &new));
}

#[test]
fn a_failed_fetch_is_tried_again_after_a_pause_and_costs_nothing_before_the_end() {
    let old = identity(100, 160);
    let mut state = with(&old);
    for (now, next) in [(100, 105), (105, 110)] {
        let (known, fetch) = ask(&mut state, now);
        assert!(is(known, &old));
        assert!(fetch.unwrap().send(Err(Arc::new(CredentialError::new("no")))).is_ok());
        let (known, fetch) = ask(&mut state, next - 1);
        assert!(is(known, &old) && fetch.is_none());
    }
    // One whose thread was lost has failed as well.
    drop(ask(&mut state, 110).1.unwrap());
    assert!(ask(&mut state, 160).1.is_some());
}

#[test]
fn refused_credentials_are_fetched_at_once_and_no_more_often_than_allowed() {
    let (old, same) = (identity(1000, 2000), identity(1000, 2000));
    let mut state = with(&old);
    state.refused(&old, at(50));
    let (known, fetch) = ask(&mut state, 50);
    assert!(known.is_none(), "it waits for new ones");
    assert!(fetch.unwrap().send(Ok(Arc::clone(&same))).is_ok());
    assert!(is(ask(&mut state, 51).0, &same));
    // An answer to a request of before says nothing about the new ones.
    state.refused(&old, at(52));
    assert!(is(ask(&mut state, 52).0, &same));
    // The new ones are refused too: until the pause is over the server is asked with them, and says so again.
    state.refused(&same, at(53));
    let (known, fetch) = ask(&mut state, 54);
    assert!(is(known, &same) && fetch.is_none());
    assert!(ask(&mut state, 55).1.is_some());
}

#[test]
fn refused_credentials_are_used_again_if_the_fetch_fails_and_they_have_not_ended() {
    let old = identity(1000, 2000);
    let mut state = with(&old);
    state.refused(&old, at(50));
    let (known, fetch) = ask(&mut state, 50);
    assert!(known.is_none(), "it waits for new ones");
    assert!(fetch.unwrap().send(Err(Arc::new(CredentialError::new("no")))).is_ok());
    assert!(is(ask(&mut state, 51).0, &old));
    let (known, fetch) = ask(&mut state, 55);
    assert!(is(known, &old) && fetch.is_some(), "no request waits for another attempt");
    assert!(ask(&mut state, 2000).0.is_none(), "they have ended");
}

#[test]
fn requests_wait_two_seconds_for_the_fetch_that_a_refusal_has_caused() {
    let old = identity(1000, 2000);
    let mut state = with(&old);
    state.refused(&old, at(50));
    let (_ending, outcome) = oneshot::channel();
    let outcome = outcome.shared();
    let mut wait = |seconds| state.at(at(seconds), || outcome.clone()).err()?.instead;
    let (instead, left) = wait(51).unwrap();
    assert!(is(Some(instead), &old));
    assert_eq!(left, Duration::from_secs(2));
    assert!(wait(53).is_none());
}

#[test]
fn they_are_renewed_a_minute_ahead_or_in_the_last_quarter_of_a_short_life() {
    assert_eq!(renewal(at(10), Duration::from_hours(1)), (at(10 + 3540), at(10 + 3600)));
    assert_eq!(renewal(at(10), Duration::from_mins(1)), (at(10 + 45), at(10 + 60)));
    assert_eq!(renewal(at(10), Duration::ZERO), (at(10), at(10)));
}

#[test]
fn credentials_of_files_and_plugins_are_renewed() {
    let of = |edit: &dyn Fn(&mut AuthInfo)| {
        let mut auth = AuthInfo::default();
        edit(&mut auth);
        match Kind::of(&auth) {
            Kind::Fixed => "fixed",
            Kind::Files => "files",
            Kind::Plugin(_) => "plug-in",
        }
    };
    assert_eq!(of(&|_| ()), "fixed");
    assert_eq!(of(&|auth| auth.token_file = Some("t".to_owned())), "files");
    assert_eq!(of(&|auth| auth.client_certificate = Some("c".to_owned())), "files");
    assert_eq!(of(&|auth| auth.exec = Some(ExecConfig::default())), "plug-in");
    let inline = |auth: &mut AuthInfo| {
        auth.token = Some("t".to_owned().into());
        auth.exec = Some(ExecConfig::default());
    };
    assert_eq!(of(&inline), "fixed", "kube uses neither file nor plug-in beside a token");
    let provider = |auth: &mut AuthInfo| {
        auth.auth_provider = Some(kube::config::AuthProviderConfig::default());
        auth.client_certificate = Some("c".to_owned());
    };
    assert_eq!(of(&provider), "fixed", "its refresh token may be good for one use");
}

#[test]
fn a_token_in_a_file_is_read_without_the_space_around_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let named = || AuthInfo { token_file: Some(path.display().to_string()), ..AuthInfo::default() };
    fs::write(&path, "abc\n").unwrap();
    let mut auth = named();
    read_files(&mut auth).unwrap();
    assert_eq!(secret(&auth), serde_json::json!("abc"));
    fs::write(&path, "\n").unwrap();
    let error = read_files(&mut named()).unwrap_err();
    assert_eq!(error.to_string(), format!("{} holds no token", path.display()));
    fs::remove_file(&path).unwrap();
    let error = read_files(&mut named()).unwrap_err();
    assert_eq!(error.to_string(), format!("{} cannot be read", path.display()));
}

fn secret(auth: &AuthInfo) -> serde_json::Value {
    serde_json::to_value(auth).unwrap()["token"].clone()
}
