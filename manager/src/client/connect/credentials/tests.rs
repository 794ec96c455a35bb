use tokio::sync::oneshot;

use super::*;

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs(seconds))
}

fn identity(renew_at: u64, expires_at: u64) -> Arc<Identity> {
    let config = kube::Config::new("https://server".parse().unwrap());
    Arc::new(Identity {
        config,
        authorisation: None,
        fetched_at: at(0),
        renew_at: at(renew_at),
        expires_at: at(expires_at),
    })
}

/// Completes a fetch with its result.
type FetchResult = oneshot::Sender<Result<Arc<Identity>, Arc<CredentialError>>>;

/// Returns the identity that a request at this time uses, if there is one, and the fetch that it starts, if
/// it does.
fn request_at(state: &mut State, seconds: u64) -> (Option<Arc<Identity>>, Option<FetchResult>) {
    let mut started = None;
    let known = state.identity_at(at(seconds), || {
        let (result, outcome) = oneshot::channel();
        started = Some(result);
        outcome.shared()
    });
    let known = match known {
        Ok(identity) => Some(identity),
        // A waiting request gets this identity.
        Err(pending) => pending.outcome.now_or_never().and_then(|outcome| outcome.ok()?.ok()),
    };
    (known, started)
}

fn with(identity: &Arc<Identity>) -> State {
    State { current: Some(CurrentIdentity::new(Arc::clone(identity))), ..State::default() }
}

fn is(known: Option<Arc<Identity>>, expected: &Arc<Identity>) -> bool {
    known.is_some_and(|known| Arc::ptr_eq(&known, expected))
}

#[test]
fn the_first_request_starts_the_fetch_and_all_requests_wait_for_it() {
    let mut state = State::default();
    let (known, first) = request_at(&mut state, 0);
    assert!(known.is_none());
    let (known, second) = request_at(&mut state, 1);
    assert!(known.is_none() && second.is_none(), "one fetch for both");
    let fetched = identity(100, 200);
    assert!(first.unwrap().send(Ok(Arc::clone(&fetched))).is_ok());
    let (known, third) = request_at(&mut state, 2);
    assert!(is(known, &fetched) && third.is_none());
}

#[test]
fn credentials_are_renewed_before_they_expire_and_used_meanwhile() {
    let (old, new) = (identity(100, 160), identity(400, 460));
    let mut state = with(&old);
    assert!(request_at(&mut state, 99).1.is_none());
    let (known, fetch) = request_at(&mut state, 100);
    assert!(is(known, &old), "the old ones are valid until 160");
    let (known, again) = request_at(&mut state, 159);
    assert!(is(known, &old) && again.is_none());
    assert!(request_at(&mut state, 160).0.is_none(), "requests wait after the expiry");
    assert!(fetch.unwrap().send(Ok(Arc::clone(&new))).is_ok());
    assert!(is(request_at(&mut state, 161).0, &new));
}

#[test]
fn a_failed_fetch_is_retried_after_an_interval_while_the_old_credentials_are_used() {
    let old = identity(100, 160);
    let mut state = with(&old);
    for (now, next) in [(100, 105), (105, 110)] {
        let (known, fetch) = request_at(&mut state, now);
        assert!(is(known, &old));
        assert!(fetch.unwrap().send(Err(Arc::new(CredentialError::new("no")))).is_ok());
        let (known, fetch) = request_at(&mut state, next - 1);
        assert!(is(known, &old) && fetch.is_none());
    }
    // A fetch counts as failed if its thread ends without a result.
    drop(request_at(&mut state, 110).1.unwrap());
    assert!(request_at(&mut state, 160).1.is_some());
}

#[test]
fn refused_credentials_are_renewed_at_once_and_at_most_once_per_interval() {
    let (old, same) = (identity(1000, 2000), identity(1000, 2000));
    let mut state = with(&old);
    state.mark_refused(&old, at(50));
    let (known, fetch) = request_at(&mut state, 50);
    assert!(known.is_none(), "the request waits for new ones");
    assert!(fetch.unwrap().send(Ok(Arc::clone(&same))).is_ok());
    assert!(is(request_at(&mut state, 51).0, &same));
    // The new ones are not affected by a 401 to a request with the old ones.
    state.mark_refused(&old, at(52));
    assert!(is(request_at(&mut state, 52).0, &same));
    // The new ones are refused too: requests use them until the next fetch may start.
    state.mark_refused(&same, at(53));
    let (known, fetch) = request_at(&mut state, 54);
    assert!(is(known, &same) && fetch.is_none());
    assert!(request_at(&mut state, 55).1.is_some());
}

#[test]
fn refused_credentials_are_used_again_if_the_fetch_fails_and_they_have_not_expired() {
    let old = identity(1000, 2000);
    let mut state = with(&old);
    state.mark_refused(&old, at(50));
    let (known, fetch) = request_at(&mut state, 50);
    assert!(known.is_none(), "the request waits for new ones");
    assert!(fetch.unwrap().send(Err(Arc::new(CredentialError::new("no")))).is_ok());
    assert!(is(request_at(&mut state, 51).0, &old));
    let (known, fetch) = request_at(&mut state, 55);
    assert!(is(known, &old) && fetch.is_some(), "no request waits for a second fetch");
    assert!(request_at(&mut state, 2000).0.is_none(), "they have expired");
}

#[test]
fn requests_wait_at_most_two_seconds_for_the_fetch_after_a_401() {
    let old = identity(1000, 2000);
    let mut state = with(&old);
    state.mark_refused(&old, at(50));
    let (_result, outcome) = oneshot::channel();
    let outcome = outcome.shared();
    let mut wait = |seconds| state.identity_at(at(seconds), || outcome.clone()).err()?.fallback;
    let (fallback, left) = wait(51).unwrap();
    assert!(is(Some(fallback), &old));
    assert_eq!(left, Duration::from_secs(2));
    assert!(wait(53).is_none());
}
