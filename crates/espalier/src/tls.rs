//! TLS for clients: what the configuration says of it, and the certificates in force.
//!
//! The start fails if something is wrong with them. Later the files are checked from time to time, and read again by
//! `espalier reloadssl`. New connections use the new certificates, and existing connections stay. If the new
//! certificates are wrong, the old ones stay in force.

mod der;
mod java_store;
mod stores;

use server::rustls::crypto::{CryptoProvider, ring};
use server::rustls::server::WebPkiClientVerifier;
use server::rustls::server::danger::ClientCertVerifier;
use server::rustls::version::{TLS12, TLS13};
use server::rustls::{ServerConfig, SupportedProtocolVersion};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use stores::Trusted;
use tokio::sync::watch;

/// How often files are checked; the same as Cassandra's.
const RELOAD_PERIOD: Duration = Duration::from_secs(600);

/// A secret text, which is not shown in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("***")
    }
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// The server does not ask for one.
    None,
    /// A client may show one, which is then checked.
    Optional,
    /// Each client has to show one.
    Required,
}

/// `client_encryption_options`, with Cassandra's names and defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    pub enabled: bool,
    pub optional: Option<bool>,
    pub keystore: PathBuf,
    pub keystore_password: Option<Secret>,
    pub truststore: PathBuf,
    pub truststore_password: Option<Secret>,
    pub client_auth: ClientAuth,
    /// Empty means all.
    pub protocols: Vec<String>,
    pub accepted_protocols: Vec<String>,
    pub cipher_suites: Vec<String>,
    /// Whether the stores are PEM files.
    pub is_pem: bool,
    /// PEM in the configuration itself, with the certificates of the node.
    pub private_key: Option<Secret>,
    pub trusted_certificates: Option<Secret>,
}

impl Default for Encryption {
    fn default() -> Encryption {
        Encryption {
            enabled: false,
            optional: None,
            keystore: PathBuf::from("conf/.keystore"),
            keystore_password: None,
            truststore: PathBuf::from("conf/.truststore"),
            truststore_password: None,
            client_auth: ClientAuth::None,
            protocols: Vec::new(),
            accepted_protocols: Vec::new(),
            cipher_suites: Vec::new(),
            is_pem: false,
            private_key: None,
            trusted_certificates: None,
        }
    }
}

impl Encryption {
    /// Whether clients may connect with TLS or without. As in Cassandra, that is so if there is a key store and the
    /// options say neither that TLS is enabled nor whether it is optional.
    pub fn is_optional(&self) -> bool {
        self.optional.unwrap_or_else(|| !self.enabled && (self.private_key.is_some() || self.keystore.exists()))
    }

    /// Whether clients may connect with TLS only because a key store exists.
    fn is_implied(&self) -> bool {
        !self.enabled && self.optional.is_none()
    }

    /// Whether clients may connect with TLS.
    pub fn is_used(&self) -> bool {
        self.enabled || self.is_optional()
    }

