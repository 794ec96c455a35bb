use std::io::Read as _;

use kube::config::ExecAuthCluster;

use super::*;
use crate::util::os::open_without_waiting;

const API_VERSION: &str = "client.authentication.k8s.io/v1";

/// A plug-in that is this shell script.
fn plugin(script: &str) -> ExecConfig {
    ExecConfig {
        api_version: Some(API_VERSION.to_owned()),
        command: Some("/bin/sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script.to_owned()]),
        ..ExecConfig::default()
    }
}

/// A plug-in that writes an `ExecCredential` with this status.
fn writes(status: &serde_json::Value) -> ExecConfig {
    let answer = serde_json::json!({"kind": "ExecCredential", "apiVersion": API_VERSION, "status": status});
    plugin(&format!("echo '{answer}'"))
}

fn outcome(exec: &ExecConfig) -> Result<(serde_json::Value, Option<Timestamp>), String> {
    let mut auth = AuthInfo::default();
    let until = run(exec, &mut auth, LIMIT).map_err(|error| error.to_string())?;
    Ok((serde_json::to_value(auth).unwrap(), until))
}

#[test]
fn token_certificate_and_expiry_are_read_from_the_output() {
    let (auth, until) = outcome(&writes(&serde_json::json!({
        "token": "t", "clientCertificateData": "cert", "clientKeyData": "key",
        "expirationTimestamp": "2030-01-01T00:00:00Z",
    })))
    .unwrap();
    let expected = serde_json::json!({
        "token": "t", "client-certificate-data": "Y2VydA==", "client-key-data": "a2V5",
    });
    assert_eq!((auth, until), (expected, Some("2030-01-01T00:00:00Z".parse().unwrap())));
    let (auth, until) =
        outcome(&plugin(&format!("printf 'apiVersion: {API_VERSION}\\nstatus: {{token: y}}'"))).unwrap();
    assert_eq!((&auth["token"], until), (&serde_json::json!("y"), None), "YAML is read too");
}

#[test]
fn a_plugin_gets_its_exec_info_and_its_variables() {
    let mut exec = plugin(&format!(
        r#"token="$REGION $(echo $KUBERNETES_EXEC_INFO | sed 's/"/@/g')"
        echo "{{\"apiVersion\": \"{API_VERSION}\", \"status\": {{\"token\": \"$token\"}}}}""#
    ));
    let variable =
        [("name", "REGION"), ("value", "north")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    exec.env = Some(vec![variable.into()]);
    exec.interactive_mode = Some(ExecInteractiveMode::Never);
    exec.cluster =
        Some(ExecAuthCluster { server: Some("https://s".to_owned()), ..ExecAuthCluster::default() });
    let (auth, _) = outcome(&exec).unwrap();
    let (region, info) = auth["token"].as_str().unwrap().split_once(' ').unwrap();
    let expected = json!({
        "kind": "ExecCredential",
        "apiVersion": API_VERSION,
        "spec": {"interactive": false, "cluster": {"server": "https://s"}},
    });
    let info: serde_json::Value = serde_json::from_str(&info.replace('@', "\"")).unwrap();
    assert_eq!((region, info), ("north", expected));
}

#[test]
fn a_plugin_that_takes_too_long_is_killed_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alive");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut alive = open_without_waiting(&path).unwrap();
    let mut exec = plugin(&format!("exec 3>{}; exec sleep 60", path.display()));
    exec.interactive_mode = Some(ExecInteractiveMode::Never);
    let error = run(&exec, &mut AuthInfo::default(), Duration::from_millis(500)).unwrap_err();
    assert_eq!(error.to_string(), "credential plug-in /bin/sh was killed: it took longer than 500ms");
    let end = async {
        // An error means that a writer has the pipe open.
        while alive.read(&mut [0]).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let end = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), end).await });
    end.expect("it still runs");
}

#[test]
fn an_error_about_unusable_output_does_not_quote_it() {
    let refused = |exec: &ExecConfig| outcome(exec).unwrap_err();
    let begin = "credential plug-in /bin/sh ";
    let cases = [
        (plugin("echo secret; exit 3"), "failed, exit status: 3; see its messages on standard error"),
        (plugin("echo secret"), "wrote no ExecCredential with a status"),
        (writes(&serde_json::json!({})), "wrote neither a token nor a certificate"),
        (
            writes(&serde_json::json!({"clientCertificateData": "secret"})),
            "wrote a certificate without its key, or a key without its certificate",
        ),
        (
            plugin(r#"echo '{"apiVersion": "v9", "status": {"token": "secret"}}'"#),
            "wrote apiVersion \"v9\"; the kubeconfig expects client.authentication.k8s.io/v1",
        ),
    ];
    for (exec, expected) in cases {
        assert_eq!(refused(&exec), format!("{begin}{expected}"));
    }
    let absent = ExecConfig {
        command: Some("/nowhere/login".to_owned()),
        install_hint: Some("install login".to_owned()),
        ..ExecConfig::default()
    };
    assert_eq!(refused(&absent), "credential plug-in /nowhere/login cannot be started; install login");
}
