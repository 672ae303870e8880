//! Keys of `client_encryption_options`: the outcome of a handshake.

use super::*;
use crate::tls::Certificates;
use server::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use server::rustls::crypto::ring::default_provider;
use server::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use server::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection, SignatureScheme,
};

/// A client that accepts every certificate.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A handshake of a client without a certificate: the version and the cipher suite, or the error of the server.
fn handshake(rules: Arc<ServerConfig>) -> String {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().dangerous();
    let client = builder.with_custom_certificate_verifier(Arc::new(Trusting)).with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
    let mut server = ServerConnection::new(rules).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &bytes[..]).unwrap();
        if let Err(error) = server.process_new_packets() {
            return error.to_string();
        }
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    let suite = server.negotiated_cipher_suite().unwrap().suite();
    format!("{:?} {suite:?}", server.protocol_version().unwrap())
}

/// The outcome of a client's handshake, or why the server does not start.
fn outcome(parts: &Parts) -> String {
    match Certificates::load(&parts.config.client_encryption) {
        Err(error) => error,
        Ok(None) => "no TLS".to_owned(),
        Ok(Some(certificates)) => {
            let server = certificates.for_server();
            let optional = if server.optional { ", optional" } else { "" };
            let rules = server.config.borrow().clone();
            handshake(rules) + optional
        }
    }
}

/// Whether the start fails because of this key.
fn fails(parts: &Parts, key: &str) -> String {
    outcome(parts).starts_with(&format!("client_encryption_options: {key}: ")).to_string()
}

const USUAL: &str = "TLSv1_3 TLS13_AES_256_GCM_SHA384";

/// The path of a store of the tests.
macro_rules! store {
    ($name:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/src/tls/fixtures/", $name)
    };
}

/// A key of the section.
macro_rules! key {
    ($name:literal) => {
        concat!("client_encryption_options.", $name)
    };
}

const ENABLED: (&str, &str) = (key!("enabled"), "true");
const STORE: (&str, &str) = (key!("keystore"), store!("node.p12"));
const PASSWORD: (&str, &str) = (key!("keystore_password"), "secret");
const TRUST: (&str, &str) = (key!("truststore"), store!("trusted.jks"));
const ASKS: (&str, &str) = (key!("require_client_auth"), "true");
const PEM: (&str, &str) = (key!("keystore"), store!("locked.pem"));

pub(super) const CASES: &[Case] = &[
    Case::value(key!("enabled"), "true", outcome, USUAL).with(&[STORE, PASSWORD]),
    Case::value(key!("optional"), "true", outcome, "TLSv1_3 TLS13_AES_256_GCM_SHA384, optional")
        .with(&[ENABLED, STORE, PASSWORD]),
    Case::value(key!("keystore"), store!("node.jks"), outcome, USUAL).with(&[ENABLED, PASSWORD]),
    Case::value(key!("keystore_password"), "secret", outcome, USUAL).with(&[ENABLED, STORE]),
    Case::value(key!("truststore"), store!("trusted.jks"), outcome, "peer sent no certificates")
        .with(&[ENABLED, STORE, PASSWORD, ASKS]),
    Case::value(key!("truststore_password"), "wrong", |parts| fails(parts, "truststore"), "true")
        .with(&[ENABLED, STORE, PASSWORD, ASKS, TRUST]),
    Case::value(key!("require_client_auth"), "true", outcome, "peer sent no certificates")
        .with(&[ENABLED, STORE, PASSWORD, TRUST]),
    Case::value(key!("protocol"), "TLSv1.2", outcome, "TLSv1_2 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
        .with(&[ENABLED, STORE, PASSWORD]),
    Case::value(key!("accepted_protocols"), "[TLSv1.2]", outcome, "TLSv1_2 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
        .with(&[ENABLED, STORE, PASSWORD]),
    Case::value(
        key!("cipher_suites"),
        "[TLS_CHACHA20_POLY1305_SHA256]",
        outcome,
        "TLSv1_3 TLS13_CHACHA20_POLY1305_SHA256",
    )
    .with(&[ENABLED, STORE, PASSWORD]),
    Case::value(key!("store_type"), "PEM", outcome, USUAL).with(&[ENABLED, PEM, PASSWORD]),
    Case::value(key!("ssl_context_factory"), "{class_name: PEMBasedSslContextFactory}", outcome, USUAL)
        .with(&[ENABLED, PEM, PASSWORD]),
    Case::refused(key!("require_endpoint_verification"), "true", "the addresses of clients are not compared"),
    Case::refused(key!("max_certificate_validity_period"), "1d", "is not supported"),
    Case::refused(key!("certificate_validity_warn_threshold"), "1d", "is not supported"),
];
