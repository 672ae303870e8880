//! Writes that wait for the log, with a real engine on a simulated disk behind the server.

use crate::wire::{Answer, Client, ERROR, EXECUTE, PREPARE, QUERY, RESULT, long_string, query};
use blockio::{Fault, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Engine, EngineOptions};
use query::{Processor, ProcessorOptions};
use server::{Listener, Server, ServerOptions};
use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub struct Node {
    pub address: SocketAddr,
    pub engine: Arc<Engine>,
    metrics: Arc<server::Metrics>,
    _runtime: tokio::runtime::Runtime,
}

fn serve(disk: &SimulatedDisk, sync: SyncMode, write_timeout: Duration) -> Node {
    serve_with(disk, sync, ProcessorOptions { write_timeout, ..ProcessorOptions::default() })
}

pub fn serve_with(disk: &SimulatedDisk, sync: SyncMode, processor: ProcessorOptions) -> Node {
    let mut options = EngineOptions::new(Arc::new(disk.clone()), "/node");
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 4 << 20;
    options.commitlog.sync = sync;
    options.concurrent_compactors = 0;
    let engine = Engine::open(options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = ServerOptions { listen: ([127, 0, 0, 1], 0).into(), ..ServerOptions::default() };
    let listener = runtime.block_on(Listener::bind(server)).unwrap();
    let address = listener.local_addr();
    let server = Server::new(listener, Arc::new(Processor::new(engine.clone(), processor)));
    let metrics = server.metrics();
    runtime.spawn(server.run(std::future::pending()));
    let mut client = Client::ready(address, 4);
    client
        .ask("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        .result_kind();
    client.ask("CREATE TABLE ks.t (k int PRIMARY KEY, v int)").result_kind();
    Node { address, engine, metrics, _runtime: runtime }
}

/// The form in which a client sends its writes.
enum Form {
    Text,
    /// By the id of a statement that the connection knows. Such writes begin on the connection's own task.
    Prepared(Vec<u8>),
}

impl Form {
    /// Also writes row 0, because a statement is known from its second use on.
    fn prepared(client: &mut Client) -> Form {
        let prepared = client.call(PREPARE, &long_string("INSERT INTO ks.t (k, v) VALUES (?, ?)"));
        let form = Form::Prepared(prepared.body[4..22].to_vec());
        let (opcode, body) = form.write(0);
        assert_eq!(client.call(opcode, &body).result_kind(), 1);
        form
    }

    fn write(&self, row: i16) -> (u8, Vec<u8>) {
        match self {
            Form::Text => (QUERY, query(4, &format!("INSERT INTO ks.t (k, v) VALUES ({row}, {row})"))),
            Form::Prepared(id) => {
                let value = [&[0, 0, 0, 4][..], &i32::from(row).to_be_bytes()].concat();
                (EXECUTE, [&id[..], &[0, 1, 1, 0, 2], &value[..], &value[..]].concat())
            }
        }
    }

    /// Sends all requests before an answer is read.
    fn send(&self, client: &mut Client, rows: Range<i16>) {
        let frame = |row: i16| {
            let (opcode, body) = self.write(row);
            client.frame(row, opcode, 0, &body)
        };
        let frames: Vec<u8> = rows.flat_map(frame).collect();
        client.socket.write_all(&frames).unwrap();
    }
}

/// Receives the answers to the writes of these rows, in any order, and checks each.
fn receive(client: &mut Client, rows: Range<i16>, check: impl Fn(&Answer)) {
    let answers = rows.clone().map(|_| client.receive().unwrap()).inspect(check);
    let streams: HashSet<i16> = answers.map(|answer| answer.stream).collect();
    assert_eq!(streams, rows.collect());
}

fn count_rows(client: &mut Client) -> i64 {
    let answer = client.ask("SELECT count(*) FROM ks.t");
    // The warnings come before the kind of the result.
    assert_eq!(answer.opcode, RESULT, "{answer:?}");
    i64::from_be_bytes(answer.body[answer.body.len() - 8..].try_into().unwrap())
}

#[test]
fn writes_of_one_batch_are_durable_and_answered_together() {
    for sync in [SyncMode::Batch, SyncMode::Group { window: Duration::from_millis(1) }, SyncMode::Each] {
        let node = serve(&SimulatedDisk::new(), sync, Duration::from_secs(20));
        let mut clients: Vec<_> = (0..4).map(|_| Client::ready(node.address, 4)).collect();
        let (frames, writes) = (node.engine.log_metrics().frames, node.metrics.socket_writes.get());
        for (number, client) in (0..).zip(&mut clients) {
            Form::Text.send(client, number * 500..(number + 1) * 500);
        }
        for (number, client) in (0..).zip(&mut clients) {
            receive(client, number * 500..(number + 1) * 500, |answer| assert_eq!(answer.result_kind(), 1));
        }
        assert_eq!(count_rows(&mut clients[0]), 2000);
        let log = node.engine.log_metrics();
        assert_eq!(log.pending_tasks, 0);
        if sync != SyncMode::Each {
            assert!(log.frames - frames < 1000, "{} device writes", log.frames - frames);
            assert!(node.metrics.socket_writes.get() - writes < 1000);
        }
    }
}

#[test]
fn prepared_writes_of_one_read_are_all_visible_when_they_are_answered() {
    for sync in [SyncMode::Batch, SyncMode::Group { window: Duration::from_millis(1) }, SyncMode::Each] {
        let node = serve(&SimulatedDisk::new(), sync, Duration::from_secs(20));
        let mut client = Client::ready(node.address, 4);
        let form = Form::prepared(&mut client);
        form.send(&mut client, 1..500);
        receive(&mut client, 1..500, |answer| assert_eq!(answer.body, [0, 0, 0, 1], "{answer:?}"));
        assert_eq!(count_rows(&mut client), 500, "{sync:?}");
    }
}

/// The drop waits for the writes, and the writes wait for the connection that sends both.
#[test]
fn a_table_is_dropped_behind_writes_of_the_same_connection_that_wait() {
    let group = SyncMode::Group { window: Duration::from_millis(50) };
    for (sync, drop) in [
        (SyncMode::Batch, "DROP TABLE ks.t"),
        (group, "drop table ks.t"),
        (SyncMode::Each, "/* all */ DROP TABLE ks.t"),
    ] {
        let node = serve(&SimulatedDisk::new(), sync, Duration::from_secs(20));
        let mut client = Client::ready(node.address, 4);
        let insert = |row: i16| format!("INSERT INTO ks.t (k, v) VALUES ({row}, {row})");
        let statements = (0..50).map(insert).chain([drop.to_string()]);
        let frames = (0..).zip(statements).flat_map(|(stream, text)| client.frame(stream, QUERY, 0, &query(4, &text)));
        let frames: Vec<u8> = frames.collect();
        client.socket.write_all(&frames).unwrap();
        let answers: HashSet<i16> = (0..51).map(|_| client.receive().unwrap()).map(|answer| answer.stream).collect();
        assert_eq!(answers, (0..51).collect(), "{sync:?}");
        assert_eq!(client.ask("SELECT * FROM ks.t").opcode, ERROR);
    }
}

#[test]
fn all_waiting_writes_fail_when_the_log_fails() {
    for of in [|_: &mut Client| Form::Text, Form::prepared] {
        let disk = SimulatedDisk::new();
        let node = serve(&disk, SyncMode::Group { window: Duration::from_millis(100) }, Duration::from_secs(20));
        let mut client = Client::ready(node.address, 4);
        let form = of(&mut client);
        let before = count_rows(&mut client);
        disk.inject(Fault::Fail, 0);
        form.send(&mut client, 1..100);
        receive(&mut client, 1..100, |answer| assert_eq!(answer.opcode, ERROR, "{answer:?}"));
        assert!(node.engine.log_closed().is_some());
        form.send(&mut client, 100..110);
        receive(&mut client, 100..110, |answer| {
            assert_eq!(answer.opcode, ERROR, "those that come later too: {answer:?}")
        });
        assert_eq!(count_rows(&mut client), before, "reads go on, and nothing is there that was refused");
    }
}

#[test]
fn a_write_that_times_out_is_answered_and_continues() {
    let window = Duration::from_millis(400);
    let node = serve(&SimulatedDisk::new(), SyncMode::Group { window }, Duration::from_millis(20));
    let mut client = Client::ready(node.address, 4);
    // A write of a known statement gets the timeout already at its first use, and continues too.
    let prepared = client.call(PREPARE, &long_string("INSERT INTO ks.t (k, v) VALUES (?, ?)"));
    let prepared = Form::Prepared(prepared.body[4..22].to_vec());
    for (form, rows) in [(&Form::Text, 0..50), (&prepared, 50..51), (&prepared, 51..100)] {
        form.send(&mut client, rows.clone());
        receive(&mut client, rows, |answer| assert_eq!(answer.error().0, 0x1100));
    }
    while count_rows(&mut client) < 100 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn writes_of_a_client_that_left_are_finished() {
    for of in [|_: &mut Client| Form::Text, Form::prepared] {
        let window = Duration::from_millis(100);
        let node = serve(&SimulatedDisk::new(), SyncMode::Group { window }, Duration::from_secs(20));
        let mut client = Client::ready(node.address, 4);
        let form = of(&mut client);
        let begun = node.metrics.requests.get();
        form.send(&mut client, 0..50);
        while node.metrics.requests.get() < begun + 50 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(client);
        let mut other = Client::ready(node.address, 4);
        while count_rows(&mut other) < 50 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
