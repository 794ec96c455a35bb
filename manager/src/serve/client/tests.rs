use super::*;

use rcgen::{CertifiedKey as Made, KeyPair, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::util::sha256;

/// Sends this chain and signs with this key, which need not match.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Sends a request to a server with this certificate and this key; returns the result of the handshake and
/// the bytes that the server received.
async fn request(
    shown: &Made<KeyPair>,
    key: &Made<KeyPair>,
    version: &'static SupportedProtocolVersion,
) -> (io::Result<()>, Vec<u8>) {
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));
    let key = provider.key_provider.load_private_key(key).unwrap();
    let resolver = Shows(Arc::new(CertifiedKey::new(vec![shown.cert.der().clone()], key)));
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let config = config.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        if let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await {
            stream.read_buf(&mut got).await.ok();
        }
        got
    };
    let client = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = connect_tls(stream, sha256(shown.cert.der())).await?;
        exchange(stream, Request::new(Full::new(Bytes::new())), 1).await.ok();
        Ok(())
    };
    tokio::join!(client, server)
}

#[tokio::test]
async fn a_server_with_the_certificate_but_not_its_key_gets_no_request() {
    let [shown, other] = [(); 2].map(|()| generate_simple_self_signed(["a".to_owned()]).unwrap());
    for version in [&version::TLS12, &version::TLS13] {
        let (made, got) = request(&shown, &other, version).await;
        let error = made.unwrap_err().to_string();
        assert!(error.contains("BadSignature") && got.is_empty(), "{version:?}: {error}; {got:?}");
        let (made, got) = request(&shown, &shown, version).await;
        assert!(made.is_ok() && got.starts_with(b"GET / "), "{version:?}: {made:?}; {got:?}");
    }
}
