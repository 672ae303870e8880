//! Key stores and trust stores: PEM files, PKCS12 files, and PEM in the configuration.

use super::{Encryption, Secret};
use p12_keystore::{KeyStore, KeyStoreEntry, Pkcs12ImportPolicy};
use server::rustls::RootCertStore;
use server::rustls::pki_types::pem::PemObject;
use server::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;

/// The largest store that is read.
const STORE_SIZE_BYTES_MAX: u64 = 16 << 20;

/// The first bytes of Java's own stores, JKS and JCEKS.
const JAVA_STORES: [[u8; 4]; 2] = [[0xFE, 0xED, 0xFE, 0xED], [0xCE, 0xCE, 0xCE, 0xCE]];

/// The node's key, and its certificate followed by those of its issuers.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The key of the node.
pub(super) fn identity(options: &Encryption) -> Result<Identity, String> {
    let path = options.keystore.as_path();
    let (identity, place) = if let Some(Secret(pem)) = &options.private_key {
        (pem_identity(pem.as_bytes()), "private_key".to_owned())
    } else {
        let bytes = read(path)?;
        let identity = match options.is_pem {
            true => pem_identity(&bytes),
            false => pkcs12_identity(&bytes, path, options.keystore_password.as_ref()),
        };
        (identity, path.display().to_string())
    };
    let identity = identity.map_err(|error| format!("{place}: {error}"))?;
    warn_of_validity(&identity.chain, &place)?;
    Ok(identity)
}

/// The certificates that clients' certificates may come from.
pub(super) fn trusted(options: &Encryption) -> Result<RootCertStore, String> {
    let path = options.truststore.as_path();
    let (certificates, place) = if let Some(Secret(pem)) = &options.trusted_certificates {
        (pem_certificates(pem.as_bytes()), "trusted_certificates".to_owned())
    } else {
        let bytes = read(path)?;
        let certificates = match options.is_pem {
            true => pem_certificates(&bytes),
            false => pkcs12_certificates(&bytes, path, options.truststore_password.as_ref()),
        };
        (certificates, path.display().to_string())
    };
    let certificates = certificates.map_err(|error| format!("{place}: {error}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| format!("{place}: {error}"))?;
    }
    match roots.is_empty() {
        true => Err(format!("{place}: there is no certificate in it")),
        false => Ok(roots),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    match std::fs::metadata(path).map_err(named)?.len() {
        ..=STORE_SIZE_BYTES_MAX => std::fs::read(path).map_err(named),
        size => Err(format!("{}: {size} bytes are too many for a store", path.display())),
    }
}

fn pem_identity(pem: &[u8]) -> Result<Identity, String> {
    if pem.windows(21).any(|text| text == b"ENCRYPTED PRIVATE KEY")
        || pem.windows(15).any(|text| text == b"Proc-Type: 4,EN")
    {
        return Err(
            "encrypted keys in PEM files are not supported: decrypt it with `openssl pkey`, or use a PKCS12 store"
                .to_owned(),
        );
    }
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| format!("there is no private key in it: {error}"))?;
    let chain = pem_certificates(pem)?;
    match chain.is_empty() {
        true => Err("there is no certificate in it".to_owned()),
        false => Ok(Identity { chain, key }),
    }
}

fn pem_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn pkcs12(bytes: &[u8], path: &Path, password: Option<&Secret>) -> Result<KeyStore, String> {
    if JAVA_STORES.iter().any(|magic| bytes.starts_with(magic)) {
        let path = path.display();
        return Err(format!(
            "stores of the type JKS are not supported: convert it with `keytool -importkeystore -srckeystore {path} \
             -destkeystore {path}.p12 -deststoretype PKCS12`"
        ));
    }
    if bytes.starts_with(b"-----BEGIN") {
        return Err("this is a PEM file: set store_type: PEM".to_owned());
    }
    let password = password.map_or("", |Secret(password)| password);
    KeyStore::from_pkcs12(bytes, password, Pkcs12ImportPolicy::Relaxed).map_err(|error| match error {
        p12_keystore::error::Error::MacError(_) => "the password is wrong".to_owned(),
        error => format!("this is no PKCS12 store, or its password is wrong: {error}"),
    })
}

fn pkcs12_identity(bytes: &[u8], path: &Path, password: Option<&Secret>) -> Result<Identity, String> {
    let store = pkcs12(bytes, path, password)?;
    let (_, chain) = store.private_key_chain().ok_or("there is no private key in it")?;
    let certificates: Vec<_> =
        chain.certs().iter().map(|certificate| CertificateDer::from(certificate.as_der().to_vec())).collect();
    if certificates.is_empty() {
        return Err("there is no certificate of its private key in it".to_owned());
    }
    let key = PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec());
    Ok(Identity { chain: certificates, key: key.into() })
}

fn pkcs12_certificates(
    bytes: &[u8],
    path: &Path,
    password: Option<&Secret>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let store = pkcs12(bytes, path, password)?;
    let certificates = store.entries().filter_map(|(_, entry)| match entry {
        KeyStoreEntry::Certificate(certificate) => Some(CertificateDer::from(certificate.as_der().to_vec())),
        KeyStoreEntry::PrivateKeyChain(_) | KeyStoreEntry::Secret(_) => None,
    });
    Ok(certificates.collect())
}

/// Warns of certificates that clients will refuse because of the time.
fn warn_of_validity(chain: &[CertificateDer<'_>], place: &str) -> Result<(), String> {
    for certificate in chain {
        let (_, parsed) =
            x509_parser::parse_x509_certificate(certificate).map_err(|error| format!("{place}: {error}"))?;
        let validity = parsed.validity();
        if !validity.is_valid() {
            let (from, to) = (validity.not_before, validity.not_after);
            tracing::warn!("{place}: the certificate of {} is valid from {from} to {to}", parsed.subject());
        }
    }
    Ok(())
}
