//! Key stores and trust stores: PEM files, PKCS12 and JKS files, and PEM in the configuration.
//!
//! A trust store of PEM may also have lists of revoked certificates (`X509 CRL`), which Cassandra does not read.

use super::der::{derivation_iterations, with_public_key};
use super::java_store::{self, JavaStore};
use super::{Encryption, Secret};
use p12_keystore::{KeyStore, KeyStoreEntry, Pkcs12ImportPolicy};
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::pkcs5::pbes2::Kdf;
use server::rustls::RootCertStore;
use server::rustls::pki_types::pem::PemObject;
use server::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;

/// The largest store that is read, bytes.
const STORE_SIZE_BYTES_MAX: u64 = 16 << 20;

/// The iterations of a key derivation. More would take seconds.
const ITERATIONS_MAX: u32 = 10_000_000;

/// Cassandra's text.
const WRONG_KEY_PASSWORD: &str = "Failed to decrypt the private key data. Either the password provided for the key is \
                                  wrong or the private key data is corrupted.";

/// The name of a section of PEM.
const ENCRYPTED_KEY: &str = "ENCRYPTED PRIVATE KEY";

/// The first bytes of a store of Java's type JCEKS.
const JCEKS: [u8; 4] = [0xCE, 0xCE, 0xCE, 0xCE];

/// The node's key, and its certificate followed by those of its issuers.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The key of the node.
pub(super) fn identity(options: &Encryption) -> Result<Identity, String> {
    let path = options.keystore.as_path();
    let (identity, place) = if let Some(Secret(pem)) = &options.private_key {
        (pem_identity(pem.as_bytes(), options.keystore_password.as_ref()), "private_key".to_owned())
    } else {
        let bytes = read(path)?;
        let identity = match options.is_pem {
            true => pem_identity(&bytes, options.keystore_password.as_ref()),
            false => store_identity(&bytes, path, options.keystore_password.as_ref()),
        };
        (identity, path.display().to_string())
    };
    let identity = identity.map_err(|error| format!("{place}: {error}"))?;
    warn_of_validity(&identity.chain, &place)?;
    Ok(identity)
}

/// The contents of a trust store.
pub(super) struct Trusted {
    /// The certificates that clients' certificates may come from.
    pub(super) roots: RootCertStore,
    /// Lists of revoked certificates.
    pub(super) revoked: Vec<CertificateRevocationListDer<'static>>,
}

/// The contents of the trust store.
pub(super) fn trusted(options: &Encryption) -> Result<Trusted, String> {
    let path = options.truststore.as_path();
    let (contents, place) = if let Some(Secret(pem)) = &options.trusted_certificates {
        (pem_trusted(pem.as_bytes()), "trusted_certificates".to_owned())
    } else {
        let bytes = read(path)?;
        let contents = match options.is_pem {
            true => pem_trusted(&bytes),
            false => store_certificates(&bytes, path, options.truststore_password.as_ref())
                .map(|certificates| (certificates, Vec::new())),
        };
        (contents, path.display().to_string())
    };
    let (certificates, revoked) = contents.map_err(|error| format!("{place}: {error}"))?;
    check_lists(&revoked, &certificates, &place)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| format!("{place}: {error}"))?;
    }
    match roots.is_empty() {
        true => Err(format!("{place}: there is no certificate in it")),
        false => Ok(Trusted { roots, revoked }),
    }
}

type CertificatesAndLists = (Vec<CertificateDer<'static>>, Vec<CertificateRevocationListDer<'static>>);

fn pem_trusted(pem: &[u8]) -> Result<CertificatesAndLists, String> {
    let lists = CertificateRevocationListDer::pem_slice_iter(pem).collect::<Result<_, _>>();
    Ok((pem_certificates(pem)?, lists.map_err(|error| error.to_string())?))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    match std::fs::metadata(path).map_err(named)?.len() {
        ..=STORE_SIZE_BYTES_MAX => std::fs::read(path).map_err(named),
        size => Err(format!("{}: {size} bytes are too many for a store", path.display())),
    }
}

fn pem_identity(pem: &[u8], password: Option<&Secret>) -> Result<Identity, String> {
    let key = match encrypted_key(pem)? {
        Some(encrypted) => decrypted(&encrypted, password)?,
        None => {
            PrivateKeyDer::from_pem_slice(pem).map_err(|error| format!("there is no private key in it: {error}"))?
        }
    };
    let chain = pem_certificates(pem)?;
    match chain.is_empty() {
        true => Err("there is no certificate in it".to_owned()),
        false => Ok(Identity { chain, key }),
    }
}

/// The encrypted private key of a PEM file, in DER; `None` if it has none.
fn encrypted_key(pem: &[u8]) -> Result<Option<PrivatePkcs8KeyDer<'static>>, String> {
    let text = String::from_utf8_lossy(pem);
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err("keys that are encrypted in the old way of OpenSSL are not supported: write it anew with \
                    `openssl pkcs8 -topk8`"
            .to_owned());
    }
    if !text.contains(ENCRYPTED_KEY) {
        return Ok(None);
    }
    // The reader of PEM knows no section of this name. It decodes one of the other name without looking into it.
    let renamed = text.replace(ENCRYPTED_KEY, "PRIVATE KEY");
    let key = PrivatePkcs8KeyDer::from_pem_slice(renamed.as_bytes());
    key.map(Some).map_err(|error| format!("there is no private key in it: {error}"))
}

