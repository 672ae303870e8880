use super::*;
use p12_keystore::{Certificate, KeyStore, KeyStoreEntry, PrivateKey, PrivateKeyChain};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use server::rustls::pki_types::{CertificateDer, UnixTime};
use server::rustls::{CertificateError, Error};
use std::fs;
use testkit::TemporaryDirectory;

/// A key that OpenSSL encrypted with the password `secret`, and its certificate.
const LOCKED: &str = include_str!("fixtures/locked.pem");

/// A temporary directory with stores.
struct Stores(TemporaryDirectory);

impl Stores {
    /// A key and its certificate, as PEM and as PKCS12 with the password `secret`.
    fn new() -> Stores {
        let stores = Stores(TemporaryDirectory::create());
        stores.renew();
        stores
    }

    fn renew(&self) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.not_after = date_time_ymd(2030, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap();
        fs::write(self.0.join("pem"), key.serialize_pem() + &certificate.pem()).unwrap();
        fs::write(self.0.join("trusted"), certificate.pem()).unwrap();
        let parsed = Certificate::from_der(certificate.der()).unwrap();
        let chain = PrivateKeyChain::new("id", PrivateKey::from_der(&key.serialize_der()).unwrap(), [parsed.clone()]);
        let mut store = KeyStore::new();
        store.add_entry("node", KeyStoreEntry::PrivateKeyChain(chain));
        fs::write(self.0.join("p12"), store.writer("secret").write().unwrap()).unwrap();
        let mut store = KeyStore::new();
        store.add_entry("ca", KeyStoreEntry::Certificate(parsed));
        fs::write(self.0.join("trusted.p12"), store.writer("secret").write().unwrap()).unwrap();
    }

    fn pem(&self) -> Encryption {
        let (keystore, truststore) = (self.0.join("pem"), self.0.join("trusted"));
        Encryption { enabled: true, is_pem: true, keystore, truststore, ..Encryption::default() }
    }

    fn pkcs12(&self, password: &str) -> Encryption {
        let (keystore, truststore) = (self.0.join("p12"), self.0.join("trusted.p12"));
        let password = Some(Secret(password.to_owned()));
        Encryption {
            enabled: true,
            keystore,
            truststore,
            keystore_password: password.clone(),
            truststore_password: password,
            ..Encryption::default()
        }
    }
}

fn refusal(encryption: &Encryption) -> String {
    encryption.read().unwrap_err()
}

#[test]
fn stores_of_all_kinds_are_read() {
    let stores = Stores::new();
    let inline = Encryption {
        private_key: Some(Secret(fs::read_to_string(stores.0.join("pem")).unwrap())),
        trusted_certificates: Some(Secret(fs::read_to_string(stores.0.join("trusted")).unwrap())),
        enabled: true,
        ..Encryption::default()
    };
    let (java, trusted) = (stores.0.join("java"), stores.0.join("trusted.jks"));
    fs::write(&java, include_bytes!("fixtures/node.jks")).unwrap();
    fs::write(&trusted, include_bytes!("fixtures/trusted.jks")).unwrap();
    let java = Encryption {
        keystore: java,
        truststore: trusted,
        truststore_password: Some(Secret("trusting".to_owned())),
        ..stores.pkcs12("secret")
    };
    // keytool leaves the public key out of keys on elliptic curves, here too.
    fs::write(stores.0.join("java.p12"), include_bytes!("fixtures/node.p12")).unwrap();
    let java_pkcs12 = Encryption { keystore: stores.0.join("java.p12"), ..stores.pkcs12("secret") };
    // As in Java, a trust store may be read without its password.
    let unchecked = Encryption { truststore_password: None, ..java.clone() };
    fs::write(stores.0.join("locked"), LOCKED).unwrap();
    let password = Some(Secret("secret".to_owned()));
    let locked = Encryption { keystore: stores.0.join("locked"), keystore_password: password, ..stores.pem() };
    for options in [stores.pem(), stores.pkcs12("secret"), inline, java, java_pkcs12, unchecked, locked] {
        for client_auth in [ClientAuth::None, ClientAuth::Optional, ClientAuth::Required] {
            Encryption { client_auth, ..options.clone() }.read().unwrap();
        }
    }
}

