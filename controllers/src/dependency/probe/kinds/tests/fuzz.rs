//! Fuzz targets: for any answer, a probe ends soon, reads a bounded part of the answer, and quotes nothing
//! of it except a status code.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use mainstay_api::plan::{DnsCheck, GrpcCheck, HttpCheck, TlsCheck};
use mainstay_api::wait_for::{DnsRecord, GrpcTlsMode, HttpScheme};
use mainstay_api::{Address, Host};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::UdpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::{Failure, PreparedCheck, dns, grpc, tls};
use crate::dependency::probe::policy::Detail;
use crate::dependency::probe::{Connection, TokioResolve, authorities};
use crate::reasons::probe;
#[cfg(test)]
use crate::settings;

#[cfg(test)]
#[path = "../../../../../../fuzz/authority.rs"]
mod authority;
#[cfg(test)]
#[path = "../../../../../../fuzz/replay.rs"]
mod replay;

/// Maximum number of bytes of an endless answer that may be accepted: the bound of a connection, and data in
/// flight.
const MAX_SENT: usize = 512 * 1024;
/// Time after which a check counts as hanging: longer than any probe lasts; paused time passes only while all
/// tasks wait.
const HANGS: Duration = Duration::from_mins(1);

thread_local! {
    static RUNTIME: Runtime =
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    static NAME_SERVER: NameServer = RUNTIME.with(|runtime| runtime.block_on(NameServer::start()));
}

/// Runs a check against a server that answers with these bytes. `how` chooses the size of the pieces, and
/// whether the server repeats the bytes without end.
fn verdict(check: &PreparedCheck<'_>, how: u8, bytes: &[u8]) -> Result<(), Failure> {
    let piece = usize::from(how >> 1).max(1);
    let again = bytes.repeat(4096 / bytes.len().max(1) + 1);
    let again = std::iter::repeat_n(&*again, if how & 1 == 0 { 0 } else { MAX_SENT / 4096 + 1 });
    let (client, server) = tokio::io::duplex(64 * 1024);
    let (mut request, mut answer) = tokio::io::split(server);
    let send = async {
        let mut sent = 0;
        for piece in bytes.chunks(piece).chain(again) {
            if answer.write_all(piece).await.is_err() {
                return;
            }
            sent += piece.len();
            assert!(sent <= MAX_SENT, "{sent} bytes were accepted");
            tokio::task::yield_now().await;
        }
        let _closed = answer.shutdown().await;
    };
    ended(check.run(Connection::new(client)), async {
        let _first = request.read_u8().await;
        let mut rest = tokio::io::sink();
        tokio::join!(send, tokio::io::copy(&mut request, &mut rest))
    })
}

/// Waits for the result of a check while the server runs, and checks that the message quotes no part of the
/// answer.
fn ended(check: impl Future<Output = Result<(), Failure>>, server: impl Future) -> Result<(), Failure> {
    let verdict = RUNTIME.with(|runtime| {
        runtime.block_on(async { tokio::time::timeout(HANGS, super::drive_until(check, server)).await })
    });
    let verdict = verdict.expect("the check does not wait for a server that has sent everything");
    if let Err(failure) = &verdict {
        let result = failure.clone().at(Detail::Full);
        let message = result.message();
        let digits = message.chars().filter(char::is_ascii_digit).count();
        // A protocol version or a number of records has two digits, a status three.
        let most = if result.reason() == probe::UNEXPECTED_STATUS { 3 } else { 2 };
        assert!(digits <= most && message.len() < 128 && message.is_ascii(), "{message}");
    }
    verdict
}

fn address() -> Address {
    Address { host: Host::Name("db".to_owned()), port: 80 }
}

/// Fuzzes the `http` check: answers it with the bytes after the first one.
pub fn http(data: &[u8]) {
    let [how, bytes @ ..] = data else { return };
    let check = HttpCheck {
        address: address(),
        scheme: HttpScheme::Http,
        path: "/ready".to_owned(),
        headers: Vec::new(),
        statuses: Vec::new(),
    };
    let found = verdict(&PreparedCheck::Http(&check), *how, bytes);
    let was_sent = |status: &[u8]| bytes.windows(3).any(|window| window == status);
    match found {
        Ok(()) => {
            assert!(
                (200..400).any(|status| was_sent(status.to_string().as_bytes())),
                "no such status was sent"
            );
        }
        Err(failure) => {
            let result = failure.at(Detail::Full);
            if let Some(status) = result.message().strip_prefix("it answered with HTTP status ") {
                assert!(was_sent(status.as_bytes()), "{status} was not sent");
            }
        }
    }
}

/// Fuzzes the `grpc` check: answers it with the bytes after the first one, or puts these bytes into an
/// unknown field of a message.
pub fn grpc(data: &[u8]) {
    let [how, bytes @ ..] = data else { return };
    let check = GrpcCheck { address: address(), service: "a.B".to_owned(), tls: GrpcTlsMode::Plaintext };
    if how & 2 == 0 {
        let _found = verdict(&PreparedCheck::Grpc(&check), how & 1 | how >> 2 << 1, bytes);
        return;
    }
    let _found = grpc::message::is_serving(bytes);
    // Field 2 as eight bytes, as text or as four bytes; then field 1 with SERVING.
    let message = match how >> 2 {
        1 => [&[0x11], &[bytes, &[0; 8]].concat()[..8], &[8, 1]].concat(),
        5 => [&[0x15], &[bytes, &[0; 4]].concat()[..4], &[8, 1]].concat(),
        _ => {
            let text = &bytes[..bytes.len().min(0x7f)];
            [&[0x12, u8::try_from(text.len()).unwrap_or_default()], text, &[8, 1]].concat()
        }
    };
    let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
    assert_eq!(grpc::message::is_serving(&[&[0], &length[..], &message].concat()), Some(true));
}

