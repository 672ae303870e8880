//! The messages of clients that log in, statements about roles, and the content of rows in `system_auth`.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use blockio::SimulatedDisk;
use cql::ast::{RoleOptions, Statement};
use engine::{Engine, EngineOptions};
use protocol::{QueryOptions, Version};
use query::{
    AuthOptions, Authentication, Authenticator, ClientState, ErrorKind, LoginStart, OneLine, Processor,
    ProcessorOptions, QueryHandler, Request, Turn, cidr_block, stored_cidr_block, without_passwords,
};

/// The identity of the certificate in the corpus, and its role.
const IDENTITY: &str = "spiffe://espalier.test/ada";
const ROLE: &str = "ada";

/// A node where [`IDENTITY`] is known.
fn node(authenticator: Authenticator) -> Arc<Processor> {
    let mut options = EngineOptions::new(Arc::new(SimulatedDisk::new()), "/node");
    options.concurrent_compactors = 0;
    let engine = Engine::open(options).expect("a node on an empty disk");
    let auth = AuthOptions { authenticator, ..AuthOptions::default() };
    let processor = Arc::new(Processor::new(engine, ProcessorOptions { auth, ..ProcessorOptions::default() }));
    let client = Arc::<ClientState>::default();
    for text in [
        &format!("INSERT INTO system_auth.roles (role, can_login) VALUES ('{ROLE}', true)"),
        &format!("INSERT INTO system_auth.identity_to_role (identity, role) VALUES ('{IDENTITY}', '{ROLE}')"),
    ] {
        let (statement, options) = (query::Statement::Text(text), QueryOptions::default());
        let request = Request { statement, client: &client, options: &options, version: Version::V5, trace: None };
        let answer = processor.begin(&request, Turn::BLOCKING, None).into_response();
        answer.expect("rows of roles are written by a statement");
    }
    processor.start_roles().expect("the roles of a new node");
    processor
}

/// The first byte chooses the meaning of the rest.
pub(crate) fn login(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind % 6 {
        0 => message(rest),
        1 => certificate(rest),
        2 => block_as_text(rest),
        3 => block_as_stored(rest),
        4 => statement_about_roles(rest),
        _ => line_of_a_log(rest),
    }
}

/// A message of SASL PLAIN. No message is accepted before its password is hashed.
fn message(token: &[u8]) {
    static NODE: OnceLock<Arc<Processor>> = OnceLock::new();
    match begin(NODE.get_or_init(|| node(Authenticator::Password)), token, None) {
        LoginStart::MustHash(_) => {}
        LoginStart::Done(Err(error)) => assert_eq!(error.kind, ErrorKind::BadCredentials, "{error:?}"),
        LoginStart::Done(Ok(login)) => panic!("{login:?} without a password"),
    }
}

/// A certificate, whose signature TLS has verified. Only that of a known identity logs a client in.
fn certificate(certificate: &[u8]) {
    static NODE: OnceLock<Arc<Processor>> = OnceLock::new();
    match begin(NODE.get_or_init(|| node(Authenticator::MutualTlsOrPassword)), b"", Some(certificate)) {
        LoginStart::Done(Ok(login)) => {
            assert_eq!(&*login.user, ROLE);
            let has_identity = certificate.windows(IDENTITY.len()).any(|part| part == IDENTITY.as_bytes());
            assert!(has_identity, "a certificate without the identity of {ROLE} has its role");
        }
        LoginStart::Done(Err(error)) => assert_eq!(error.kind, ErrorKind::BadCredentials, "{error:?}"),
        LoginStart::MustHash(_) => panic!("a certificate has no password"),
    }
}

fn begin(node: &Processor, token: &[u8], certificate: Option<&[u8]>) -> LoginStart {
    node.begin_login(token, Some(SocketAddr::from(([127, 0, 0, 1], 4242))), certificate)
}

/// A block of addresses as an operator writes it: it contains its own address, and is read again from its text.
fn block_as_text(bytes: &[u8]) {
    if let Some(block) = cidr_block(&String::from_utf8_lossy(bytes)) {
        assert!(block.contains(&block.addr()));
        assert_eq!(cidr_block(&block.to_string()), Some(block));
    }
}

/// A block of addresses as a row of `system_auth.cidr_groups` has it. No block has mapped addresses.
fn block_as_stored(bytes: &[u8]) {
    if let Some(block) = stored_cidr_block(bytes) {
        let is_mapped = |address: IpAddr| address.to_canonical() != address;
        assert!(!is_mapped(block.addr()), "{block}");
    }
}

/// A statement. If it sets a password, the text that is shown ends before the password.
fn statement_about_roles(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let shown = without_passwords(&text);
    let options: Option<RoleOptions> = match cql::parse(&text).map(|parsed| parsed.statement) {
        Ok(Statement::CreateRole(create)) => Some(create.options),
        Ok(Statement::AlterRole(alter)) => Some(alter.options),
        _ => None,
    };
    if options.is_some_and(|options| options.password.is_some() || options.hashed_password.is_some()) {
        assert!(shown.ends_with(" *******"), "{shown}");
    }
}

/// A text of a client in a line of a log stays one line.
fn line_of_a_log(bytes: &[u8]) {
    let mut line = String::new();
    let written = OneLine(&mut line).write_str(&String::from_utf8_lossy(bytes));
    assert!(written.is_ok() && !line.contains(char::is_control), "{line:?}");
}
