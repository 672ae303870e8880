//! Values over TLS, written and read by a client with a certificate or a password. A client without its login is
//! refused.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::NewSessionError;

use super::{Checks, Outcome, execute};

pub async fn script(checks: &mut Checks, node: &str, directory: &Path, has_certificate: bool) -> Outcome {
    let (password, wrong) = if has_certificate { (None, None) } else { (Some("cassandra"), Some("wrong")) };
    let session = connect(node, Some(context(directory, has_certificate)?), password).await?;
    execute(
        &session,
        "CREATE KEYSPACE IF NOT EXISTS tls_rust WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    )
    .await?;
    execute(&session, "CREATE TABLE IF NOT EXISTS tls_rust.t (k int PRIMARY KEY, v blob)").await?;
    session.await_schema_agreement().await?;
    for (key, size) in [(1, 1), (2, 16_384), (3, 4_000_000)] {
        let value = vec![key as u8; size];
        session.query_unpaged("INSERT INTO tls_rust.t (k, v) VALUES (?, ?)", (key, &value)).await?;
        let read = session.query_unpaged("SELECT v FROM tls_rust.t WHERE k = ?", (key,)).await?;
        let (got,): (Vec<u8>,) = read.into_rows_result()?.single_row()?;
        checks.holds("value", got == value, got.len());
    }
    let refused = connect(node, Some(context(directory, false)?), wrong).await;
    checks.holds("a client without its login is refused", refused.is_err(), "it was accepted");
    let refused = connect(node, None, password).await;
    checks.holds("a client without TLS is refused", refused.is_err(), "it was accepted");
    Ok(())
}

async fn connect(
    node: &str,
    context: Option<Arc<ClientConfig>>,
    password: Option<&str>,
) -> Result<Session, NewSessionError> {
    let mut builder = SessionBuilder::new().known_node(node);
    if let Some(context) = context {
        builder = builder.tls_context(Some(context));
    }
    if let Some(password) = password {
        builder = builder.user("cassandra", password);
    }
    builder.build().await
}

fn context(directory: &Path, shows_certificate: bool) -> Result<Arc<ClientConfig>, Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(directory.join("authority.pem"))?)?;
    let builder = ClientConfig::builder().with_root_certificates(roots);
    Ok(Arc::new(match shows_certificate {
        true => {
            let certificate = CertificateDer::from_pem_file(directory.join("client.pem"))?;
            builder.with_client_auth_cert(vec![certificate], PrivateKeyDer::from_pem_file(directory.join("client.key"))?)?
        }
        false => builder.with_no_client_auth(),
    }))
}
