use super::*;

#[tokio::test]
async fn controllers_that_could_not_be_restarted_are_started_by_the_next_call() {
    let empty = tempfile::tempdir().unwrap();
    let shell = Shell::new(Programs { folder: empty.path().to_owned() }, Options::default()).unwrap();
    let sleep = |name| {
        let log = shell.folder.log(name);
        Process::start(name, Path::new("/bin/sleep"), &["60".into()], empty.path(), &log).unwrap()
    };
    let (apiserver, etcd) = (sleep("kube-apiserver"), sleep("etcd"));
    let controllers = vec![sleep(CONTROLLERS)];
    let cluster = ControlPlane::of(Vec::new(), controllers, apiserver, etcd, shell);
    for _ in 0..2 {
        let error = cluster.restart_controllers().await.unwrap_err();
        assert!(matches!(error, StartError::Spawn { program: CONTROLLERS, .. }), "{error}");
    }
    cluster.stop().await;
}
