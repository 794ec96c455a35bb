//! The file of a running manager.

use super::*;

#[tokio::test(start_paused = true)]
async fn who_leaves_is_given_the_time_that_the_file_says_by_then() {
    let subject = Subject::new("");
    let (begun, mut runs) = mpsc::unbounded_channel();
    let controller = Controller::new("web").source(channel().1).reconciler(Endless(begun));
    let web = subject.manager.register(controller).unwrap();
    let running = crate::manager::lifecycle::tests::run(&subject.manager);
    web.trigger(NamespacedName::namespaced("shop", "web")).unwrap();
    runs.recv().await.unwrap();
    assert_eq!(subject.save("shutdown: {gracePeriod: 3s}"), Outcome::Applied);
    let removed_at = Instant::now();
    let error = web.remove().await.unwrap_err();
    assert!(error.to_string().contains("shutdown.gracePeriod 3s: shop/web"), "{error}");
    assert_eq!(removed_at.elapsed().as_secs(), 3);
    subject.manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
}

#[tokio::test]
async fn the_pod_is_told_of_what_was_applied_and_of_what_was_refused() {
    let said = || Answer::Reply(201, "{}".to_owned());
    let mut server = TestServer::start([said(), said(), said()]).await;
    let subject = Subject::with("", None, &server.address.to_string());
    let stop = CancellationToken::new();
    let mut writing = JoinSet::new();
    writing.spawn(subject.manager.shared.clusters.clone().run_writers(stop.clone(), Duration::ZERO));
    let files = [
        (
            "controllers: {web: {workers: 5}}\ncache: {resync: 1h}\nlogging: {level: debug}",
            "Normal",
            "ConfigApplied",
            "m.yaml: controllers.web.workers unset -> 5; at the next start: cache.resync 10h -> 1h; \
             not applied: logging.level: the program has set up its own log",
        ),
        (
            "controllers: {web: {workers: 0}}\nx: 1",
            "Warning",
            "ConfigRefused",
            "m.yaml:8:4: x: unknown key, set to 1; expected apiVersion, ",
        ),
    ];
    for (body, kind, reason, note) in files {
        subject.save(body);
        let written = server.arrival().await;
        assert_eq!(written.uri.path(), "/apis/events.k8s.io/v1/namespaces/shop/events");
        let event: serde_json::Value = serde_json::from_slice(&written.body).unwrap();
        assert_eq!(
            (&event["type"], &event["reason"], &event["action"]),
            (&kind.into(), &reason.into(), &ACTION.into())
        );
        assert_eq!(event["regarding"]["name"], "mainstay-0");
        let told = event["note"].as_str().unwrap();
        assert!(told.starts_with(note), "{told}");
    }
    stop.cancel();
    writing.join_all().await;
}

#[tokio::test]
async fn the_file_is_followed_from_the_start_of_the_manager_to_its_stop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manager.yaml");
    let write = |body: &str| std::fs::write(&file, format!("{HEAD}{body}")).unwrap();
    write("");
    let manager = at(folder.path(), HEAD);
    let (asked, mut runtimes) = mpsc::unbounded_channel();
    let code = move |_: &mut _| asked.send(Handle::current().id()).expect("the test listens");
    let controller = Controller::new("web").queue(code).source(channel().1).reconciler(Nothing);
    let _web = manager.register(controller).unwrap();
    let work = runtimes.recv().await.unwrap();
    // Between the load and the start, too.
    write("controllers: {web: {workers: 3}}");
    let mut status = manager.reload_status();
    assert_eq!(status.borrow().file.as_ref(), Some(&file));
    let running = crate::manager::lifecycle::tests::run(&manager);
    let workers = |status: &ReloadStatus| status.accepted.configuration.controller("web").workers;
    status.wait_for(|status| workers(status) == 3).await.unwrap();
    assert_eq!(runtimes.recv().await, Some(work), "code runs on no runtime but the one of the reconciles");
    write("controllers: {web: {workers: 0}}");
    status.wait_for(|status| status.refused.is_some()).await.unwrap();
    write("controllers: {web: {workers: 4}}");
    status.wait_for(|status| workers(status) == 4 && status.refused.is_none()).await.unwrap();
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
}
