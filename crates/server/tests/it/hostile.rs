//! Hostile clients, and other clients that must not notice them.

use crate::fake::{serve, serve_with};
use crate::wire::{Client, QUERY, RESULT, query};
use server::ServerOptions;
use std::io::{Read, Write};

#[test]
fn a_malformed_body_is_answered_and_the_connection_continues() {
    let server = serve();
    for version in [3, 4, 5] {
        let mut client = Client::ready(server.address, version);
        let (code, text) = client.call(QUERY, &[0, 0, 0, 9, b'S']).error();
        assert_eq!(code, 0x000A);
        assert_eq!(text, "Not enough bytes to read an UTF8 serialized string preceded by its 4 bytes length");
        assert_eq!(client.ask("KEYSPACE").opcode, RESULT);
    }
}

#[test]
fn an_envelope_above_the_limit_is_refused_and_the_connection_continues() {
    let server = serve_with(ServerOptions { frame_size_bytes_max: 200_000, ..ServerOptions::default() });
    let large = query(4, &"x".repeat(300_000));
    let mut client = Client::ready(server.address, 4);
    let (code, text) = client.call(QUERY, &large).error();
    assert_eq!(code, 0x2200);
    assert_eq!(text, "Request is too big: length 300016 exceeds maximum allowed length 200000.");
    assert_eq!(client.ask("KEYSPACE").opcode, RESULT);
    let mut client = Client::ready(server.address, 5);
    let (code, text) = client.call(QUERY, &query(5, &"x".repeat(300_000))).error();
    assert_eq!(code, 0x2200);
    assert_eq!(text, "CQL Message of size 300010 bytes exceeds allowed maximum of 200000 bytes");
    assert_eq!(client.ask("KEYSPACE").opcode, RESULT);
}

#[test]
fn a_segment_with_a_wrong_checksum_ends_the_connection() {
    let server = serve();
    let mut client = Client::ready(server.address, 5);
    let mut frame = client.frame(1, QUERY, 0, &query(5, "KEYSPACE"));
    frame[10] ^= 1;
    client.socket.write_all(&frame).unwrap();
    let answer = client.receive().unwrap();
    let (code, text) = answer.error();
    assert_eq!((answer.stream, code), (0, 0x000A));
    assert!(text.contains("invalid, unrecoverable CRC mismatch detected in frame body. Read "), "{text}");
    assert_eq!(client.receive(), None);
}

#[test]
fn page_size_zero_is_a_protocol_error() {
    let server = serve();
    let mut body = crate::wire::long_string("SELECT");
    body.extend_from_slice(&[0, 1, 4, 0, 0, 0, 0]);
    let (code, text) = Client::ready(server.address, 4).call(QUERY, &body).error();
    assert_eq!((code, text.as_str()), (0x000A, "The page size cannot be 0"));
}

#[test]
fn garbage_on_one_connection_never_reaches_another() {
    let server = serve();
    let mut good = Client::ready(server.address, 5);
    let mut state = 0x0BAD_5EED_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let mut bad = if round % 2 == 0 {
            Client::connect(server.address, 4)
        } else {
            Client::ready(server.address, 3 + (round % 3) as u8)
        };
        let mut bytes: Vec<u8> = (0..random() % 400).map(|_| random() as u8).collect();
        if round % 4 == 1 {
            bytes = bad.frame(1, (random() % 16) as u8, random() as u8, &bytes);
        }
        // The server may close the connection before everything is sent.
        let _ = bad.socket.write_all(&bytes);
        let _ = bad.socket.shutdown(std::net::Shutdown::Write);
        let _ = bad.socket.read_to_end(&mut Vec::new());
        assert_eq!(good.ask("KEYSPACE").opcode, RESULT, "round {round}");
    }
}
