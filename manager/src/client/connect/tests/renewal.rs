//! Credentials are renewed while requests use them.

use super::*;

/// Connections that fetch credentials after each refusal, without an interval, and wait for the fetch.
fn eager(config: kube::Config) -> Connections {
    let credentials =
        Credentials::new(config.clone(), FetchLimits { interval: Duration::ZERO, max_wait: LONG });
    Connections { credentials, ..Connections::new(config, &Registry::new()).unwrap() }
}

/// A plug-in that counts its runs in a file and returns the count as its token.
fn counting_plugin(folder: &std::path::Path) -> kube::config::ExecConfig {
    let count = folder.join("count").display().to_string();
    let script = format!(
        r#"echo >> {count}
        token=$(($(wc -l < {count})))
        echo '{{"apiVersion": "client.authentication.k8s.io/v1", "status": {{"token": "'$token'"}}}}'"#
    );
    kube::config::ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1".to_owned()),
        command: Some("/bin/sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script]),
        ..kube::config::ExecConfig::default()
    }
}

#[tokio::test]
async fn a_plugin_runs_once_for_all_roles_and_again_after_a_401() {
    let answers = [200, 200, 401, 200].map(|code| Answer::Reply(code, "{}".to_owned()));
    let mut server = TestServer::start(answers).await;
    let folder = tempfile::tempdir().unwrap();
    let mut config = kube::Config::new(format!("http://{}", server.address).parse().unwrap());
    config.auth_info.exec = Some(counting_plugin(folder.path()));
    let connections = eager(config);
    let watches = connections.client(Role::Watches).unwrap();
    let writes = connections.client(Role::Writes(Fence::open())).unwrap();
    let mut connection = 0;
    for (client, token) in [(&watches, "1"), (&writes, "1"), (&watches, "1"), (&watches, "2")] {
        client.send(get("/version")).await.unwrap().into_body().collect_bytes().await.unwrap();
        let arrived = server.arrival().await;
        assert_eq!(arrived.headers[header::AUTHORIZATION], format!("Bearer {token}"));
        connection = arrived.connection;
    }
    assert_eq!(connection, 1, "a new token does not need a new connection");
    assert!(server.nothing_arrived(), "the refused request is not repeated");
}

#[tokio::test]
async fn after_a_401_files_are_read_again_and_a_new_certificate_gets_new_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write_certificate = || {
        let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        std::fs::write(path("crt"), made.cert.pem()).unwrap();
        std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    };
    for new_certificate in [false, true] {
        let answers = [200, 401, 200].map(|code| Answer::Reply(code, "{}".to_owned()));
        let mut server = TestServer::start(answers).await;
        write_certificate();
        std::fs::write(path("token"), "one\n").unwrap();
        let mut config = kube::Config::new(format!("http://{}", server.address).parse().unwrap());
        config.auth_info.token_file = Some(path("token"));
        config.auth_info.client_certificate = Some(path("crt"));
        config.auth_info.client_key = Some(path("key"));
        let client = eager(config).client(Role::Watches).unwrap();
        let mut request = async || {
            client.send(get("/version")).await.unwrap().into_body().collect_bytes().await.unwrap();
            let arrived = server.arrival().await;
            (arrived.headers[header::AUTHORIZATION].to_str().unwrap().to_owned(), arrived.connection)
        };
        assert_eq!(request().await, ("Bearer one".to_owned(), 1));
        std::fs::write(path("token"), "two\n").unwrap();
        if new_certificate {
            write_certificate();
        }
        assert_eq!(request().await, ("Bearer one".to_owned(), 1), "the old token is not refused yet");
        assert_eq!(request().await, ("Bearer two".to_owned(), if new_certificate { 2 } else { 1 }));
    }
}

#[tokio::test]
async fn a_certificate_whose_key_is_not_written_yet_leaves_the_last_pair_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = || rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let answers = [401, 200].map(|code| Answer::Reply(code, "{}".to_owned()));
    let mut server = TestServer::start(answers).await;
    let old = made();
    std::fs::write(path("crt"), old.cert.pem()).unwrap();
    std::fs::write(path("key"), old.signing_key.serialize_pem()).unwrap();
    let mut config = kube::Config::new(format!("http://{}", server.address).parse().unwrap());
    config.auth_info.client_certificate = Some(path("crt"));
    config.auth_info.client_key = Some(path("key"));
    let client = eager(config).client(Role::Watches).unwrap();
    for _ in 0..2 {
        client.send(get("/version")).await.unwrap().into_body().collect_bytes().await.unwrap();
        assert_eq!(server.arrival().await.connection, 1);
        std::fs::write(path("crt"), made().cert.pem()).unwrap();
    }
}

#[tokio::test]
async fn unusable_credential_files_fail_before_the_first_request() {
    let mut config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    config.auth_info.token_file = Some("/nowhere/token".to_owned());
    let error = Connections::new(config, &Registry::new()).unwrap().client(Role::Watches).err().unwrap();
    let text = crate::key::Chain(&error).to_string();
    assert!(text.contains("/nowhere/token cannot be read: No such file"), "{text}");
}
