use std::fs;

use super::*;

/// A folder of kubeconfigs.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, contexts: &[&str]) -> PathBuf {
        let list =
            |entry: &dyn Fn(&str) -> String| contexts.iter().map(|name| entry(name)).collect::<String>();
        let clusters =
            list(&|name| format!("- {{name: {name}, cluster: {{server: 'https://{name}.example'}}}}\n"));
        let named = list(&|name| format!("- {{name: {name}, context: {{cluster: {name}, user: u}}}}\n"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {}\nclusters:\n{clusters}contexts:\n{named}\
             users: []\n",
            contexts[0]
        );
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// The environment of a process outside a Pod, with this folder as home and this `KUBECONFIG`.
    fn environment(&self, kubeconfig: Option<OsString>) -> Environment {
        Environment {
            kubeconfig,
            home: Some(self.0.path().to_owned()),
            in_cluster: outside,
            proxies: ProxyVariables::default(),
        }
    }
}

fn outside() -> Result<kube::Config, InClusterError> {
    Err(InClusterError::ReadEnvironmentVariable(std::env::VarError::NotPresent))
}

fn in_pod(home: Option<PathBuf>) -> Environment {
    let in_cluster = || Ok(kube::Config::new("https://in-cluster.example".parse().unwrap()));
    Environment { kubeconfig: Some(OsString::new()), home, in_cluster, proxies: ProxyVariables::default() }
}

fn server(found: Result<kube::Config, ConnectError>) -> String {
    found.unwrap().cluster_url.host().unwrap().to_owned()
}

#[tokio::test]
async fn flag_then_variable_then_pod_then_home() {
    let folder = Folder::new();
    let flag = folder.write("flag", &["flag"]);
    let variable = folder.write("variable", &["variable"]);
    folder.write(".kube/config", &["home"]);
    let list = Some(variable.into_os_string());

    let given = infer_in(folder.environment(list.clone()), Some(&flag), None).await;
    assert_eq!(server(given), "flag.example");
    assert_eq!(server(infer_in(folder.environment(list), None, None).await), "variable.example");
    assert_eq!(server(infer_in(in_pod(None), None, None).await), "in-cluster.example");
    assert_eq!(server(infer_in(folder.environment(None), None, None).await), "home.example");
}

#[tokio::test]
async fn a_context_is_searched_in_kubeconfigs_only() {
    let folder = Folder::new();
    folder.write(".kube/config", &["first", "second"]);
    let environment = in_pod(Some(folder.0.path().to_owned()));
    assert_eq!(server(infer_in(environment, None, Some("second")).await), "second.example");
}

#[tokio::test]
async fn listed_files_are_merged_and_the_first_wins() {
    let folder = Folder::new();
    let list = std::env::join_paths([folder.write("a", &["a"]), folder.write("b", &["b", "a"])]).unwrap();
    assert_eq!(server(infer_in(folder.environment(Some(list.clone())), None, None).await), "a.example");
    assert_eq!(server(infer_in(folder.environment(Some(list)), None, Some("b")).await), "b.example");
}

#[tokio::test]
async fn a_source_that_the_user_named_must_work() {
    let folder = Folder::new();
    folder.write(".kube/config", &["home"]);
    let missing = folder.0.path().join("missing");
    let error = infer_in(folder.environment(None), Some(&missing), None).await.unwrap_err();
    assert_eq!(error.to_string(), format!("kubeconfig {} (--kubeconfig) cannot be used", missing.display()));
    let listed = infer_in(folder.environment(Some(missing.clone().into_os_string())), None, None).await;
    assert_eq!(
        listed.unwrap_err().to_string(),
        format!("kubeconfig {} (KUBECONFIG) cannot be used", missing.display())
    );
    let context = infer_in(folder.environment(None), None, Some("nowhere")).await.unwrap_err();
    assert!(matches!(context, ConnectError::Kubeconfig { .. }), "{context}");
}

