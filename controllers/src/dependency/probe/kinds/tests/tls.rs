//! Certificates, good and bad.

use mainstay_api::plan::TlsCheck;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority of the test's own.
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

/// Shows a certificate to whoever comes, reads what is asked, and says these bytes.
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

/// Trusts the authority of the `ConfigMap`, whatever that says.
pub(super) fn handshake(listener: &Listener, name: &str) -> ProbeCheck {
    let ca = ConfigMapKey { name: "authorities".to_owned(), key: Some("ca.crt".to_owned()) };
    ProbeCheck::Tls(TlsCheck { address: listener.address(), server_name: name.to_owned(), ca: Some(ca) })
}

async fn told(listener: &Listener, name: &str, authorities: Option<String>) -> &'static str {
    World::trusting(authorities).check(handshake(listener, name), PATIENT).await.reason()
}

#[tokio::test]
async fn a_certificate_has_to_be_valid_now_for_the_name_by_who_is_trusted() {
    let authority = Authority::new();
    let trusted = || Some(authority.pem());
    let good = serving(authority.valid("db.example.com"), b"").await;
    assert_eq!(told(&good, "db.example.com", trusted()).await, "Answered");
    assert_eq!(told(&good, "other.example.com", trusted()).await, "CertificateWrongName");
    let others = Authority::new();
    assert_eq!(told(&good, "db.example.com", Some(others.pem())).await, "CertificateUntrusted");
    let both = others.pem() + &authority.pem();
    assert_eq!(told(&good, "db.example.com", Some(both)).await, "Answered", "a bundle");

    let expired = serving(authority.expired("db.example.com"), b"").await;
    assert_eq!(told(&expired, "db.example.com", trusted()).await, "CertificateExpired");
    let early = authority.sign("db.example.com", |params| params.not_before = date_time_ymd(3000, 1, 1));
    let early = serving(early, b"").await;
    assert_eq!(told(&early, "db.example.com", trusted()).await, "CertificateNotYetValid");

    let by_address = serving(authority.valid("127.0.0.1"), b"").await;
    assert_eq!(told(&by_address, "127.0.0.1", trusted()).await, "Answered", "an address as a name");
}

#[tokio::test]
async fn without_an_authority_nothing_is_dialled() {
    let listener = serving(Authority::new().valid("db"), b"").await;
    assert_eq!(told(&listener, "db", None).await, "AuthoritiesNotFound");
    for wrong in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert_eq!(told(&listener, "db", Some(wrong.to_owned())).await, "AuthoritiesInvalid", "{wrong:?}");
    }
    assert_eq!(listener.accepted(), 0);
    // Those of the system, if there are any, have not signed what was made here.
    let mut check = handshake(&listener, "db");
    let ProbeCheck::Tls(tls) = &mut check else { panic!("it is one") };
    tls.ca = None;
    let told = reason(check).await;
    assert!(["CertificateUntrusted", "AuthoritiesNotFound"].contains(&told), "{told}");
}

#[tokio::test]
async fn a_server_that_does_not_tell_the_authorities_is_no_silence_of_a_raw_address() {
    let listener = serving(Authority::new().valid("db"), b"").await;
    let mut check = handshake(&listener, "db");
    let ProbeCheck::Tls(tls) = &mut check else { panic!("it is one") };
    tls.address = Address::parse("address", &format!("127.0.0.1:{}", listener.port)).unwrap();
    let world = World { is_silent: true, ..World::new() };
    assert_eq!(world.check(check, SHORT).await.reason(), "AuthoritiesNotFound");
    assert_eq!(listener.accepted(), 0);
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_from_who_says_nothing() {
    let authorities = || Some(Authority::new().pem());
    let plain = Listener::saying(b"220 mail.example.com ESMTP\r\n").await;
    assert_eq!(told(&plain, "db", authorities()).await, "ProtocolError");
    let resetting = Listener::resetting().await;
    assert_eq!(told(&resetting, "db", authorities()).await, "ConnectionClosed");
    let hanging = Listener::hanging().await;
    let world = World::trusting(authorities());
    assert_eq!(world.check(handshake(&hanging, "db"), SHORT).await.reason(), "Timeout");
    // An alert: the handshake is refused.
    let refusing = Listener::saying(&[21, 3, 3, 0, 2, 2, 40]).await;
    assert_eq!(told(&refusing, "db", authorities()).await, "TlsFailed");
}
