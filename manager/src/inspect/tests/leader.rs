//! The leader, and the history of the Lease.

use super::*;

use serde_json::json;

use crate::election::{Ending, Leadership, LeaseEvent};

/// A replica that takes part in a leader election.
struct Candidate {
    leader: Leader,
    leadership: watch::Sender<Leadership>,
    history: LeaseHistory,
}

impl Candidate {
    fn new() -> Self {
        let (leadership, seen) = watch::channel(Leadership::Standby { holder: None });
        let history = LeaseHistory::default();
        let election = Election {
            namespace: "system".to_owned(),
            lease_name: "mainstay".to_owned(),
            leadership: seen,
            history: history.clone(),
        };
        let (election, term, fence) = (Some(election), Term::new(), Fence::closed());
        let (identity, namespace) = ("me".to_owned(), Some("system".to_owned()));
        Self { leader: Leader { identity, namespace, election, term, fence }, leadership, history }
    }

    fn page(&self) -> Value {
        let mut page = serde_json::to_value(self.leader.page()).unwrap();
        let lease = page.as_object_mut().unwrap().remove("lease");
        assert_eq!(lease, Some(json!({"namespace": "system", "name": "mainstay"})));
        page
    }
}

#[tokio::test(start_paused = true)]
async fn the_leader_page_has_the_holder_and_the_state_of_the_fence() {
    let candidate = Candidate::new();
    let page = |leading: bool, holder: Value, transitions: Value, lost: Value| {
        json!({"identity": "me", "leading": leading, "holder": holder, "transitions": transitions,
            "lost": lost, "fenceOpen": leading, "fenceSeconds": null, "holderSeconds": null, "history": []})
    };
    assert_eq!(candidate.page(), page(false, Value::Null, Value::Null, Value::Null));
    candidate.leadership.send_replace(Leadership::Standby { holder: Some("you".into()) });
    assert_eq!(candidate.page(), page(false, "you".into(), Value::Null, Value::Null));
    candidate.leadership.send_replace(Leadership::Leading { transitions: 4 });
    candidate.leader.fence.extend(crate::key::BootInstant::now() + Duration::from_hours(1));
    let mut leading = candidate.page();
    let left = leading["fenceSeconds"].take().as_f64().unwrap();
    assert!((3_500.0..=3_600.0).contains(&left), "{left}");
    assert_eq!(leading, page(true, "me".into(), 4.into(), Value::Null));
    candidate.leadership.send_replace(Leadership::Lost(Ending::Taken("you".into())));
    candidate.leader.fence.close();
    assert_eq!(candidate.page(), page(false, "you".into(), Value::Null, "taken".into()));
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_lease_are_listed_newest_first() {
    fn change(ago: f64, event: &str, identity: &Value, reason: &Value) -> Value {
        json!({"secondsAgo": ago, "event": event, "identity": identity, "reason": reason})
    }

    let candidate = Candidate::new();
    let holder = |name: &str| LeaseEvent::NewLeader { holder: Some(name.into()) };
    let seconds = Duration::from_secs;
    candidate.history.add(&holder("you"));
    advance(seconds(60)).await;
    candidate.history.add(&LeaseEvent::NewLeader { holder: None });
    candidate.history.add(&LeaseEvent::BecameLeader { identity: "me".into() });
    advance(seconds(10)).await;
    candidate.history.add(&holder("me"));
    candidate.leadership.send_replace(Leadership::Leading { transitions: 1 });
    assert_eq!(candidate.page()["holderSeconds"], json!(10.0));
    advance(seconds(5)).await;
    candidate.history.add(&LeaseEvent::StoppedLeading { identity: "me".into(), ending: Ending::Expired });
    candidate.leadership.send_replace(Leadership::Lost(Ending::Expired));
    let page = candidate.page();
    assert_eq!(page["holderSeconds"], Value::Null, "the holder is unknown");
    let expected = json!([
        change(0.0, "stoppedLeading", &"me".into(), &"expired".into()),
        change(5.0, "newHolder", &"me".into(), &Value::Null),
        change(15.0, "becameLeader", &"me".into(), &Value::Null),
        change(15.0, "newHolder", &Value::Null, &Value::Null),
        change(75.0, "newHolder", &"you".into(), &Value::Null),
    ]);
    assert_eq!(page["history"], expected);
    for _ in 0..100 {
        candidate.history.add(&holder("you"));
    }
    assert_eq!(candidate.page()["history"].as_array().map(Vec::len), Some(32), "the history is bounded");
}

#[tokio::test]
async fn every_answer_of_a_standby_has_a_header_with_the_leader_and_its_pod() {
    let candidate = Candidate::new();
    let pages = Inspect { leader: candidate.leader.clone(), ..inspect(&Directory::default()) }.pages();
    let header = |path: &str| -> Value {
        let header = answer(&pages, request("GET", "localhost", path)).headers_mut().remove(STANDBY);
        header.map_or(Value::Null, |header| serde_json::from_slice(header.as_bytes()).unwrap())
    };
    let standby = |leader: Value, pod: Value| {
        json!({"identity": "me", "leader": leader, "pod": pod, "namespace": "system", "forwarded": false,
            "trouble": null})
    };
    assert_eq!(header("/debug/caches"), standby(Value::Null, Value::Null));
    for (holder, pod) in [
        ("web-0_b", "web-0".into()),
        ("my_host_b", Value::Null),
        ("web-0", Value::Null),
        ("_b", Value::Null),
        (&*crate::election::unique_identity(Some("web-0.long")), "web-0.long".into()),
        (&*crate::election::unique_identity(None), Value::Null),
        ("; reboot #_b", Value::Null),
        ("w\u{1b}[2J\n\u{e9}_b", Value::Null),
    ] {
        candidate.leadership.send_replace(Leadership::Standby { holder: Some(holder.into()) });
        for path in
            ["/debug/controllers", "/debug/leader", "/debug/controllers/nobody/queue", "/debug/nowhere"]
        {
            assert_eq!(header(path), standby(holder.into(), pod.clone()), "{path}");
        }
    }
    candidate.leadership.send_replace(Leadership::Lost(Ending::Expired));
    assert_eq!(header("/debug/caches"), standby(Value::Null, Value::Null));
    candidate.leadership.send_replace(Leadership::Leading { transitions: 4 });
    assert_eq!(header("/debug/caches"), Value::Null, "a leader sets no header");
    let unelected = inspect(&Directory::default()).pages();
    let alone = answer(&unelected, request("GET", "localhost", "/debug/caches"));
    assert!(!alone.headers().contains_key(STANDBY), "a manager without an election sets no header");
}

#[tokio::test]
async fn without_an_election_the_leader_page_has_no_lease() {
    let expected = concat!(
        r#"{"identity":"me","lease":null,"leading":true,"holder":null,"transitions":null,"lost":null,"#,
        r#""fenceOpen":true,"fenceSeconds":null,"holderSeconds":null,"history":[]}"#,
        "\n",
    );
    assert_eq!(get(&inspect(&Directory::default()).pages(), "/debug/leader"), (200, expected.to_owned()));
}