#[tokio::test]
async fn the_error_lists_every_source_that_was_tried() {
    let folder = Folder::new();
    let error = infer_in(folder.environment(None), None, None).await.unwrap_err();
    let home = folder.0.path().join(".kube/config");
    assert_eq!(
        error.to_string(),
        format!(
            "no API server is configured; tried --kubeconfig (not given); KUBECONFIG (not set); \
             service account (failed to read an incluster environment variable: \
             environment variable not found); {} (no such file); give --kubeconfig FILE or set KUBECONFIG",
            home.display()
        )
    );
}

/// Returns the proxy to a server if the environment has these variables `HTTPS_PROXY` and `NO_PROXY`.
fn proxy(https: &str, no: &str, server: &str) -> Option<String> {
    let variables = ProxyVariables { https: https.to_owned(), http: String::new(), no: no.to_owned() };
    variables.proxy_to(&server.parse().unwrap()).unwrap().map(|proxy| proxy.to_string())
}

#[test]
fn no_proxy_names_hosts_suffixes_networks_ports_and_all() {
    let through = |no: &str, server: &str| proxy("http://proxy:3128", no, server).is_some();
    let named = "https://api.example.com:6443";
    assert!(through("", named));
    assert!(through("other.com, pi.example.com", named));
    for no in [
        "example.com",
        ".example.com",
        "*.example.com",
        "*.example.com:6443",
        "api.example.com",
        "x,API.example.com",
        "*",
        "api.example.com:6443",
    ] {
        assert!(!through(no, named), "{no}");
    }
    assert!(through("api.example.com:443", named), "another port");
    for (no, server) in [
        ("10.0.0.0/8", "https://10.1.2.3:6443"),
        ("10.1.2.3", "https://10.1.2.3:6443"),
        ("10.1.2.3:6443", "https://10.1.2.3:6443"),
        ("*", "https://10.1.2.3:6443"),
        ("fd00::/8", "https://[fd00::1]:6443"),
        ("[fd00::1]:443", "https://[fd00::1]"),
        ("[fd00::1]", "https://[fd00::1]"),
    ] {
        assert!(!through(no, server), "{no} {server}");
    }
    assert!(through("10.0.0.0/8", "https://11.1.2.3:6443"));
    for loopback in ["https://localhost:6443", "https://127.0.0.2:6443", "https://[::1]:6443"] {
        assert!(!through("", loopback), "{loopback}");
    }
    assert_eq!(proxy("", "", named), None);
    assert_eq!(proxy("http://proxy:3128", "", "http://api.example.com"), None, "only HTTP_PROXY applies");
}

#[test]
fn the_error_for_an_invalid_proxy_variable_does_not_quote_it() {
    let variables =
        ProxyVariables { https: "http://me:secret@pro xy".to_owned(), ..ProxyVariables::default() };
    let error = variables.proxy_to(&Uri::from_static("https://server")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the proxy for https://server/ cannot be used; expected http://, https:// or socks5:// with \
         HOST:PORT in proxy-url or HTTPS_PROXY"
    );
}

#[tokio::test]
async fn the_proxy_of_the_chosen_cluster_comes_before_the_variable() {
    let folder = Folder::new();
    let path = folder.write("two", &["with", "without"]);
    let text = fs::read_to_string(&path).unwrap();
    let text =
        text.replace("'https://with.example'", "'https://with.example', proxy-url: 'socks5://own:1080'");
    fs::write(&path, text).unwrap();
    let found = async |context: &str| {
        let proxies = ProxyVariables {
            https: "http://proxy:3128".to_owned(),
            no: "with.example".to_owned(),
            ..ProxyVariables::default()
        };
        let environment = Environment { proxies, ..folder.environment(None) };
        infer_in(environment, Some(&path), Some(context)).await.unwrap().proxy_url.unwrap().to_string()
    };
    assert_eq!(found("with").await, "socks5://own:1080/", "NO_PROXY does not apply to proxy-url");
    assert_eq!(found("without").await, "http://proxy:3128/");
    let in_pod = Environment {
        proxies: ProxyVariables { https: "http://proxy:3128".to_owned(), ..ProxyVariables::default() },
        ..in_pod(None)
    };
    let config = infer_in(in_pod, None, None).await.unwrap();
    assert_eq!(config.proxy_url.unwrap().to_string(), "http://proxy:3128/", "as client-go, in a Pod as well");
}