#[test]
fn errors_name_the_key_and_the_file() {
    let stores = Stores::new();
    let file = |name: &str| stores.0.join(name);
    fs::write(file("java"), include_bytes!("fixtures/node.jks")).unwrap();
    fs::write(file("jceks"), [0xCE, 0xCE, 0xCE, 0xCE, 0, 0, 0, 2]).unwrap();
    fs::write(file("locked"), LOCKED).unwrap();
    fs::write(file("scrypt"), include_bytes!("fixtures/scrypt.pem")).unwrap();
    fs::write(file("many"), include_bytes!("fixtures/many_iterations.pem")).unwrap();
    // Parameters of a key derivation: a salt, and 16,777,215 iterations.
    fs::write(file("dear"), [0x30, 9, 4, 2, 7, 7, 2, 3, 0xFF, 0xFF, 0xFF]).unwrap();
    fs::write(file("old"), "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n").unwrap();
    let locked = |password: &str| Encryption {
        keystore: file("locked"),
        keystore_password: Some(Secret(password.to_owned())),
        ..stores.pem()
    };
    let required = Encryption { client_auth: ClientAuth::Required, ..stores.pem() };
    for (options, key, name, text) in [
        (stores.pkcs12("wrong"), "keystore", "p12", "password"),
        (Encryption { keystore: file("trusted"), ..stores.pem() }, "keystore", "trusted", "no private key"),
        (Encryption { keystore: file("none"), ..stores.pem() }, "keystore", "none", "No such file"),
        (Encryption { keystore: file("locked"), ..stores.pem() }, "keystore", "locked", "no password"),
        (Encryption { keystore: file("scrypt"), ..locked("secret") }, "keystore", "scrypt", "scrypt are not supported"),
        (
            Encryption { keystore: file("many"), ..locked("secret") },
            "keystore",
            "many",
            "more than 10000000 iterations",
        ),
        (locked("wrong"), "keystore", "locked", "the password provided for the key is wrong"),
        (Encryption { keystore: file("old"), ..stores.pem() }, "keystore", "old", "openssl pkcs8 -topk8"),
        (
            Encryption { keystore: file("java"), ..stores.pkcs12("x") },
            "keystore",
            "java",
            "Keystore was tampered with, or password was incorrect",
        ),
        (Encryption { keystore: file("jceks"), ..stores.pkcs12("x") }, "keystore", "jceks", "keytool"),
        (
            Encryption { keystore: file("dear"), ..stores.pkcs12("x") },
            "keystore",
            "dear",
            "more than 10000000 iterations",
        ),
        (Encryption { keystore: file("pem"), ..stores.pkcs12("x") }, "keystore", "pem", "store_type: PEM"),
        (Encryption { truststore: file("none"), ..required.clone() }, "truststore", "none", "No such file"),
        (Encryption { truststore: file("java"), ..required }, "truststore", "java", "no certificate"),
    ] {
        let error = refusal(&options);
        assert!(error.starts_with(&format!("client_encryption_options: {key}: ")), "{error}");
        assert!(error.contains(&*file(name).to_string_lossy()) && error.contains(text), "{error}");
    }
}

