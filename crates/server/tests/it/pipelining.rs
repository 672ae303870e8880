//! Many requests at once: order, limits, timeouts, and the end of a connection.

use crate::fake::{serve, serve_on_one_thread, serve_with, serve_with_limit};
use crate::wire::{Client, QUERY, query};
use server::ServerOptions;
use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn answers_come_when_they_are_ready() {
    let server = serve();
    let mut client = Client::ready(server.address, 5);
    client.query(1, "WAIT 2");
    client.query(2, "WAIT 1");
    client.query(3, "KEYSPACE");
    assert_eq!(client.receive().unwrap().stream, 3);
    server.handler.gate.send_replace(1);
    assert_eq!(client.receive().unwrap().stream, 2);
    server.handler.gate.send_replace(2);
    assert_eq!(client.receive().unwrap().stream, 1);
}

#[test]
fn thousands_may_wait_on_one_connection() {
    let server = serve();
    let mut client = Client::ready(server.address, 4);
    let count = 5000;
    let body = query(4, "WAIT 1");
    let frames: Vec<u8> = (0..count).flat_map(|stream| client.frame(stream, QUERY, 0, &body)).collect();
    client.socket.write_all(&frames).unwrap();
    client.query(count, "KEYSPACE");
    // All of them are pending, because the request after them is answered.
    assert_eq!(client.receive().unwrap().stream, count);
    server.handler.gate.send_replace(1);
    let streams: HashSet<i16> = (0..count).map(|_| client.receive().unwrap().stream).collect();
    assert_eq!(streams, (0..count).collect());
    // There was not a system call for each answer.
    assert!(server.metrics.socket_writes.get() < u64::from(count as u16) / 2);
}

/// The first of them holds the only thread until the other client's request has arrived.
#[test]
fn requests_that_can_go_on_at_the_same_moment_do_so_in_turns_with_other_clients() {
    // How many requests fit a turn depends on the machine: on a fast one, all may.
    assert!((0..20).any(|_| is_other_client_served_between()), "the other client waited for all of them");
}

fn is_other_client_served_between() -> bool {
    const REQUESTS: i16 = 50;
    let server = serve_on_one_thread();
    let (mut many, mut other) = (Client::ready(server.address, 4), Client::ready(server.address, 4));
    (0..REQUESTS).for_each(|stream| many.query(stream, "WORK"));
    many.query(REQUESTS, "KEYSPACE");
    assert_eq!(many.receive().unwrap().stream, REQUESTS, "all of them are in flight");
    server.handler.gate.send_replace(1);
    other.query(1, "EXECUTED");
    server.handler.may_work.store(true, Ordering::SeqCst);
    let executed: i16 = other.receive().unwrap().last_cell().parse().unwrap();
    let streams: HashSet<i16> = (0..REQUESTS).map(|_| many.receive().unwrap().stream).collect();
    assert_eq!(streams, (0..REQUESTS).collect());
    executed < REQUESTS
}

#[test]
fn requests_in_flight_end_in_turns_when_their_client_has_left() {
    let server = serve_on_one_thread();
    let mut client = Client::ready(server.address, 4);
    (0..20).for_each(|stream| client.query(stream, "WORK"));
    client.query(20, "KEYSPACE");
    client.receive().unwrap();
    drop(client);
    server.handler.may_work.store(true, Ordering::SeqCst);
    server.handler.gate.send_replace(1);
    while server.handler.executed.load(Ordering::SeqCst) < 1 + 20 {
        std::thread::yield_now();
    }
}

#[test]
fn a_connection_with_too_much_under_way_is_not_read() {
    let server = serve_with(ServerOptions { requests_in_flight_max: 10, ..ServerOptions::default() });
    let mut client = Client::ready(server.address, 4);
    let body = query(4, "WAIT 1");
    for stream in 0..100 {
        client.send(stream, QUERY, &body);
    }
    while server.metrics.connections_paused.get() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(server.metrics.requests.get(), 1 + 10);
    server.handler.gate.send_replace(1);
    let streams: HashSet<i16> = (0..100).map(|_| client.receive().unwrap().stream).collect();
    assert_eq!(streams.len(), 100);
}

#[test]
fn overload_is_reported_to_clients_that_asked_for_overload_errors() {
    let server = serve_with(ServerOptions { requests_in_flight_max: 2, ..ServerOptions::default() });
    let mut client = Client::connect(server.address, 4);
    client.call(1, &crate::wire::startup(&[("CQL_VERSION", "3.0.0"), ("THROW_ON_OVERLOAD", "1")]));
    for stream in 0..3 {
        client.query(stream, "WAIT 1");
    }
    let answer = client.receive().unwrap();
    assert_eq!((answer.stream, answer.error().0), (2, 0x1001));
}

