//! Runs a credential plug-in (`exec` of a kubeconfig) and reads its output.
//!
//! kube's own implementation is not used: it runs the plug-in on the caller's thread, once for each client
//! and again for its certificate, and ignores the expiry of a certificate.
//!
//! The format is that of client-go credential plugins:
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>

use std::io::IsTerminal as _;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use super::fetch::CredentialError;

/// Time limit of one run of a credential plug-in; five times as long if the user may have to log in.
/// client-go has no limit.
pub(super) const LIMIT: Duration = Duration::from_mins(1);

/// The output of a credential plug-in, an `ExecCredential`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs the credential plug-in, stores its credentials in `auth` and returns their expiry. Blocks the thread
/// until the plug-in exits; kills it after `limit`.
pub(super) fn run(
    exec: &ExecConfig,
    auth: &mut AuthInfo,
    limit: Duration,
) -> Result<Option<Timestamp>, CredentialError> {
    let name = exec.command.as_deref().unwrap_or_default();
    let failed = |what: String| CredentialError::new(format!("credential plug-in {name} {what}"));
    let interactive = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !std::io::stdin().is_terminal() => {
            return Err(failed("needs a terminal, but standard input is not one".to_owned()));
        }
        _ => std::io::stdin().is_terminal(),
    };
    let mut command = command(exec, interactive);
    let limit = if interactive { 5 * limit } else { limit };

    let unstarted = |error| {
        let hint = exec.install_hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        failed(format!("cannot be started{hint}")).with_source(error)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unstarted)?;
    let output = runtime.block_on(async {
        let child = command.spawn().map_err(unstarted)?;
        let output = tokio::time::timeout(limit, child.wait_with_output()).await;
        let output = output.map_err(|_| failed(format!("was killed: it took longer than {limit:?}")))?;
        output.map_err(|error| failed("could not be waited for".to_owned()).with_source(error))
    })?;
    if !output.status.success() {
        return Err(failed(format!("failed, {}; see its messages on standard error", output.status)));
    }
    let status = read(&output.stdout, exec).map_err(failed)?;
    auth.token = status.token.map(Into::into);
    auth.client_certificate_data = status.client_certificate_data.map(|pem| STANDARD.encode(pem));
    auth.client_key_data = status.client_key_data.map(|pem| STANDARD.encode(pem).into());
    Ok(status.expiration_timestamp)
}

fn command(exec: &ExecConfig, interactive: bool) -> Command {
    let mut spec = json!({"interactive": interactive});
    if let Some(cluster) = &exec.cluster {
        spec["cluster"] = json!(cluster);
    }
    let api_version = exec.api_version.as_deref().unwrap_or_default();
    let info = json!({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec});
    let mut command = Command::new(exec.command.as_deref().unwrap_or_default());
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    for name in exec.drop_env.iter().flatten() {
        command.env_remove(name);
    }
    // Standard error is inherited, so the messages of the plug-in appear in the log.
    command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() }).stdout(Stdio::piped());
    command.kill_on_drop(true);
    command
}

/// Decodes the output of a credential plug-in and checks it. An error does not quote the output, which may
/// contain a secret.
fn read(output: &[u8], exec: &ExecConfig) -> Result<Status, String> {
    let Ok(ExecCredential { api_version, status }) = serde_saphyr::from_slice(output) else {
        return Err("wrote no ExecCredential with a status".to_owned());
    };
    if exec.api_version.as_ref() != Some(&api_version) {
        let expected = exec.api_version.as_deref().unwrap_or("none");
        return Err(format!("wrote apiVersion {api_version:?}; the kubeconfig expects {expected}"));
    }
    match (&status.token, &status.client_certificate_data, &status.client_key_data) {
        (None, None, None) => Err("wrote neither a token nor a certificate".to_owned()),
        (_, Some(_), None) | (_, None, Some(_)) => {
            Err("wrote a certificate without its key, or a key without its certificate".to_owned())
        }
        _ => Ok(status),
    }
}

#[cfg(test)]
mod tests;
