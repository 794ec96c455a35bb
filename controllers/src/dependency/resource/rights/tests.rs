use k8s_openapi::api::batch::v1::Job;
use tokio::time::advance;

use super::*;

fn question(account: &str) -> Question {
    Question {
        namespace: "shop".to_owned(),
        account: account.to_owned(),
        kind: KindId::of::<Job>(),
        name: None,
        verb: "list",
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_renewed_while_a_check_needs_it() {
    let (mut rights, web) = (Rights::default(), question("web"));
    let next = |rights: &mut Rights| rights.next(Instant::now(), |_| true);
    assert_eq!(rights.answer(&web, Instant::now()), None);
    let mut before = None;
    for (answer, counts) in [(Answer::Yes, YES_COUNTS), (Answer::No, NO_COUNTS), (Answer::No, NO_COUNTS)] {
        assert_eq!(next(&mut rights), Ok(web.clone()), "it is due");
        assert_eq!(next(&mut rights), Err(None), "one review at a time");
        assert_eq!(rights.answer(&web, Instant::now()), before, "until the next answer");
        assert_eq!(
            rights.answered(&web, answer, Instant::now()),
            before != Some(answer),
            "whether it has changed"
        );
        assert_eq!(rights.answer(&web, Instant::now()), Some(answer));
        advance(counts.saturating_sub(Duration::from_millis(1))).await;
        let again = Instant::now() + Duration::from_millis(1);
        assert_eq!(next(&mut rights), Err(Some(again)), "{answer:?} still counts");
        advance(Duration::from_millis(1)).await;
        before = Some(answer);
    }
}

#[tokio::test(start_paused = true)]
async fn a_yes_outlasts_a_short_failure_of_the_server() {
    let (mut rights, web) = (Rights::default(), question("web"));
    rights.answer(&web, Instant::now());
    assert!(rights.answered(&web, Answer::Yes, Instant::now()));
    advance(YES_LASTS.saturating_sub(Duration::from_millis(1))).await;
    assert!(!rights.answered(&web, Answer::Failed, Instant::now()), "no news");
    assert_eq!(rights.answer(&web, Instant::now()), Some(Answer::Yes));
    advance(Duration::from_millis(1)).await;
    assert_eq!(rights.answer(&web, Instant::now()), Some(Answer::Failed), "it may have been taken away");
    assert!(rights.answered(&web, Answer::Failed, Instant::now()), "the waiting checks have to read again");
    assert!(rights.answered(&web, Answer::No, Instant::now()), "a no counts at once");
    assert!(rights.answered(&web, Answer::Failed, Instant::now()));
    assert!(rights.answered(&web, Answer::Yes, Instant::now()));
    assert!(rights.answered(&web, Answer::No, Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn an_unneeded_answer_is_dropped_when_it_is_old() {
    let (mut rights, web) = (Rights::default(), question("web"));
    rights.answer(&web, Instant::now());
    rights.next(Instant::now(), |_| true).unwrap();
    rights.answered(&web, Answer::Yes, Instant::now());
    advance(YES_COUNTS).await;
    assert_eq!(rights.next(Instant::now(), |_| false), Err(None));
    assert!(rights.answers.is_empty());
    assert!(!rights.answered(&web, Answer::No, Instant::now()), "the question is gone");
    assert!(rights.answers.is_empty() && rights.due.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_namespace_waits_for_the_backlog_of_another() {
    let mut rights = Rights::default();
    for number in 0..100 {
        rights.answer(&question(&number.to_string()), Instant::now());
    }
    let send_next = async |rights: &mut Rights| {
        advance(SPACING).await;
        rights.next(Instant::now(), |_| true).unwrap()
    };
    send_next(&mut rights).await;
    for namespace in ["pay", "mail"] {
        let theirs = Question { namespace: namespace.to_owned(), ..question("web") };
        rights.answer(&theirs, Instant::now());
    }
    let mut namespaces = Vec::new();
    for _ in 0..4 {
        namespaces.push(send_next(&mut rights).await.namespace);
    }
    namespaces[..3].sort();
    assert_eq!(namespaces, ["mail", "pay", "shop", "shop"], "each in its turn");
}

#[tokio::test(start_paused = true)]
async fn questions_are_sent_at_a_bounded_rate() {
    let mut rights = Rights::default();
    for number in 0..100 {
        rights.answer(&question(&number.to_string()), Instant::now());
    }
    let (began, mut sent) = (Instant::now(), 0);
    while sent < 100 {
        match rights.next(Instant::now(), |_| true) {
            Ok(question) => {
                sent += 1;
                rights.answered(&question, Answer::No, Instant::now());
            }
            Err(Some(at)) => tokio::time::sleep_until(at).await,
            Err(None) => panic!("{sent} of 100 were sent"),
        }
    }
    assert_eq!(began.elapsed(), 99 * SPACING);
}