/// A certificate authority, and a certificate for `db` that it signed, with the key.
#[derive(Debug)]
pub struct Authority {
    /// The certificate of the authority as PEM.
    pub pem: String,
    /// The certificate for `db` as DER.
    pub leaf: Vec<u8>,
    /// The private key of the certificate for `db`, as PKCS #8.
    pub leaf_key: Vec<u8>,
}

/// Fuzzes the `tls` check: answers it with the bytes after the first one, or with a valid certificate that
/// these bytes edit; or parses them as authorities.
pub fn tls(authority: &Authority, data: &[u8]) {
    let [how, bytes @ ..] = data else { return };
    if how & 3 == 3 {
        let roots = authorities(&String::from_utf8_lossy(bytes));
        return assert!(
            !roots.is_ok_and(|roots| roots.is_empty()),
            "an empty list of authorities was accepted"
        );
    }
    let roots = authorities(&authority.pem).expect("an authority");
    let check = TlsCheck { address: address(), server_name: "db".to_owned(), ca: None };
    let config = tls::verifying(&roots).expect("a configuration");
    let prepared = PreparedCheck::Tls(&check, config);
    if how.is_multiple_of(4) {
        return assert!(verdict(&prepared, how >> 1, bytes).is_err(), "a server without a key is trusted");
    }
    let mut leaf = authority.leaf.clone();
    for edit in bytes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % leaf.len();
        leaf[at] = edit[2];
    }
    let is_same = leaf == authority.leaf;
    let (client, server) = tokio::io::duplex(64 * 1024);
    let found = ended(prepared.run(Connection::new(client)), handshake(leaf, &authority.leaf_key, server));
    assert_eq!(
        found.is_ok(),
        is_same,
        "an unsigned certificate is trusted, or the signed one is not: {found:?}"
    );
}

async fn handshake(leaf: Vec<u8>, key: &[u8], stream: DuplexStream) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.to_vec()).expect("a key");
    let key = provider.key_provider.load_private_key(key).expect("a key");
    let certificate = rustls::sign::CertifiedKey::new(vec![CertificateDer::from(leaf)], key);
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certificate)));
    let _connected = tokio_rustls::TlsAcceptor::from(Arc::new(server)).accept(stream).await;
}

/// A name server that answers every query with the same bytes.
struct NameServer {
    resolve: TokioResolve,
    answer: Arc<Mutex<Vec<u8>>>,
    _serving: JoinSet<()>,
}

impl NameServer {
    async fn start() -> Self {
        let answer = Arc::new(Mutex::new(Vec::new()));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let resolve = TokioResolve::with_servers(vec![socket.local_addr().expect("an address")]);
        let shared = Arc::clone(&answer);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                let reply = reply(&packet[..length], &shared.lock());
                let _sent = socket.send_to(&reply, from).await;
            }
        });
        Self { resolve, answer, _serving: serving }
    }
}

/// Returns a DNS reply: flags, counts and records of `answer`, with the id and the question of `query`.
fn reply(query: &[u8], answer: &[u8]) -> Vec<u8> {
    let (Some(id), Some(question), Some((head, records))) =
        (query.get(..2), query.get(12..), answer.split_at_checked(8))
    else {
        return Vec::new();
    };
    // One question; further records of the query are left out.
    let end = question.iter().position(|byte| *byte == 0).map_or(0, |end| (end + 5).min(question.len()));
    [id, &[head[0] | 0x80, head[1]], &[0, 1], &head[2..8], &question[..end], records].concat()
}

/// Fuzzes the `dns` check: answers it with flags, counts and records; the first byte chooses the check.
pub fn dns(data: &[u8]) {
    let [how, bytes @ ..] = data else { return };
    let record = if how & 1 == 0 { DnsRecord::Address } else { DnsRecord::Srv };
    let check =
        DnsCheck { name: "db.example.com".to_owned(), record, min_records: usize::from(how >> 1 & 3).max(1) };
    let mut reachability = None;
    let found = NAME_SERVER.with(|server| {
        bytes.clone_into(&mut server.answer.lock());
        ended(dns::resolve_records(&check, &server.resolve, &mut reachability), std::future::pending::<()>())
    });
    // A record has at least eleven bytes after the counts, and addresses have a query per family.
    let most = bytes.len().saturating_sub(8) / 11 * if how & 1 == 0 { 2 } else { 1 };
    assert!(found.is_err() || check.min_records <= most, "more records than were sent");
    assert!(reachability.is_some());
}

#[test]
fn no_input_of_the_corpora_is_a_finding() {
    replay::replay("config", settings::fuzz::sections);
    replay::replay("http", http);
    replay::replay("grpc", grpc);
    replay::replay("dns", dns);
    let authority = authority::authority();
    replay::replay("tls", |data| tls(&authority, data));
}
