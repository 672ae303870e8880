//! Logins: which of them need a hash, and those with hostile bytes: certificates and messages of clients, one mutated
//! after the other.

use std::net::SocketAddr;
use std::time::Duration;

use query::{AuthOptions, Authentication, Authenticator, ErrorKind, Login, LoginStart, ProcessorOptions, QueryError};
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, KeyPair, SanType};
use testkit::{Random, seed};

use crate::node::TestNode;

const IDENTITY: &str = "spiffe://espalier.test/ada";

/// A node whose role `ada` has an identity.
fn node(authenticator: Authenticator) -> TestNode {
    let auth = AuthOptions { authenticator, ..AuthOptions::default() };
    let node = TestNode::with_options(ProcessorOptions { auth, ..ProcessorOptions::default() });
    for row in [
        "roles (role, can_login) VALUES ('ada', true)".to_owned(),
        "roles (role, can_login) VALUES ('bob', false)".to_owned(),
        format!("identity_to_role (identity, role) VALUES ('{IDENTITY}', 'ada')"),
        "identity_to_role (identity, role) VALUES ('spiffe://bob', 'bob')".to_owned(),
        "identity_to_role (identity, role) VALUES ('spiffe://gone', 'gone')".to_owned(),
    ] {
        node.run(&format!("INSERT INTO system_auth.{row}"));
    }
    node.processor.start_roles().unwrap();
    node
}

/// A certificate in DER with these alternative names.
fn certificate(uris: &[&str]) -> Vec<u8> {
    let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let uris = uris.iter().map(|uri| SanType::URI(Ia5String::try_from(*uri).unwrap()));
    parameters.subject_alt_names.extend(uris);
    parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn log_in(node: &TestNode, token: &[u8], certificate: Option<&[u8]>) -> Result<Login, QueryError> {
    node.processor.log_in(token, Some(SocketAddr::from(([127, 0, 0, 1], 4242))), certificate)
}

fn refused(node: &TestNode, uris: &[&str]) -> String {
    let error = log_in(node, b"", Some(&certificate(uris))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadCredentials);
    error.message
}

#[test]
fn the_first_spiffe_name_of_a_certificate_is_its_identity() {
    let node = node(Authenticator::MutualTls);
    let login = log_in(&node, b"\0cassandra\0cassandra", Some(&certificate(&["https://ada", IDENTITY, "spiffe://x"])));
    assert_eq!(&*login.unwrap().user, "ada");
    let unauthorized = |identity| format!("Certificate identity '{identity}' not authorized");
    assert_eq!(refused(&node, &["spiffe://x", IDENTITY]), unauthorized("spiffe://x"));
    assert_eq!(
        refused(&node, &["https://ada"]),
        "Unable to extract client identity from certificate for authentication"
    );
    assert_eq!(refused(&node, &["spiffe://bob"]), "bob is not permitted to log in");
    assert_eq!(refused(&node, &["spiffe://gone"]), "gone is not permitted to log in");
    let without = log_in(&node, b"\0cassandra\0cassandra", None).unwrap_err();
    assert_eq!(without.message, "Invalid or not supported certificate");
}

#[test]
fn no_certificate_and_no_message_breaks_a_login() {
    let node = node(Authenticator::MutualTlsOrPassword);
    let mut random = Random(seed(1));
    let (whole, message) = (certificate(&[IDENTITY]), b"\0ada\0a password".to_vec());
    let mut accepted = 0;
    for _ in 0..5_000 {
        let (mut certificate, mut message) = (whole.clone(), message.clone());
        for bytes in [&mut certificate, &mut message] {
            for _ in 0..random.below(4) {
                let place = random.below(bytes.len());
                bytes[place] = random.number() as u8;
            }
            if random.one_in(4) {
                bytes.truncate(random.below(bytes.len() + 1));
            }
        }
        match log_in(&node, &message, Some(&certificate)) {
            Ok(login) => {
                assert_eq!(&*login.user, "ada");
                accepted += 1;
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::BadCredentials, "{error:?}"),
        }
    }
    // The signature was checked by TLS, so a change of most other bytes does not matter here.
    assert!(accepted > 250, "{accepted}");
    // After ten failures no password is hashed for a while, so this does not take long.
    for _ in 0..2_000 {
        let message: Vec<u8> = (0..random.below(60)).map(|_| random.number() as u8 % 3).collect();
        assert_eq!(log_in(&node, &message, None).unwrap_err().kind, ErrorKind::BadCredentials);
    }
}

#[test]
fn only_a_password_that_is_not_known_has_to_be_hashed() {
    let credentials_validity = Duration::from_secs(3600);
    let auth = AuthOptions { authenticator: Authenticator::Password, credentials_validity, ..AuthOptions::default() };
    let node = TestNode::with_options(ProcessorOptions { auth, ..ProcessorOptions::default() });
    node.processor.start_roles().unwrap();
    let begin = |token: &[u8]| node.processor.begin_login(token, Some(SocketAddr::from(([127, 0, 0, 1], 4242))), None);
    let role = |token: &[u8]| match begin(token) {
        LoginStart::MustHash(role) => role,
        LoginStart::Done(outcome) => panic!("{outcome:?}"),
    };
    let (right, wrong) = (b"\0cassandra\0cassandra", b"\0cassandra\0wrong");
    assert_eq!(role(right), role(wrong));
    assert_ne!(role(right), role(b"\0nobody\0cassandra"));
    assert!(matches!(begin(b"\0cassandra\0"), LoginStart::Done(Err(_))));
    log_in(&node, right, None).unwrap();
    assert!(matches!(begin(right), LoginStart::Done(Ok(login)) if &*login.user == "cassandra"));
    role(wrong);
    for _ in 0..10 {
        log_in(&node, wrong, None).unwrap_err();
    }
    for token in [&right[..], wrong] {
        assert!(matches!(begin(token), LoginStart::Done(Err(error)) if error.kind == ErrorKind::BadCredentials));
    }
}
