//! A certificate authority and a leaf certificate: the keys are new in each process, all other fields are
//! constant.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SerialNumber};

use super::Authority;

/// Creates the authority and a leaf certificate that it signed.
pub(super) fn authority() -> Authority {
    let (key, leaf_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    let mut leaf = CertificateParams::new(vec!["db".to_owned(), "db.example.com".to_owned()]).unwrap();
    leaf.serial_number = Some(SerialNumber::from(vec![1, 2, 3, 4]));
    let signed = leaf.signed_by(&leaf_key, &Issuer::new(params, key)).unwrap();
    Authority { pem, leaf: signed.der().to_vec(), leaf_key: leaf_key.serialize_der() }
}
