//! The certificate authority of one cluster, embedded or of the real programs, and the certificates it signs.
//!
//! Each cluster generates its own, so that a client with the kubeconfig of an earlier cluster fails in the
//! TLS handshake.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate authority in memory.
pub(crate) struct Authority {
    pub(crate) certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

// === impl Authority ===

impl Authority {
    pub(crate) fn generate() -> Result<Self, rcgen::Error> {
        Self::of(KeyPair::generate()?)
    }

    /// Makes the authority with this key in PEM again, of which all certificates stay valid.
    pub(crate) fn restore(key: &str) -> Result<Self, rcgen::Error> {
        Self::of(KeyPair::from_pem(key)?)
    }

    fn of(key: KeyPair) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "mainstay devcluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key)?;
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Returns the key of the authority in PEM.
    pub(crate) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Signs a certificate that an API server presents under these names and addresses.
    pub(crate) fn sign_server(&self, names: &[&str]) -> Result<(Certificate, KeyPair), rcgen::Error> {
        let mut params = leaf("kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth, names)?;
        params.use_authority_key_identifier_extension = true;
        self.sign(&params)
    }

    /// Signs a client certificate for a user of the group `system:masters`, which is allowed every request.
    pub(crate) fn sign_admin(&self, user: &str) -> Result<(Certificate, KeyPair), rcgen::Error> {
        let mut params = leaf(user, ExtendedKeyUsagePurpose::ClientAuth, &[])?;
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<(Certificate, KeyPair), rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?, key))
    }
}

fn leaf(
    name: &str,
    usage: ExtendedKeyUsagePurpose,
    names: &[&str],
) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    Ok(params)
}
