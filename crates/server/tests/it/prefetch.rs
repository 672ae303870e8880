//! The memory that requests will read is prefetched before the first of them is begun.

use crate::fake::{Running, serve};
use crate::prepared::prepare;
use crate::wire::{Client, EXECUTE, QUERY, query};
use std::io::Write;

/// EXECUTE's body; the value may be null.
fn execute(id: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let mut body = [&(id.len() as u16).to_be_bytes()[..], id, &[0, 1, 1, 0, 1]].concat();
    body.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
    body.extend_from_slice(value.unwrap_or_default());
    body
}

/// Sends all in one go, and waits for the answers.
fn pipeline(client: &mut Client, requests: &[(u8, Vec<u8>)]) {
    let frames = requests.iter().zip(0..).flat_map(|((opcode, body), stream)| client.frame(stream, *opcode, 0, body));
    let frames: Vec<u8> = frames.collect();
    client.socket.write_all(&frames).unwrap();
    requests.iter().for_each(|_| drop(client.receive().unwrap()));
}

/// The statements that were passed to the prefetch since the last call.
fn prefetched(server: &Running) -> Vec<Option<Vec<u8>>> {
    let offered = std::mem::take(&mut *server.handler.prefetched.lock().unwrap());
    assert!(offered.iter().all(|(text, _)| text == "SELECT 1"), "{offered:?}");
    offered.into_iter().map(|(_, value)| value).collect()
}

#[test]
fn statements_that_the_connection_has_used_are_offered_before_their_requests_begin() {
    let server = serve();
    let mut client = Client::ready(server.address, 4);
    let (id, _) = prepare(&mut client, "SELECT 1");
    client.call(EXECUTE, &execute(&id, Some(b"first")));
    assert_eq!(prefetched(&server), [], "the connection had not used it yet");
    let known = |key: Option<&'static [u8]>| (EXECUTE, execute(&id, key));
    let other = (QUERY, query(4, "SELECT 1"));
    let unknown = (EXECUTE, execute(&[9; 16], Some(b"u")));
    pipeline(&mut client, &[known(Some(b"a")), other, known(None), unknown, known(Some(b"b"))]);
    assert_eq!(prefetched(&server), [Some(b"a".to_vec()), None, Some(b"b".to_vec())]);
}
