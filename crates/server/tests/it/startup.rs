//! The beginning of a connection, and the requests that are refused then.

use crate::fake::{serve, serve_with};
use crate::wire::{Client, ERROR, OPTIONS, QUERY, READY, query, startup};

#[test]
fn every_version_gets_ready_and_answers() {
    let server = serve();
    for version in [3, 4, 5] {
        let mut client = Client::ready(server.address, version);
        let answer = client.ask("KEYSPACE");
        assert_eq!((answer.version, answer.result_kind()), (version | 0x80, 2));
    }
}

#[test]
fn options_are_answered_before_startup_in_every_version() {
    let server = serve();
    for version in [3, 4, 5] {
        let mut client = Client::connect(server.address, version);
        let answer = client.call(OPTIONS, b"");
        assert_eq!((answer.version, answer.opcode), (version | 0x80, 6));
        assert!(String::from_utf8_lossy(&answer.body).contains("5/v5"));
    }
}

#[test]
fn refusals_carry_cassandras_texts() {
    let server = serve();
    let refusal = |opcode, body: &[u8]| Client::connect(server.address, 4).call(opcode, body).error();
    let protocol_error = |text: &str| (0x000A, text.to_owned());
    assert_eq!(
        refusal(QUERY, &query(4, "SELECT")),
        protocol_error("Unexpected message QUERY, expecting STARTUP or OPTIONS")
    );
    assert_eq!(refusal(1, &startup(&[])), protocol_error("Missing value CQL_VERSION in STARTUP message"));
    assert_eq!(
        refusal(1, &startup(&[("CQL_VERSION", "3.0.0"), ("COMPRESSION", "gzip")])),
        protocol_error("Unknown compression algorithm: gzip")
    );
    assert_eq!(
        refusal(8, b""),
        protocol_error("Wrong protocol direction (expected RESPONSE, got REQUEST) for opcode 8 (RESULT)")
    );
    assert_eq!(refusal(0x7F, b""), protocol_error("Unknown opcode 127"));
    let mut client = Client::ready(server.address, 4);
    let again = client.call(1, &startup(&[("CQL_VERSION", "3.0.0")])).error();
    assert_eq!(again, protocol_error("Unexpected message STARTUP, the connection is already initialized"));
    // The connection stays open.
    assert_eq!(client.ask("KEYSPACE").result_kind(), 2);
}

#[test]
fn other_versions_get_an_error_that_lists_the_supported_ones() {
    let server = serve();
    for version in [6, 7, 65, 66, 127] {
        let mut client = Client::connect(server.address, version);
        let answer = client.call(OPTIONS, b"");
        assert_eq!(answer.version, if version == 6 { 0x86 } else { 0x85 });
        assert_eq!(answer.stream, 0);
        let (code, text) = answer.error();
        assert_eq!(code, 0x000A);
        let beta = "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset";
        let unspoken = format!("Invalid or unsupported protocol version ({version}); supported versions are (3/v3, ");
        assert!(if version == 6 { text == beta } else { text.starts_with(&unspoken) }, "{text}");
        assert_eq!(client.receive(), None);
    }
}

#[test]
fn the_oldest_versions_are_answered_in_their_header() {
    use std::io::{Read, Write};
    let server = serve();
    for version in [1, 2] {
        let mut client = Client::connect(server.address, version);
        client.socket.write_all(&[version, 0, 0, OPTIONS, 0, 0, 0, 0]).unwrap();
        let mut bytes = Vec::new();
        client.socket.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes[..4], [version | 0x80, 0, 0, ERROR]);
        assert_eq!(bytes.len(), 8 + u32::from_be_bytes(bytes[4..8].try_into().unwrap()) as usize);
        let text = String::from_utf8_lossy(&bytes[14..]);
        assert!(text.starts_with(&format!("Invalid or unsupported protocol version ({version});")), "{text}");
    }
}

#[test]
fn ready_is_compressed_in_v4_and_plain_in_v5() {
    let server = serve();
    let lz4 = startup(&[("CQL_VERSION", "3.0.0"), ("COMPRESSION", "lz4")]);
    let answer = Client::connect(server.address, 4).call(1, &lz4);
    assert_eq!((answer.opcode, answer.flags, answer.body), (READY, 1, vec![0; 5]));
    let answer = Client::connect(server.address, 5).call(1, &lz4);
    assert_eq!((answer.opcode, answer.flags, answer.body), (READY, 0, vec![]));
}

#[test]
fn any_auth_response_succeeds_as_with_allow_all() {
    let server = serve();
    let answer = Client::ready(server.address, 4).call(15, &[0, 0, 0, 1, 7]);
    assert_eq!((answer.opcode, answer.body), (16, vec![255; 4]));
}

#[test]
fn use_holds_for_the_connection_only() {
    let server = serve();
    let (mut one, mut two) = (Client::ready(server.address, 5), Client::ready(server.address, 5));
    assert_eq!(one.ask("USE shop").result_kind(), 3);
    assert!(one.ask("KEYSPACE").body.ends_with(b"shop"));
    assert!(two.ask("KEYSPACE").body.ends_with(b"none"));
}

#[test]
fn warnings_precede_the_answer_from_v4_on() {
    let server = serve();
    let answer = Client::ready(server.address, 4).ask("SELECT warn");
    assert_eq!(answer.flags, 8);
    assert!(answer.body.starts_with(b"\0\x01\0\x07careful\0\0\0\x02"));
    let answer = Client::ready(server.address, 3).ask("SELECT warn");
    assert_eq!((answer.flags, answer.result_kind()), (0, 2));
}

#[test]
fn an_ipv4_client_has_its_ipv4_address_on_a_listener_for_both_versions() {
    let any = std::net::IpAddr::from(std::net::Ipv6Addr::UNSPECIFIED);
    if std::net::TcpListener::bind((any, 0)).is_err() {
        println!("this machine has no IPv6");
        return;
    }
    let server = serve_with(server::ServerOptions { listen: (any, 0).into(), ..server::ServerOptions::default() });
    let mut client = Client::ready(([127, 0, 0, 1], server.address.port()).into(), 5);
    let own = client.socket.local_addr().unwrap().to_string();
    let answer = client.ask("ADDRESS");
    assert!(answer.body.ends_with(own.as_bytes()), "{:?}", String::from_utf8_lossy(&answer.body));
}