fn decrypted(key: &PrivatePkcs8KeyDer<'_>, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, String> {
    let Secret(password) = password.ok_or("its key is encrypted, and there is no password for it")?;
    let info = EncryptedPrivateKeyInfoRef::try_from(key.secret_pkcs8_der())
        .map_err(|error| format!("its key is encrypted in a way that is not supported: {error}"))?;
    let derivation = info.encryption_algorithm.pbes2().map(|parameters| &parameters.kdf);
    match derivation {
        Some(Kdf::Pbkdf2(parameters)) if parameters.iteration_count > ITERATIONS_MAX => {
            return Err(format!("its key is derived with more than {ITERATIONS_MAX} iterations"));
        }
        // Its parameters say how much memory it takes.
        Some(Kdf::Scrypt(_)) => return Err("keys that are encrypted with scrypt are not supported".to_owned()),
        _ => {}
    }
    let key = info.decrypt(password).map_err(|_| WRONG_KEY_PASSWORD.to_owned())?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

fn pem_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn pkcs12(bytes: &[u8], path: &Path, password: Option<&Secret>) -> Result<KeyStore, String> {
    if bytes.starts_with(&JCEKS) {
        let path = path.display();
        return Err(format!(
            "stores of the type JCEKS are not supported: convert it with `keytool -importkeystore -srckeystore {path} \
             -destkeystore {path}.p12 -deststoretype PKCS12`"
        ));
    }
    if derivation_iterations(bytes) > u64::from(ITERATIONS_MAX) {
        return Err(format!("its keys are derived with more than {ITERATIONS_MAX} iterations"));
    }
    if bytes.starts_with(b"-----BEGIN") {
        return Err("this is a PEM file: set store_type: PEM".to_owned());
    }
    KeyStore::from_pkcs12(bytes, or_empty(password), Pkcs12ImportPolicy::Relaxed).map_err(|error| match error {
        p12_keystore::error::Error::MacError(_) => "the password is wrong".to_owned(),
        error => format!("this is no PKCS12 store, or its password is wrong: {error}"),
    })
}

/// The password of a store that has to have one.
fn or_empty(password: Option<&Secret>) -> &str {
    password.map_or("", |Secret(password)| password)
}

fn store_identity(bytes: &[u8], path: &Path, password: Option<&Secret>) -> Result<Identity, String> {
    if bytes.starts_with(&java_store::MAGIC) {
        return java_identity(bytes, or_empty(password));
    }
    let store = pkcs12(bytes, path, password)?;
    let (_, chain) = store.private_key_chain().ok_or("there is no private key in it")?;
    let certificates: Vec<_> =
        chain.certs().iter().map(|certificate| CertificateDer::from(certificate.as_der().to_vec())).collect();
    if certificates.is_empty() {
        return Err("there is no certificate of its private key in it".to_owned());
    }
    Ok(Identity { key: java_key(chain.key().as_der(), &certificates), chain: certificates })
}

fn java_identity(bytes: &[u8], password: &str) -> Result<Identity, String> {
    let store = JavaStore::read(bytes, Some(password))?;
    let (key, chain) = store.identity(password)?.ok_or("there is no private key in it")?;
    if chain.is_empty() {
        return Err("there is no certificate of its private key in it".to_owned());
    }
    let chain: Vec<_> = chain.iter().map(|certificate| CertificateDer::from(certificate.clone())).collect();
    Ok(Identity { key: java_key(&key, &chain), chain })
}

/// A key that may be Java's, for the first of these certificates.
fn java_key(key: &[u8], chain: &[CertificateDer<'_>]) -> PrivateKeyDer<'static> {
    let certificate = chain.first().map(|certificate| &**certificate).unwrap_or_default();
    PrivatePkcs8KeyDer::from(with_public_key(key, certificate)).into()
}

fn store_certificates(
    bytes: &[u8],
    path: &Path,
    password: Option<&Secret>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    if bytes.starts_with(&java_store::MAGIC) {
        let password = password.map(|Secret(password)| password.as_str());
        return Ok(JavaStore::read(bytes, password)?.trusted.into_iter().map(CertificateDer::from).collect());
    }
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

/// Refuses lists of revoked certificates that cannot be read, or that the authority whose name they bear did not sign:
/// with such a list every certificate of that authority would be refused. Warns of those that a newer one should have
/// replaced, and that stay in force.
fn check_lists(
    lists: &[CertificateRevocationListDer<'_>],
    authorities: &[CertificateDer<'_>],
    place: &str,
) -> Result<(), String> {
    for list in lists {
        let (_, parsed) = x509_parser::parse_x509_crl(list)
            .map_err(|error| format!("{place}: a list of revoked certificates in it cannot be read: {error}"))?;
        if parsed.version().is_none() {
            return Err(format!(
                "{place}: a list of revoked certificates in it has version 1; only version 2 is supported"
            ));
        }
        if !is_signed(&parsed, authorities) {
            let issuer = parsed.issuer();
            return Err(format!("{place}: the list of revoked certificates of {issuer} has a wrong signature"));
        }
        let next = parsed.next_update().filter(|next| *next < ASN1Time::now());
        if let Some(next) = next {
            tracing::warn!(
                "{place}: the list of revoked certificates of {} was to be replaced at {next}",
                parsed.issuer()
            );
        }
    }
    Ok(())
}

/// Whether one of the authorities of the list's name signed it. True if there is no such authority, since the list is
/// then not used.
fn is_signed(list: &CertificateRevocationList<'_>, authorities: &[CertificateDer<'_>]) -> bool {
    let parsed =
        authorities.iter().filter_map(|authority| Some(x509_parser::parse_x509_certificate(authority).ok()?.1));
    let mut named = parsed.filter(|authority| authority.subject().as_raw() == list.issuer().as_raw()).peekable();
    named.peek().is_none() || named.any(|authority| list.verify_signature(authority.public_key()).is_ok())
}
