//! Prepared statements: ids, metadata, and schema changes.

use crate::fake::{serve, serve_with};
use crate::wire::{Answer, Client, EXECUTE, PREPARE, RESULT, long_string};
use server::ServerOptions;
use std::sync::atomic::Ordering;

/// Returns the id, and in v5 also the id of the result's metadata.
pub fn prepare(client: &mut Client, text: &str) -> (Vec<u8>, Vec<u8>) {
    let mut body = long_string(text);
    if client.version == 5 {
        body.extend_from_slice(&[0; 4]);
    }
    let answer = client.call(PREPARE, &body);
    let rest = if answer.flags & 8 == 0 { &answer.body[..] } else { after_warning(&answer.body) };
    assert_eq!(rest[..4], [0, 0, 0, 4], "{answer:?}");
    let id = rest[6..22].to_vec();
    let result_id = if client.version == 5 { rest[24..40].to_vec() } else { Vec::new() };
    (id, result_id)
}

/// A body after its one warning.
fn after_warning(body: &[u8]) -> &[u8] {
    assert_eq!(body[..2], [0, 1]);
    &body[4 + usize::from(u16::from_be_bytes([body[2], body[3]]))..]
}

fn execute(client: &mut Client, ids: &(Vec<u8>, Vec<u8>), flags: u8) -> Answer {
    let short_bytes = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let mut body = short_bytes(&ids.0);
    if client.version == 5 {
        body.extend_from_slice(&short_bytes(&ids.1));
        body.extend_from_slice(&[0, 1, 0, 0, 0, flags]);
    } else {
        body.extend_from_slice(&[0, 1, flags]);
    }
    client.call(EXECUTE, &body)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_id_is_the_md5_of_the_text_and_of_the_keyspace_it_depends_on() {
    let server = serve();
    let mut client = Client::ready(server.address, 4);
    assert_eq!(hex(&prepare(&mut client, "SELECT 1").0), md5_hex("SELECT 1"));
    client.ask("USE shop");
    assert_eq!(hex(&prepare(&mut client, "SELECT 1").0), md5_hex("SELECT 1"));
    assert_eq!(hex(&prepare(&mut client, "SELECT unqualified").0), md5_hex("shopSELECT unqualified"));
}

fn md5_hex(text: &str) -> String {
    use md5::{Digest, Md5};
    hex(&Md5::digest(text))
}

#[test]
fn an_unknown_id_is_unprepared() {
    let server = serve();
    let mut client = Client::ready(server.address, 4);
    let answer = execute(&mut client, &(vec![0xAB; 16], vec![]), 0);
    let (code, text) = answer.error();
    assert_eq!(code, 0x2500);
    assert!(text.starts_with(&format!("Prepared query with ID {} not found", "ab".repeat(16))), "{text}");
    assert!(answer.body.ends_with(&[0xAB; 16]));
}

#[test]
fn metadata_is_omitted_only_if_the_client_has_it() {
    let server = serve();
    for version in [4, 5] {
        let mut client = Client::ready(server.address, version);
        let ids = prepare(&mut client, "SELECT *");
        let full = execute(&mut client, &ids, 0);
        assert_eq!(full.body[4..8], [0, 0, 0, 1]);
        let skipped = execute(&mut client, &ids, 2);
        assert_eq!(skipped.body[4..8], [0, 0, 0, 5], "{version}");
    }
    // A v5 client with outdated metadata gets the new metadata and its id, whatever flags it sets.
    let mut client = Client::ready(server.address, 5);
    let (id, result_id) = prepare(&mut client, "SELECT *");
    let changed = execute(&mut client, &(id, vec![1; 16]), 2);
    assert_eq!(changed.body[4..8], [0, 0, 0, 9]);
    assert_eq!(changed.body[12..30], [&[0, 16], &result_id[..]].concat());
}

#[test]
fn statements_survive_changes_that_do_not_concern_them() {
    let server = serve();
    let mut client = Client::ready(server.address, 5);
    let fixed = prepare(&mut client, "KEYSPACE");
    let star = prepare(&mut client, "SELECT *");
    let dropped = prepare(&mut client, "SELECT dropped");
    server.handler.schema.fetch_add(1, Ordering::SeqCst);
    assert_eq!(execute(&mut client, &fixed, 0).result_kind(), 2);
    assert_eq!(execute(&mut client, &star, 0).error().0, 0x2500);
    assert_eq!(execute(&mut client, &dropped, 0).error().0, 0x2500);
    let again = prepare(&mut client, "SELECT *");
    assert_eq!(again.0, star.0);
    assert_ne!(again.1, star.1);
    assert_eq!(execute(&mut client, &star, 2).body[4..8], [0, 0, 0, 9]);
    assert_eq!(execute(&mut client, &again, 2).body[4..8], [0, 0, 0, 5]);
}

#[test]
fn preparing_without_keyspace_names_warns_once() {
    let server = serve();
    let mut client = Client::ready(server.address, 4);
    client.ask("USE shop");
    let body = long_string("SELECT unqualified");
    let answer = client.call(PREPARE, &body);
    assert_eq!(answer.flags, 8);
    assert!(String::from_utf8_lossy(&answer.body).contains("anti-pattern"));
    assert_eq!(client.call(PREPARE, &body).flags, 0);
}

#[test]
fn statements_take_the_room_that_they_say() {
    let of_size = |prepared_statements_cache_size_bytes| {
        serve_with(ServerOptions { prepared_statements_cache_size_bytes, ..ServerOptions::default() })
    };
    let server = of_size(1 << 19);
    let mut client = Client::ready(server.address, 4);
    let (code, text) = client.call(PREPARE, &long_string("SELECT huge")).error();
    assert_eq!(code, 0x2200);
    assert!(text.starts_with("Prepared statement of size 10"), "{text}");
    assert!(text.ends_with(" bytes is larger than allowed maximum of 524288 bytes: SELECT huge..."), "{text}");
    // Two of them fit.
    let server = of_size(3 << 20);
    let mut client = Client::ready(server.address, 4);
    let ids: Vec<_> = (0..20).map(|number| prepare(&mut client, &format!("SELECT huge {number}"))).collect();
    let mut other = Client::ready(server.address, 4);
    let known = ids.iter().filter(|ids| execute(&mut other, ids, 0).opcode == RESULT).count();
    assert!((1..=2).contains(&known), "{known} of 20 statements are kept");
}
