//! The keys of all requests in a buffer are prefetched before the first request is executed.

use crate::fake::{Running, serve};
use crate::prepared::prepare;
use crate::wire::{Client, EXECUTE, QUERY, query};
use std::io::Write;

/// The body of an EXECUTE. A value may be null.
fn execute(id: &[u8], values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body =
        [&(id.len() as u16).to_be_bytes()[..], id, &[0, 1, 1], &(values.len() as u16).to_be_bytes()].concat();
    for value in values {
        body.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    body
}

/// Sends all requests in one write, and waits for the answers.
fn pipeline(client: &mut Client, requests: &[(u8, Vec<u8>)]) {
    let frames = requests.iter().zip(0..).flat_map(|((opcode, body), stream)| client.frame(stream, *opcode, 0, body));
    let frames: Vec<u8> = frames.collect();
    client.socket.write_all(&frames).unwrap();
    requests.iter().for_each(|_| drop(client.receive().unwrap()));
}

/// A client that has used the statement of this text, and its id.
fn client_of(server: &Running, text: &str) -> (Client, Vec<u8>) {
    let mut client = Client::ready(server.address, 4);
    let (id, _) = prepare(&mut client, text);
    let values = [Some(&b"v"[..]); 2];
    client.call(EXECUTE, &execute(&id, &values[..if text.contains("pair") { 2 } else { 1 }]));
    (client, id)
}

fn looked_ahead(server: &Running) -> Vec<(String, Vec<u8>)> {
    std::mem::take(&mut server.handler.looked_ahead.lock().unwrap())
}

#[test]
fn keys_of_known_statements_are_prefetched_before_their_requests() {
    let server = serve();
    let (mut client, id) = client_of(&server, "SELECT far");
    let keys: Vec<[u8; 1]> = (0..10).map(|key| [key]).collect();
    pipeline(&mut client, &keys.iter().map(|key| (EXECUTE, execute(&id, &[Some(key)]))).collect::<Vec<_>>());
    let expected: Vec<_> = keys.iter().map(|key| ("SELECT far".to_owned(), key.to_vec())).collect();
    assert_eq!(looked_ahead(&server), expected);
}

#[test]
fn a_key_of_several_columns_is_serialized_in_its_order() {
    let server = serve();
    let (mut client, id) = client_of(&server, "SELECT far pair");
    let request = (EXECUTE, execute(&id, &[Some(b"second"), Some(b"1st")]));
    pipeline(&mut client, &vec![request; 4]);
    let key = b"\0\x031st\0\0\x06second\0".to_vec();
    assert_eq!(looked_ahead(&server), vec![("SELECT far pair".to_owned(), key); 4]);
}

#[test]
fn other_requests_and_missing_values_are_skipped() {
    let server = serve();
    let (mut client, id) = client_of(&server, "SELECT far");
    let far = |key: Option<&'static [u8]>| (EXECUTE, execute(&id, &[key]));
    let other = (QUERY, query(4, "SELECT 1"));
    let unknown = (EXECUTE, execute(&[9; 16], &[Some(b"u")]));
    let requests = [far(Some(b"a")), other, far(None), far(Some(b"b")), unknown, far(Some(b"c")), far(Some(b"d"))];
    pipeline(&mut client, &requests);
    let keys: Vec<Vec<u8>> = looked_ahead(&server).into_iter().map(|(_, key)| key).collect();
    assert_eq!(keys, [b"a", b"b", b"c", b"d"]);
}

#[test]
fn nothing_is_prefetched_for_few_requests_or_without_a_gain() {
    let server = serve();
    let (mut client, far) = client_of(&server, "SELECT far");
    let (mut other_client, near) = client_of(&server, "SELECT near");
    pipeline(&mut client, &vec![(EXECUTE, execute(&far, &[Some(b"k")])); 3]);
    pipeline(&mut other_client, &vec![(EXECUTE, execute(&near, &[Some(b"k")])); 10]);
    assert_eq!(looked_ahead(&server), []);
}
