//! Values over TLS, written and read by a client with a certificate or a password. A client without its login is
//! refused.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::NewSessionError;

use crate::{Checks, Outcome, execute};

/// How a client logs in.
#[derive(Clone, Copy)]
struct Login<'l> {
    /// Whether it shows its certificate.
    certificate: bool,
    /// The password of the role `cassandra`.
    password: Option<&'l str>,
}

/// The certificates are in this directory.
pub async fn script(checks: &mut Checks, node: &str, directory: &Path, by_certificate: bool) -> Outcome {
    let login = Login { certificate: by_certificate, password: (!by_certificate).then_some("cassandra") };
    let session = connect(node, Some(context(directory, login.certificate)?), login).await?;
    execute(
        &session,
        "CREATE KEYSPACE IF NOT EXISTS tls_rust WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    )
    .await?;
    execute(&session, "CREATE TABLE IF NOT EXISTS tls_rust.t (k int PRIMARY KEY, v blob)").await?;
    let insert = session.prepare("INSERT INTO tls_rust.t (k, v) VALUES (?, ?)").await?;
    let select = session.prepare("SELECT v FROM tls_rust.t WHERE k = ?").await?;
    for (key, size) in (0_i32..).zip([1, 16_384, 4_000_000]) {
        let value = vec![key as u8 + 1; size];
        session.execute_unpaged(&insert, (key, &value)).await?;
        let result = session.execute_unpaged(&select, (key,)).await?.into_rows_result()?;
        let (got,) = result.single_row::<(Vec<u8>,)>()?;
        checks.holds(&format!("value of {size} bytes"), got == value, got.len());
    }
    let wrong = Login { certificate: false, password: (!by_certificate).then_some("wrong") };
    let refused = connect(node, Some(context(directory, false)?), wrong).await.err();
    checks.holds("a client without its login is refused", refused.is_some(), "it was accepted");
    let refused = connect(node, None, Login { certificate: false, ..login }).await.err();
    checks.holds("a client without TLS is refused", refused.is_some(), "it was accepted");
    Ok(())
}

async fn connect(
    node: &str,
    context: Option<Arc<ClientConfig>>,
    login: Login<'_>,
) -> Result<Session, NewSessionError> {
    let mut builder = SessionBuilder::new().known_node(node).tls_context(context);
    if let Some(password) = login.password {
        builder = builder.user("cassandra", password);
    }
    builder.build().await
}

/// The node must have a certificate of the authority, for its address.
fn context(directory: &Path, shows_certificate: bool) -> Result<Arc<ClientConfig>, Box<dyn Error>> {
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_file(directory.join("authority.pem"))?)?;
    let builder = ClientConfig::builder().with_root_certificates(trusted);
    if !shows_certificate {
        return Ok(Arc::new(builder.with_no_client_auth()));
    }
    let certificate = CertificateDer::from_pem_file(directory.join("client.pem"))?;
    let key = PrivateKeyDer::from_pem_file(directory.join("client.key"))?;
    Ok(Arc::new(builder.with_client_auth_cert(vec![certificate], key)?))
}