    /// The rules and certificates; the error names the key and the file.
    fn read(&self) -> Result<ServerConfig, String> {
        let named = |key: &'static str| move |error| format!("client_encryption_options: {key}: {error}");
        let provider = Arc::new(self.provider().map_err(named("cipher_suites"))?);
        let identity = stores::identity(self).map_err(named("keystore"))?;
        let verifier = self.verifier(&provider).map_err(named("truststore"))?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions())
            .map_err(|error| named("cipher_suites")(error.to_string()))?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        builder.with_single_cert(identity.chain, identity.key).map_err(|error| named("keystore")(error.to_string()))
    }

    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let names = if self.accepted_protocols.is_empty() { &self.protocols } else { &self.accepted_protocols };
        let is_accepted = |name: &str| names.is_empty() || names.iter().any(|accepted| accepted == name);
        [(&TLS13, "TLSv1.3"), (&TLS12, "TLSv1.2")]
            .into_iter()
            .filter_map(|(version, name)| is_accepted(name).then_some(version))
            .collect()
    }

    fn provider(&self) -> Result<CryptoProvider, String> {
        let mut provider = ring::default_provider();
        if self.cipher_suites.is_empty() {
            return Ok(provider);
        }
        let known = std::mem::take(&mut provider.cipher_suites);
        // The names are Java's.
        let name = |suite: &server::rustls::SupportedCipherSuite| {
            suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
        };
        for asked in &self.cipher_suites {
            let Some(suite) = known.iter().find(|suite| name(suite) == *asked) else {
                let accepted: Vec<_> = known.iter().map(name).collect();
                return Err(format!("{asked} is not supported; accepted: {}", accepted.join(", ")));
            };
            provider.cipher_suites.push(*suite);
        }
        Ok(provider)
    }

    /// Checks the certificates of clients, if they have to be checked.
    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        if self.client_auth == ClientAuth::None {
            return Ok(None);
        }
        let Trusted { roots, revoked } = stores::trusted(self)?;
        // Certificates of an authority that has no list in the store are not revoked.
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .with_crls(revoked)
            .allow_unknown_revocation_status();
        if self.client_auth == ClientAuth::Optional {
            builder = builder.allow_unauthenticated();
        }
        builder.build().map(Some).map_err(|error| format!("{}: {error}", self.truststore.display()))
    }

    /// When the files were changed last.
    fn modified(&self) -> [Option<SystemTime>; 2] {
        [&self.keystore, &self.truststore].map(|path| path.metadata().and_then(|meta| meta.modified()).ok())
    }
}

/// The certificates in force.
pub struct Certificates {
    encryption: Encryption,
    /// Whether clients may also do without TLS. This holds until the node ends, also if the key store comes or goes.
    is_optional: bool,
    current: watch::Sender<Arc<ServerConfig>>,
    seen: Mutex<[Option<SystemTime>; 2]>,
}

impl Certificates {
    /// Reads the certificates. `None` if clients do not use TLS. It is also `None`, with a message in the log, if no
    /// option asks for TLS and the key store cannot be read: `cassandra.yaml` may be beside a key store with another
    /// password.
    pub fn load(encryption: &Encryption) -> Result<Option<Arc<Certificates>>, String> {
        if !encryption.is_used() {
            return Ok(None);
        }
        let (is_optional, seen) = (encryption.is_optional(), Mutex::new(encryption.modified()));
        let rules = match encryption.read() {
            Err(error) if encryption.is_implied() => {
                tracing::warn!("clients cannot use TLS, which client_encryption_options do not ask for: {error}");
                return Ok(None);
            }
            read => read?,
        };
        let (current, _) = watch::channel(Arc::new(rules));
        Ok(Some(Arc::new(Certificates { encryption: encryption.clone(), is_optional, current, seen })))
    }

    /// The configuration for the server.
    pub fn for_server(&self) -> server::Tls {
        server::Tls { config: self.current.subscribe(), optional: self.is_optional }
    }

    /// Whether clients may also do without TLS.
    pub fn is_optional(&self) -> bool {
        self.is_optional
    }

    /// Reads the certificates again. After an error the old ones stay in force.
    pub fn reload(&self) -> Result<(), String> {
        let modified = self.encryption.modified();
        let read = self.encryption.read()?;
        self.current.send_replace(Arc::new(read));
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = modified;
        Ok(())
    }

    /// Reads the certificates again if a file has changed. Returns whether one has.
    fn reload_if_changed(&self) -> Result<bool, String> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match self.encryption.modified() == seen {
            true => Ok(false),
            false => self.reload().map(|()| true),
        }
    }

    /// Checks the files from time to time. Never returns.
    pub async fn watch(self: Arc<Certificates>) {
        loop {
            tokio::time::sleep(RELOAD_PERIOD).await;
            let certificates = self.clone();
            match tokio::task::spawn_blocking(move || certificates.reload_if_changed()).await {
                Ok(Ok(true)) => tracing::info!("the certificates for TLS were read again"),
                Ok(Err(error)) => tracing::error!("the certificates for TLS stay as they were: {error}"),
                Ok(Ok(false)) | Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