#[test]
fn cipher_suites_have_javas_names_and_unknown_ones_are_refused() {
    let stores = Stores::new();
    let with = |names: &[&str]| Encryption {
        cipher_suites: names.iter().map(|name| (*name).to_owned()).collect(),
        ..stores.pem()
    };
    with(&["TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]).read().unwrap();
    let error = refusal(&with(&["TLS_RSA_WITH_AES_128_CBC_SHA"]));
    assert!(error.contains("cipher_suites: TLS_RSA_WITH_AES_128_CBC_SHA is not supported; accepted: TLS_"), "{error}");
    let old = Encryption { protocols: vec!["TLSv1.2".to_owned()], ..with(&["TLS_AES_256_GCM_SHA384"]) };
    assert!(refusal(&old).starts_with("client_encryption_options: cipher_suites: "));
}

#[test]
fn a_node_with_a_key_store_accepts_tls_unless_it_is_disabled() {
    let stores = Stores::new();
    let neither = Encryption { enabled: false, ..stores.pem() };
    assert!(neither.is_used() && neither.is_optional());
    assert!(!Encryption { optional: Some(false), ..neither.clone() }.is_used());
    assert!(!Encryption { keystore: stores.0.join("none"), ..neither }.is_used());
    assert!(!stores.pem().is_optional() && stores.pem().is_used());
}

#[test]
fn an_unreadable_key_store_that_is_not_needed_does_not_stop_the_start() {
    let stores = Stores::new();
    fs::write(stores.0.join("java"), include_bytes!("fixtures/node.jks")).unwrap();
    let java = Encryption { keystore: stores.0.join("java"), ..stores.pkcs12("wrong") };
    let with = |enabled, optional| Encryption { enabled, optional, ..java.clone() };
    assert!(Certificates::load(&with(false, None)).unwrap().is_none());
    for asked in [with(true, None), with(false, Some(true)), with(true, Some(true))] {
        let error = Certificates::load(&asked).err().unwrap();
        assert!(error.contains("password was incorrect"), "{error}");
    }
}

#[test]
fn certificates_that_cannot_be_read_again_stay_in_force() {
    let stores = Stores::new();
    let certificates = Certificates::load(&stores.pem()).unwrap().unwrap();
    let server = certificates.for_server();
    let current = || server.config.borrow().clone();
    let first = current();
    assert!(!certificates.reload_if_changed().unwrap());
    stores.renew();
    fs::File::open(stores.0.join("pem")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert!(certificates.reload_if_changed().unwrap());
    let second = current();
    assert!(!Arc::ptr_eq(&first, &second));
    fs::write(stores.0.join("pem"), "nothing").unwrap();
    assert!(certificates.reload().is_err());
    assert!(Arc::ptr_eq(&second, &current()));
}

/// An authority that signs certificates, and lists of those that it revoked.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    fn certificate(&self, number: u64) -> CertificateDer<'static> {
        let mut parameters = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        parameters.serial_number = Some(SerialNumber::from(number));
        parameters.signed_by(&KeyPair::generate().unwrap(), &self.0).unwrap().der().clone()
    }

    /// A list that was to be replaced in this year.
    fn list(&self, revoked: u64, next_year: i32) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(revoked),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(next_year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

#[test]
fn certificates_of_clients_that_are_not_valid_now_or_of_other_authorities_are_refused() {
    let stores = Stores::new();
    // The two authorities have one name.
    let [trusted, other] = ["authority"; 2].map(Authority::new);
    fs::write(stores.0.join("trusted"), trusted.0.pem()).unwrap();
    let wrong = |error| Err(Error::InvalidCertificate(error));
    for client_auth in [ClientAuth::Required, ClientAuth::Optional] {
        let options = Encryption { client_auth, ..stores.pem() };
        let verifier = options.verifier(&Arc::new(ring::default_provider())).unwrap().unwrap();
        let verify = |certificate: &CertificateDer<'_>| {
            verifier.verify_client_cert(certificate, &[], UnixTime::now()).map(|_| ())
        };
        let of_years = |authority: &Authority, first, last| {
            let mut parameters = CertificateParams::new(vec!["client".to_owned()]).unwrap();
            (parameters.not_before, parameters.not_after) = (date_time_ymd(first, 1, 1), date_time_ymd(last, 1, 1));
            parameters.signed_by(&KeyPair::generate().unwrap(), &authority.0).unwrap().der().clone()
        };
        let is_of_time = |result: Result<(), Error>, name: &str| {
            assert!(format!("{result:?}").contains(name), "{result:?} is not {name}");
        };
        assert_eq!(verify(&of_years(&trusted, 2020, 4000)), Ok(()));
        is_of_time(verify(&of_years(&trusted, 2020, 2021)), "Expired");
        is_of_time(verify(&of_years(&trusted, 3990, 4000)), "NotValidYet");
        assert_eq!(verify(&of_years(&other, 2020, 4000)), wrong(CertificateError::BadSignature));
        assert_eq!(verifier.client_auth_mandatory(), client_auth == ClientAuth::Required);
    }
}

#[test]
fn revoked_certificates_of_clients_are_refused() {
    let stores = Stores::new();
    let [listing, other] = ["listing", "other"].map(Authority::new);
    for next_year in [2025, 4000] {
        let store = [listing.0.pem(), listing.list(2, next_year), other.0.pem()].concat();
        fs::write(stores.0.join("trusted"), &store).unwrap();
        let inline = Encryption { trusted_certificates: Some(Secret(store)), ..stores.pem() };
        for options in [stores.pem(), inline] {
            let options = Encryption { client_auth: ClientAuth::Required, ..options };
            let verifier = options.verifier(&Arc::new(ring::default_provider())).unwrap().unwrap();
            let verify = |certificate: &CertificateDer<'_>| {
                verifier.verify_client_cert(certificate, &[], UnixTime::now()).map(|_| ())
            };
            assert_eq!(verify(&listing.certificate(1)), Ok(()));
            assert_eq!(verify(&listing.certificate(2)), Err(Error::InvalidCertificate(CertificateError::Revoked)));
            // This authority has no list.
            assert_eq!(verify(&other.certificate(2)), Ok(()));
        }
    }
}

#[test]
fn a_damaged_list_of_revoked_certificates_is_refused() {
    let stores = Stores::new();
    let authority = Authority::new("listing");
    let damaged = "-----BEGIN X509 CRL-----\nMAMCAQE=\n-----END X509 CRL-----\n";
    fs::write(stores.0.join("trusted"), authority.0.pem() + damaged).unwrap();
    let error = refusal(&Encryption { client_auth: ClientAuth::Required, ..stores.pem() });
    assert!(error.contains("trusted: a list of revoked certificates in it cannot be read"), "{error}");
}

#[test]
fn a_list_that_its_authority_did_not_sign_is_refused() {
    let stores = Stores::new();
    let [authority, namesake] = ["listing"; 2].map(Authority::new);
    let options = Encryption { client_auth: ClientAuth::Required, ..stores.pem() };
    fs::write(stores.0.join("trusted"), authority.0.pem() + &namesake.list(2, 4000)).unwrap();
    let error = refusal(&options);
    assert!(error.contains("the list of revoked certificates of"), "{error}");
    assert!(error.contains("has a wrong signature"), "{error}");
    // An authority whose key was replaced has two certificates of one name.
    fs::write(stores.0.join("trusted"), authority.0.pem() + &namesake.0.pem() + &namesake.list(2, 4000)).unwrap();
    assert!(options.verifier(&Arc::new(ring::default_provider())).is_ok());
}
