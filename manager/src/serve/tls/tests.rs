use super::*;
use std::fs::write;
use std::os::unix::fs::symlink;
use std::time::Duration;

use axum::Router;
use rcgen::{CertifiedKey as Made, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::serve::{Bound, Limits};

fn made() -> Made<rcgen::KeyPair> {
    generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

fn put_chain(directory: &TempDir, made: &Made<rcgen::KeyPair>) {
    write(directory.path().join("tls.crt"), made.cert.pem()).unwrap();
}

fn put_key(directory: &TempDir, made: &Made<rcgen::KeyPair>) {
    write(directory.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
}

fn directory_of(made: &Made<rcgen::KeyPair>) -> TempDir {
    let directory = TempDir::new().unwrap();
    put_chain(&directory, made);
    put_key(&directory, made);
    directory
}

/// Returns the whole error chain, with `DIR` in place of the directory's path.
fn refusal(directory: &TempDir) -> String {
    let error = Certificates::load(directory.path()).unwrap_err();
    crate::key::Chain(&error).to_string().replace(&directory.path().display().to_string(), "DIR")
}

#[test]
fn an_unusable_pair_is_refused_with_path_and_expectation() {
    let (one, other) = (made(), made());
    let directory = directory_of(&one);
    put_key(&directory, &other);
    let text = refusal(&directory);
    assert!(text.starts_with("tls.crt and tls.key in DIR are not a usable pair: "), "{text}");
    write(directory.path().join("tls.key"), "none").unwrap();
    let text = refusal(&directory);
    assert!(text.starts_with("DIR/tls.key contains no private key in PEM: "), "{text}");
    write(directory.path().join("tls.crt"), one.signing_key.serialize_pem()).unwrap();
    let text = refusal(&directory);
    assert!(text.starts_with("DIR/tls.crt contains no certificate in PEM: "), "{text}");
    std::fs::remove_file(directory.path().join("tls.crt")).unwrap();
    let text = refusal(&directory);
    assert!(text.starts_with("DIR/tls.crt cannot be read: No such file"), "{text}");
}

/// Reads both files.
fn files(directory: &TempDir) -> [io::Result<Vec<u8>>; 2] {
    paths(directory.path()).map(|path| read_regular(&path))
}

#[test]
fn an_incomplete_rotation_keeps_the_old_pair_and_counts_as_a_failed_read() {
    let (old, new) = (made(), made());
    let directory = directory_of(&old);
    let certificates = Certificates::load(directory.path()).unwrap();
    let shown = || certificates.0.pair.read().cert.clone();
    assert!(!certificates.update(files(&directory)).unwrap(), "the pair is not new");
    put_chain(&directory, &new);
    assert!(certificates.update(files(&directory)).is_err());
    assert_eq!(shown(), [old.cert.der().clone()]);
    put_key(&directory, &new);
    assert!(certificates.update(files(&directory)).unwrap());
    assert_eq!(shown(), [new.cert.der().clone()]);
    assert!(!certificates.update(files(&directory)).unwrap());
    let reads = certificates.reads();
    assert_eq!((reads.total.get(), reads.errors.get()), (5, 1));
}

/// Writes a pair as the kubelet does: into a new directory, to which the link `..data` is then moved
/// atomically.
fn swap(volume: &TempDir, version: &str, made: &Made<rcgen::KeyPair>) {
    let [versioned, data, next] = [version, "..data", "..data_tmp"].map(|name| volume.path().join(name));
    std::fs::create_dir(&versioned).unwrap();
    write(versioned.join("tls.crt"), made.cert.pem()).unwrap();
    write(versioned.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    symlink(version, &next).unwrap();
    std::fs::rename(next, data).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_running_server_follows_a_volume_whose_files_are_swapped() {
    let volume = TempDir::new().unwrap();
    let (old, new) = (made(), made());
    swap(&volume, "..1", &old);
    for name in FILES {
        symlink(Path::new("..data").join(name), volume.path().join(name)).unwrap();
    }
    let certificates = Certificates::load(volume.path()).unwrap();
    let bound = Bound::bind("127.0.0.1:0", Limits::default()).unwrap();
    let bound = bound.with_certificates(certificates.clone());
    let stop = CancellationToken::new();
    let running = JoinSet::from_iter([bound.run(Router::new(), stop.clone())]);
    let shown = || certificates.0.pair.read().cert.clone();

    // The paused clock stands still while a file is read, so the read has ended by then.
    sleep(Duration::from_secs(3)).await;
    swap(&volume, "..2", &new);
    assert_eq!(shown(), [old.cert.der().clone()]);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(shown(), [new.cert.der().clone()]);

    stop.cancel();
    running.join_all().await.into_iter().for_each(|ended| ended.unwrap());
    swap(&volume, "..3", &old);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(certificates.reads().total.get(), 3, "files are not followed after the stop");
}

/// Sends a request over TLS and trusts only this certificate.
async fn request(address: std::net::SocketAddr, trusted: &Made<rcgen::KeyPair>) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn handshakes_use_the_present_pair_and_silent_or_plain_peers_do_not_block_others() {
    let (old, new) = (made(), made());
    let directory = directory_of(&old);
    let certificates = Certificates::load(directory.path()).unwrap();
    let limits = Limits { connections: 2, ..Limits::default() };
    let bound = Bound::bind("127.0.0.1:0", limits).unwrap().with_certificates(certificates.clone());
    let (address, stop) = (bound.local_addr(), CancellationToken::new());
    let router = Router::new().fallback(async |uri: http::Uri| uri.path().to_owned());
    let running = JoinSet::from_iter([bound.run(router, stop.clone())]);

    let _silent = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    let answer = request(address, &old).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n/a"), "{answer}");
    let own_read = async {
        while certificates.reads().total.get() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    // A later read would restore the old pair.
    timeout(Duration::from_secs(30), own_read).await.expect("the server reads its files at the start");
    put_chain(&directory, &new);
    put_key(&directory, &new);
    assert!(certificates.update(files(&directory)).unwrap());
    assert!(request(address, &new).await.unwrap().ends_with("/a"));
    assert!(request(address, &old).await.is_err(), "the old pair is no longer used");

    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // The connection may end with a reset instead of a close.
    plain.read_to_end(&mut answer).await.unwrap_or_default();
    assert!(!answer.starts_with(b"HTTP"), "answered without TLS");

    stop.cancel();
    running.join_all().await.into_iter().for_each(|ended| ended.unwrap());
}
