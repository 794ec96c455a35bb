use std::convert::Infallible;

use kube::client::Body;

use super::*;
use crate::client::Recorder;
use crate::client::tests::server::logged;
use crate::metrics::Registry;

/// Warns, and ends like this.
struct Ends(Result<(), BoxError>);

impl Runnable for Ends {
    fn name(&self) -> &'static str {
        "webhooks"
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::Servers
    }

    fn declares_readiness(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, _cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            tracing::warn!("about to end");
            self.0
        })
    }
}

fn context(term: u64, entry: Option<ReadinessEntry>) -> RunContext {
    let silent = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    });
    let client = kube::Client::new(silent, "default");
    let (events, _writer) = Recorder::new("test", "me", client.clone(), &Registry::new());
    let run_environment = RunEnvironment::new(client, events, CancellationToken::new());
    let leading = watch::Sender::new(true).subscribe();
    RunContext { stop: CancellationToken::new(), leading, run_environment, term, entry }
}

#[tokio::test]
async fn a_runnable_writes_in_the_term_it_was_started_in() {
    assert_eq!(context(7, None).context().term(), 7, "what an earlier term applied is applied again");
}

#[tokio::test]
async fn only_a_good_end_makes_up_for_not_having_been_ready() {
    for (end, shut) in [(Ok(()), &[][..]), (Err("out of paper".into()), &["webhooks"])] {
        let readiness_list = ReadinessList::default();
        let pending = PendingRunnable::new("webhooks", Ends(end), &readiness_list);
        assert_eq!(readiness_list.shut(RunnableGroup::Servers), ["webhooks"], "from when it is added");
        let cx = context(1, pending.entry.clone());
        let ended_well = pending.run(cx).await.is_ok();
        assert_eq!(readiness_list.shut(RunnableGroup::Servers), shut, "ended well: {ended_well}");
    }
}

#[tokio::test]
async fn what_a_runnable_logs_names_it() {
    let log = logged(async {
        let pending = PendingRunnable::new("webhooks", Ends(Ok(())), &ReadinessList::default());
        let cx = context(1, None);
        pending.run(cx).await.unwrap();
    });
    assert_eq!(log.await, [r#"WARN runnable{runnable="webhooks"}: about to end"#]);
}
