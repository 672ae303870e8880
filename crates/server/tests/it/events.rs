//! Events for registered clients.

use crate::fake::serve;
use crate::wire::{Client, EVENT, READY, REGISTER, RESULT, string};

fn register(client: &mut Client, types: &[&str]) {
    let mut body = (types.len() as u16).to_be_bytes().to_vec();
    types.iter().for_each(|name| body.extend_from_slice(&string(name)));
    assert_eq!(client.call(REGISTER, &body).opcode, READY);
}

#[test]
fn a_schema_change_reaches_every_registered_connection() {
    let server = serve();
    let mut watchers: Vec<_> = [3, 4, 5].map(|version| Client::ready(server.address, version)).into();
    watchers.iter_mut().for_each(|watcher| register(watcher, &["SCHEMA_CHANGE", "STATUS_CHANGE"]));
    let mut deaf = Client::ready(server.address, 5);
    register(&mut deaf, &["TOPOLOGY_CHANGE"]);
    let mut actor = Client::ready(server.address, 4);
    assert_eq!(actor.ask("CREATE t1").result_kind(), 5);
    for watcher in &mut watchers {
        let event = watcher.receive().unwrap();
        assert_eq!((event.opcode, event.stream), (EVENT, -1));
        assert_eq!(event.body, b"\0\x0dSCHEMA_CHANGE\0\x07CREATED\0\x05TABLE\0\x02ks\0\x02t1");
    }
    assert_eq!(deaf.ask("KEYSPACE").opcode, RESULT);
}

#[test]
fn events_for_the_tables_of_a_dropped_keyspace_come_before_its_own() {
    let server = serve();
    let mut watcher = Client::ready(server.address, 4);
    register(&mut watcher, &["SCHEMA_CHANGE"]);
    let answer = Client::ready(server.address, 4).ask("DROP");
    assert_eq!(answer.body[4..], *b"\0\x07DROPPED\0\x08KEYSPACE\0\x02ks");
    assert_eq!(watcher.receive().unwrap().body, b"\0\x0dSCHEMA_CHANGE\0\x07DROPPED\0\x05TABLE\0\x02ks\0\x01t");
    assert_eq!(watcher.receive().unwrap().body, b"\0\x0dSCHEMA_CHANGE\0\x07DROPPED\0\x08KEYSPACE\0\x02ks");
}

#[test]
fn an_unknown_event_is_refused() {
    let server = serve();
    let body = [&[0, 1], &string("NOSUCH_EVENT")[..]].concat();
    let (code, text) = Client::ready(server.address, 4).call(REGISTER, &body).error();
    assert_eq!((code, text.as_str()), (0x000A, "Invalid value 'NOSUCH_EVENT' for Type"));
}
