//! The parts that the processes of a cluster share, and the checks that they are ready.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use http::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::Options;
use super::error::{READY_TIMEOUT, StartError};
use crate::port::Port;
use crate::real::certificates::Certificates;
use crate::real::command_line;
use crate::real::folder::Folder;
use crate::real::https::{Https, Response};
use crate::real::process::Process;
use crate::real::programs::Programs;

/// Time between two checks whether a server is ready: short beside a start, long beside one request.
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// Number of last lines of a program's log that an error quotes.
const QUOTED_LINES: usize = 5;

/// Name of the one Node of the cluster.
const NODE: &str = "devcluster";
const STAGES: &str = include_str!("stages.yaml");

/// The parts of a cluster that outlive a restart of its programs: folder, ports, certificates, clients.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) programs: Programs,
    pub(super) options: Options,
    pub(super) apiserver_port: Port,
    pub(super) controller_manager_port: Port,
    pub(super) scheduler_port: Port,
    pub(super) certificates: Certificates,
    pub(super) https: Https,
    pub(super) kubeconfig: PathBuf,
    pub(super) folder: Folder,
}

// === impl Shell ===

impl Shell {
    pub(super) fn new(programs: Programs, options: Options) -> Result<Self, StartError> {
        let folder = Folder::create().map_err(StartError::Folder)?;
        let certificates = Certificates::generate(folder.path())?;
        let apiserver_port = Port::reserve().map_err(StartError::Port)?;
        let kubeconfig = folder.path().join("kubeconfig");
        let url = format!("https://127.0.0.1:{}", apiserver_port.number());
        fs::write(&kubeconfig, kubeconfig_text(&url, &certificates)).map_err(StartError::Folder)?;
        fs::write(folder.path().join("stages.yaml"), STAGES).map_err(StartError::Folder)?;
        Ok(Self {
            programs,
            options,
            apiserver_port,
            controller_manager_port: Port::reserve().map_err(StartError::Port)?,
            scheduler_port: Port::reserve().map_err(StartError::Port)?,
            https: Https::new(&certificates)?,
            certificates,
            kubeconfig,
            folder,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver_port.number())
    }

    pub(super) fn spawn(&self, program: &'static str, flags: &[OsString]) -> Result<Process, StartError> {
        self.spawn_into(program, program, flags)
    }

    fn spawn_into(
        &self,
        log: &str,
        program: &'static str,
        flags: &[OsString],
    ) -> Result<Process, StartError> {
        let executable = self.programs.path(program);
        Process::start(program, &executable, flags, self.folder.path(), &self.folder.log(log))
            .map_err(|source| StartError::Spawn { program, source })
    }

    pub(super) fn spawn_first_apiserver(&self) -> Result<Process, StartError> {
        self.spawn_apiserver(self.apiserver_port.number(), "kube-apiserver")
    }

    pub(super) fn spawn_apiserver(&self, port: u16, log: &str) -> Result<Process, StartError> {
        let flags = command_line::apiserver(port, &self.certificates, &self.options.apiserver_flags);
        self.spawn_into(log, "kube-apiserver", &flags)
    }

    /// Waits until the check `ready` succeeds for the part named `subject`. Fails as soon as one of the
    /// `watched` processes ends.
    pub(super) async fn until<F>(
        &self,
        subject: &'static str,
        watched: &mut [&mut Process],
        ready: impl Fn() -> F,
    ) -> Result<(), StartError>
    where
        F: Future<Output = Result<(), String>>,
    {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let answer = match ready().await {
                Ok(()) => return Ok(()),
                Err(answer) => answer,
            };
            for process in &mut *watched {
                if let Some(status) = process.ended() {
                    return Err(self.ended(process.name(), status));
                }
            }
            if Instant::now() >= deadline {
                return Err(StartError::NotReady { subject, answer, logs: self.kept_logs() });
            }
            tokio::time::sleep(POLL_PERIOD).await;
        }
    }

    pub(super) fn ended(&self, program: &'static str, status: ExitStatus) -> StartError {
        let log = fs::read(self.folder.log(program)).unwrap_or_default();
        StartError::Ended { program, status, logs: self.kept_logs(), quote: last_lines(&log) }
    }

