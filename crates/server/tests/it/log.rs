//! Writes that wait for the log: a real engine over a disk in memory, behind the server.

use crate::wire::{Client, ERROR, QUERY, RESULT, query};
use blockio::{Fault, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Engine, EngineOptions};
use query::{Processor, ProcessorOptions};
use server::{Listener, Server, ServerOptions};
use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub struct Node {
    pub address: SocketAddr,
    pub engine: Arc<Engine>,
    metrics: Arc<server::Metrics>,
    _runtime: tokio::runtime::Runtime,
}

fn serve(disk: &SimulatedDisk, sync: SyncMode, write_timeout: Duration) -> Node {
    let options = ServerOptions { write_timeout, ..ServerOptions::default() };
    serve_with(disk, sync, options, ProcessorOptions::default())
}

pub fn serve_with(disk: &SimulatedDisk, sync: SyncMode, server: ServerOptions, processor: ProcessorOptions) -> Node {
    let mut options = EngineOptions::new(Arc::new(disk.clone()), "/node");
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 4 << 20;
    options.commitlog.sync = sync;
    options.concurrent_compactors = 0;
    let engine = Engine::open(options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = ServerOptions { listen: ([127, 0, 0, 1], 0).into(), ..server };
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

/// Sends all of them before it reads an answer.
fn send_writes(client: &mut Client, rows: std::ops::Range<i16>) {
    let frame =
        |row: i16| client.frame(row, QUERY, 0, &query(4, &format!("INSERT INTO ks.t (k, v) VALUES ({row}, {row})")));
    let frames: Vec<u8> = rows.flat_map(frame).collect();
    client.socket.write_all(&frames).unwrap();
}

fn count_rows(client: &mut Client) -> i64 {
    let answer = client.ask("SELECT count(*) FROM ks.t");
    // Warnings come before what kind of result it is.
    assert_eq!(answer.opcode, RESULT, "{answer:?}");
    i64::from_be_bytes(answer.body[answer.body.len() - 8..].try_into().unwrap())
}

#[test]
fn writes_of_one_bunch_are_durable_and_answered_together() {
    for sync in [SyncMode::Batch, SyncMode::Group { window: Duration::from_millis(1) }, SyncMode::Each] {
        let node = serve(&SimulatedDisk::new(), sync, Duration::from_secs(20));
        let mut clients: Vec<_> = (0..4).map(|_| Client::ready(node.address, 4)).collect();
        let (frames, writes) = (node.engine.log_metrics().frames, node.metrics.socket_writes.get());
        for (number, client) in (0..).zip(&mut clients) {
            send_writes(client, number * 500..(number + 1) * 500);
        }
        for (number, client) in (0..).zip(&mut clients) {
            let streams: HashSet<i16> = (0..500)
                .map(|_| client.receive().unwrap())
                .inspect(|answer| assert_eq!(answer.result_kind(), 1))
                .map(|answer| answer.stream)
                .collect();
            assert_eq!(streams, (number * 500..(number + 1) * 500).collect());
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

/// The drop waits for them, and they for the connection that has both.
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
fn all_who_wait_are_told_when_the_log_fails() {
    let disk = SimulatedDisk::new();
    let node = serve(&disk, SyncMode::Group { window: Duration::from_millis(100) }, Duration::from_secs(20));
    let mut client = Client::ready(node.address, 4);
    disk.inject(Fault::Fail, 0);
    send_writes(&mut client, 0..100);
    for _ in 0..100 {
        let answer = client.receive().unwrap();
        assert_eq!(answer.opcode, ERROR, "{answer:?}");
    }
    assert!(node.engine.log_closed().is_some());
    assert_eq!(count_rows(&mut client), 0, "reads go on, and nothing is there that was refused");
}

#[test]
fn who_waits_for_too_long_is_told_and_the_write_goes_on() {
    let window = Duration::from_millis(400);
    let node = serve(&SimulatedDisk::new(), SyncMode::Group { window }, Duration::from_millis(20));
    let mut client = Client::ready(node.address, 4);
    send_writes(&mut client, 0..50);
    let streams: HashSet<i16> = (0..50)
        .map(|_| client.receive().unwrap())
        .inspect(|answer| assert_eq!(answer.error().0, 0x1100))
        .map(|answer| answer.stream)
        .collect();
    assert_eq!(streams, (0..50).collect());
    while count_rows(&mut client) < 50 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn writes_of_a_client_that_left_are_finished() {
    let node =
        serve(&SimulatedDisk::new(), SyncMode::Group { window: Duration::from_millis(100) }, Duration::from_secs(20));
    let mut client = Client::ready(node.address, 4);
    let begun = node.metrics.requests.get();
    send_writes(&mut client, 0..50);
    while node.metrics.requests.get() < begun + 50 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(client);
    let mut other = Client::ready(node.address, 4);
    while count_rows(&mut other) < 50 {
        std::thread::sleep(Duration::from_millis(10));
    }
}
