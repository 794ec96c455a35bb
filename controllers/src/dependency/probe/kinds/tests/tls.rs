//! Valid and invalid certificates.

use mainstay_api::plan::TlsCheck;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;

/// A new certificate authority.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

pub(super) struct Certificate {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(super) fn pem(&self) -> String {
        self.pem.clone()
    }

    pub(super) fn valid(&self, name: &str) -> Certificate {
        self.sign(name, |_| {})
    }

    pub(super) fn expired(&self, name: &str) -> Certificate {
        self.sign(name, |params| params.not_after = date_time_ymd(2001, 1, 1))
    }

    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Certificate { certificate: certificate.der().clone(), key }
    }
}

/// Makes a listener that serves TLS with this certificate: it reads a request, and answers with these bytes.
pub(super) async fn serving(certificate: Certificate, answer: &'static [u8]) -> Listener {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.certificate], certificate.key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Listener::serve(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            drop(stream.read(&mut [0; 4096]).await);
            drop(stream.write_all(answer).await);
            drop(stream.shutdown().await);
        }
    })
    .await
}

/// Returns a `tls` check of this listener that trusts the authorities of the `ConfigMap`.
pub(super) fn handshake(listener: &Listener, name: &str) -> ProbeCheck {
    let ca = ConfigMapKey { name: "authorities".to_owned(), key: Some("ca.crt".to_owned()) };
    ProbeCheck::Tls(TlsCheck { address: listener.address(), server_name: name.to_owned(), ca: Some(ca) })
}

async fn reason_with(listener: &Listener, name: &str, authorities: Option<String>) -> &'static str {
    FakeCluster::trusting(authorities).check(handshake(listener, name), PATIENT).await.reason()
}

#[tokio::test]
async fn a_certificate_has_to_be_valid_now_for_the_name_and_trusted() {
    let authority = Authority::new();
    let trusted = || Some(authority.pem());
    let good = serving(authority.valid("db.example.com"), b"").await;
    assert_eq!(reason_with(&good, "db.example.com", trusted()).await, "Answered");
    assert_eq!(reason_with(&good, "other.example.com", trusted()).await, "CertificateWrongName");
    let others = Authority::new();
    assert_eq!(reason_with(&good, "db.example.com", Some(others.pem())).await, "CertificateUntrusted");
    let both = others.pem() + &authority.pem();
    assert_eq!(reason_with(&good, "db.example.com", Some(both)).await, "Answered", "a bundle");

    let expired = serving(authority.expired("db.example.com"), b"").await;
    assert_eq!(reason_with(&expired, "db.example.com", trusted()).await, "CertificateExpired");
    let early = authority.sign("db.example.com", |params| params.not_before = date_time_ymd(3000, 1, 1));
    let early = serving(early, b"").await;
    assert_eq!(reason_with(&early, "db.example.com", trusted()).await, "CertificateNotYetValid");

    let by_address = serving(authority.valid("127.0.0.1"), b"").await;
    assert_eq!(reason_with(&by_address, "127.0.0.1", trusted()).await, "Answered", "an address as a name");
}

#[tokio::test]
async fn without_an_authority_nothing_is_dialled() {
    let listener = serving(Authority::new().valid("db"), b"").await;
    assert_eq!(reason_with(&listener, "db", None).await, "AuthoritiesNotFound");
    for wrong in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert_eq!(
            reason_with(&listener, "db", Some(wrong.to_owned())).await,
            "AuthoritiesInvalid",
            "{wrong:?}"
        );
    }
    assert_eq!(listener.accepted(), 0);
    // The authorities of the system, if there are any, did not sign this certificate.
    let mut check = handshake(&listener, "db");
    let ProbeCheck::Tls(tls) = &mut check else { panic!("another check") };
    tls.ca = None;
    let reason = reason(check).await;
    assert!(["CertificateUntrusted", "AuthoritiesNotFound"].contains(&reason), "{reason}");
}

#[tokio::test]
async fn a_timeout_reading_the_authorities_does_not_count_as_silence_of_the_target() {
    let listener = serving(Authority::new().valid("db"), b"").await;
    let mut check = handshake(&listener, "db");
    let ProbeCheck::Tls(tls) = &mut check else { panic!("another check") };
    tls.address = Address::parse("address", &format!("127.0.0.1:{}", listener.port)).unwrap();
    let cluster = FakeCluster { is_silent: true, ..FakeCluster::new() };
    assert_eq!(cluster.check(check, SHORT).await.reason(), "AuthoritiesNotFound");
    assert_eq!(listener.accepted(), 0);
}

#[tokio::test]
async fn a_server_without_tls_and_a_silent_server_have_different_reasons() {
    let authorities = || Some(Authority::new().pem());
    let plain = Listener::answering(b"220 mail.example.com ESMTP\r\n").await;
    assert_eq!(reason_with(&plain, "db", authorities()).await, "ProtocolError");
    let resetting = Listener::resetting().await;
    assert_eq!(reason_with(&resetting, "db", authorities()).await, "ConnectionClosed");
    let hanging = Listener::hanging().await;
    let cluster = FakeCluster::trusting(authorities());
    assert_eq!(cluster.check(handshake(&hanging, "db"), SHORT).await.reason(), "Timeout");
    // An alert: the handshake is refused.
    let refusing = Listener::answering(&[21, 3, 3, 0, 2, 2, 40]).await;
    assert_eq!(reason_with(&refusing, "db", authorities()).await, "TlsFailed");
}