    /// Copies the logs to a folder that outlives the cluster and returns it; if the copy fails, returns the
    /// folder of the cluster.
    pub(super) fn kept_logs(&self) -> PathBuf {
        self.folder.keep_logs().unwrap_or_else(|_| self.folder.path().to_owned())
    }

    pub(super) async fn etcd_answers(&self) -> Result<(), String> {
        let socket = self.folder.path().join(command_line::ETCD_SOCKET);
        UnixStream::connect(socket).await.map(drop).map_err(|error| error.to_string())
    }

    pub(super) async fn apiserver_ready(&self) -> Result<(), String> {
        self.ready(self.apiserver_port.number(), "/readyz").await
    }

    pub(super) async fn controllers_ready(&self) -> Result<(), String> {
        self.ready(self.controller_manager_port.number(), "/healthz").await
    }

    pub(super) async fn ready(&self, port: u16, path: &str) -> Result<(), String> {
        expect(self.https.get(port, path).await, &[StatusCode::OK]).map(drop)
    }

    /// Creates the CustomResourceDefinition unless it exists, and succeeds once its kind is served.
    pub(super) async fn crd_served(&self, crd: &Value) -> Result<(), String> {
        const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let port = self.apiserver_port.number();
        let name = crd["metadata"]["name"].as_str().ok_or("the definition has no metadata.name")?;
        let (status, body) = self.https.get(port, &format!("{PATH}/{name}")).await?;
        if status == StatusCode::NOT_FOUND {
            let answer = self.https.post(port, PATH, crd).await;
            expect(answer, &[StatusCode::CREATED, StatusCode::CONFLICT])?;
            return Err(format!("{name} is not established yet"));
        }
        condition(&expect(Ok((status, body)), &[StatusCode::OK])?, "Established")
    }

    /// Creates the Node unless it exists, and succeeds once it is ready.
    pub(super) async fn node_ready(&self) -> Result<(), String> {
        let port = self.apiserver_port.number();
        let (status, body) = self.https.get(port, &format!("/api/v1/nodes/{NODE}")).await?;
        if status == StatusCode::NOT_FOUND {
            let answer = self.https.post(port, "/api/v1/nodes", &node()).await;
            expect(answer, &[StatusCode::CREATED, StatusCode::CONFLICT])?;
            return Err("the Node is not ready yet".to_owned());
        }
        condition(&expect(Ok((status, body)), &[StatusCode::OK])?, "Ready")
    }
}

// === pure parts ===

fn node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "annotations": { "kwok.x-k8s.io/node": "fake" },
            "labels": { "kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux" },
        },
    })
}

/// Returns the text of the administrator's kubeconfig. Paths are quoted as JSON strings, which are YAML
/// strings too.
fn kubeconfig_text(url: &str, certificates: &Certificates) -> String {
    let quoted = |path: &Path| Value::from(path.to_string_lossy()).to_string();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: devcluster\ncontexts:\n- name: devcluster\n  \
         context: {{cluster: devcluster, user: admin}}\nclusters:\n- name: devcluster\n  cluster:\n    \
         server: {url}\n    certificate-authority: {authority}\nusers:\n- name: admin\n  user:\n    \
         client-certificate: {certificate}\n    client-key: {key}\n",
        authority = quoted(&certificates.authority),
        certificate = quoted(&certificates.admin),
        key = quoted(&certificates.admin_key),
    )
}

fn expect(response: Response, wanted: &[StatusCode]) -> Result<Bytes, String> {
    let (status, body) = response?;
    if wanted.contains(&status) {
        Ok(body)
    } else {
        Err(format!("{status}: {}", String::from_utf8_lossy(&body)))
    }
}

/// Succeeds if the object in `body` has the condition of this type with status True.
fn condition(body: &[u8], name: &str) -> Result<(), String> {
    let object: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    match conditions.iter().find(|condition| condition["type"] == name) {
        Some(condition) if condition["status"] == "True" => Ok(()),
        Some(condition) => Err(format!("condition {condition}")),
        None => Err(format!("no condition {name}")),
    }
}

fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
}

#[cfg(test)]
mod tests;
