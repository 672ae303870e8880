//! A table whose device stalls, with a real engine on a simulated disk behind the server.

use crate::log::serve_with;
use crate::wire::{Client, EXECUTE, PREPARE, RESULT, long_string};
use blockio::SimulatedDisk;
use commitlog::SyncMode;
use query::ProcessorOptions;
use std::collections::HashSet;
use std::time::Duration;

const PERIODIC: SyncMode = SyncMode::Periodic { period: Duration::from_secs(10) };
const LONG: Duration = Duration::from_secs(600);

#[test]
fn requests_that_need_no_read_do_not_wait_for_a_stalled_device() {
    let disk = SimulatedDisk::new();
    let limits = ProcessorOptions {
        read_timeout: LONG,
        range_timeout: LONG,
        write_timeout: LONG,
        ..ProcessorOptions::default()
    };
    let node = serve_with(&disk, PERIODIC, limits);
    let mut client = Client::ready(node.address, 4);
    for statement in [
        "CREATE TABLE ks.stalled (k int PRIMARY KEY, v int, l list<int>)",
        "CREATE TABLE ks.beside (k int PRIMARY KEY, v int)",
        "INSERT INTO ks.stalled (k, v, l) VALUES (1, 7, [1, 2])",
        "INSERT INTO ks.beside (k, v) VALUES (1, 8)",
    ] {
        client.ask(statement).result_kind();
    }
    for name in ["stalled", "beside"] {
        node.engine.flush(node.engine.schema().table("ks", name).unwrap()).unwrap();
    }
    let prepared = read_of_key_1(&mut client, "SELECT v FROM ks.stalled WHERE k = ?");
    let stalled = disk.stall_reads("/ks/stalled-");
    // There are more requests of each kind than threads.
    for stream in (10..42).step_by(4) {
        client.query(stream, "SELECT v FROM ks.stalled WHERE k = 1");
        client.query(stream + 1, "UPDATE ks.stalled SET l[0] = 3 WHERE k = 1");
        client.send(stream + 2, EXECUTE, &prepared);
        client.query(stream + 3, "SELECT sum(v) FROM ks.stalled");
    }
    let beside = "SELECT v FROM ks.beside WHERE k = 1";
    client.query(100, beside);
    assert_eq!(client.receive().unwrap().stream, 100, "another request of the same connection");
    assert_eq!(Client::ready(node.address, 4).ask(beside).body.last(), Some(&8), "another connection");
    drop(stalled);
    let answers: Vec<_> = (10..42).map(|_| client.receive().unwrap()).collect();
    for answer in &answers {
        assert_eq!(answer.opcode, RESULT, "{answer:?}");
        assert!(answer.stream % 4 == 3 || answer.body.last() == Some(&7), "{answer:?}");
    }
    assert_eq!(answers.iter().map(|answer| answer.stream).collect::<HashSet<_>>(), (10..42).collect());
    assert_eq!(client.ask("SELECT l FROM ks.stalled WHERE k = 1").body.last(), Some(&2));
}

/// The body of an EXECUTE of a statement whose marker is a key.
fn read_of_key_1(client: &mut Client, text: &str) -> Vec<u8> {
    let answer = client.call(PREPARE, &long_string(text));
    assert_eq!(answer.result_kind(), 4);
    // The id with its length, consistency ONE, a value.
    [&answer.body[4..22], &[0, 1, 1, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1]].concat()
}