#[test]
fn a_client_that_does_not_read_its_answers_does_not_fill_memory() {
    let server = serve();
    let mut client = Client::ready(server.address, 4);
    // The requests ask for answers of 200 MiB.
    let body = query(4, "ROW 1000000");
    for stream in 0..200 {
        client.send(stream, QUERY, &body);
    }
    while server.metrics.connections_paused.get() == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(100));
    let executed = server.handler.executed.load(Ordering::SeqCst);
    assert!(executed < 100, "{executed} answers were made for a client that reads none");
    for _ in 0..200 {
        assert_eq!(client.receive().unwrap().result_kind(), 2);
    }
}

#[test]
fn a_large_answer_is_cut_into_segments() {
    let server = serve();
    let mut client = Client::ready(server.address, 5);
    for size in [131_000, 131_071, 500_000] {
        assert!(client.ask(&format!("ROW {size}")).body.len() > size);
    }
}

#[test]
fn a_write_that_takes_too_long_is_answered_with_a_timeout() {
    let server = serve_with_limit(ServerOptions::default(), Duration::from_millis(50));
    let mut client = Client::ready(server.address, 4);
    let answer = client.ask("INSERT");
    let (code, text) = answer.error();
    assert_eq!((code, text.as_str()), (0x1100, "Operation timed out - received only 0 responses."));
    assert!(answer.body.ends_with(b"\0\x01\0\0\0\0\0\0\0\x01\0\x06SIMPLE"));
    assert_eq!(server.handler.gate.receiver_count(), 0, "nobody waits any more");
    assert_eq!(server.handler.executed.load(Ordering::SeqCst), 0);
}

#[test]
fn a_truncation_that_blocks_its_thread_times_out_and_delays_no_other_request() {
    let server = serve_with_limit(ServerOptions::default(), Duration::from_millis(200));
    let mut client = Client::ready(server.address, 4);
    client.query(1, "TRUNCATE t");
    client.query(2, "KEYSPACE");
    assert_eq!(client.receive().unwrap().stream, 2);
    let (code, text) = client.receive().unwrap().error();
    assert_eq!((code, text.as_str()), (0x1003, "Truncate timed out - received only 0 responses"));
    server.handler.gate.send_replace(1);
    while server.handler.executed.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
}

#[test]
fn a_scan_of_a_client_that_left_ends() {
    let server = serve_with_limit(ServerOptions::default(), Duration::from_secs(3600));
    let mut client = Client::ready(server.address, 4);
    client.query(1, "SCAN");
    client.query(2, "KEYSPACE");
    assert_eq!(client.receive().unwrap().stream, 2, "the scan runs beside the connection");
    server.handler.wait_for_scans(1);
    drop(client);
    server.handler.wait_for_scans(0);
}

#[test]
fn work_of_a_client_that_left_is_finished() {
    let server = serve();
    let mut client = Client::ready(server.address, 4);
    client.query(1, "WAIT 1");
    client.query(2, "KEYSPACE");
    assert_eq!(client.receive().unwrap().stream, 2);
    drop(client);
    server.handler.gate.send_replace(1);
    while server.handler.executed.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
}

#[test]
fn a_stop_answers_pending_requests_and_accepts_no_new_ones() {
    let mut server = serve();
    let mut client = Client::ready(server.address, 4);
    client.query(1, "WAIT 1");
    client.query(2, "KEYSPACE");
    assert_eq!(client.receive().unwrap().stream, 2);
    let gate = server.handler.gate.clone();
    let releaser = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        gate.send_replace(1);
    });
    server.stop();
    releaser.join().unwrap();
    assert_eq!(client.receive().unwrap().stream, 1);
    assert_eq!(client.receive(), None);
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

/// A request on a thread that may wait is cancelled: the gate never opens.
#[test]
fn stopping_waits_for_no_scan_and_ends_it() {
    let mut server = serve();
    let mut client = Client::ready(server.address, 4);
    client.query(1, "SCAN");
    client.query(2, "KEYSPACE");
    assert_eq!(client.receive().unwrap().stream, 2);
    server.handler.wait_for_scans(1);
    server.stop();
    assert_eq!(client.receive(), None);
    // The stop waits for no thread of a pool, but it cancels the scan, which then ends.
    while server.handler.executed.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
}

#[test]
fn connections_beyond_the_limit_are_cut() {
    let server = serve_with(ServerOptions { connections_max: Some(1), ..ServerOptions::default() });
    let mut first = Client::ready(server.address, 4);
    let mut second = Client::connect(server.address, 4);
    assert_eq!(second.receive(), None);
    assert_eq!(first.ask("KEYSPACE").result_kind(), 2);
}
