//! Limits on connections and on the memory that requests and answers take.

use crate::fake::{Running, serve_with};
use crate::wire::{Client, ERROR, OPTIONS, QUERY, query, startup};
use query::MemoryBudget;
use server::ServerOptions;
use std::io::{Read, Write};
use std::time::Duration;

const MIB: usize = 1 << 20;

fn serve_in(bytes: usize) -> Running {
    let (request_memory, request_bytes_in_flight_per_ip_max) = (MemoryBudget::new(bytes), bytes);
    serve_with(ServerOptions { request_memory, request_bytes_in_flight_per_ip_max, ..ServerOptions::default() })
}

/// A statement of this many bytes.
fn large(version: u8, size: usize) -> Vec<u8> {
    query(version, &format!("KEYSPACE {}", "x".repeat(size)))
}

/// Begins to send a request that memory is reserved for; what is left of it.
fn begin(server: &Running, client: &mut Client, size: usize) -> Vec<u8> {
    const SENT_BYTES: usize = 200_000;
    let frame = client.frame(1, QUERY, 0, &large(client.version, size));
    let before = server.metrics.bytes_received.get();
    client.socket.write_all(&frame[..SENT_BYTES]).unwrap();
    // The rest is not read before there is memory for the whole request.
    while server.metrics.bytes_received.get() - before < SENT_BYTES as u64 {
        std::thread::yield_now();
    }
    frame[SENT_BYTES..].to_vec()
}

fn wait_until_paused(server: &Running) {
    while server.metrics.connections_paused.get() == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_client_that_does_not_send_startup_is_closed() {
    let handshake_timeout = Duration::from_millis(50);
    let server = serve_with(ServerOptions { handshake_timeout, ..ServerOptions::default() });
    let mut ready = Client::ready(server.address, 5);
    let mut silent = Client::connect(server.address, 4);
    let mut asking = Client::connect(server.address, 4);
    asking.call(OPTIONS, &[]);
    for client in [&mut silent, &mut asking] {
        assert_eq!(client.socket.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(ready.ask("KEYSPACE").result_kind(), 2);
    assert_eq!(server.metrics.connections_closed.get(), 2);
}

#[test]
fn a_request_before_startup_is_small() {
    let server = serve_in(64 * MIB);
    let mut client = Client::connect(server.address, 4);
    let (code, text) = client.call(OPTIONS, &[0; 20_000]).error();
    assert_eq!((code, &text[..]), (0x2200, "Request is too big: length 20009 exceeds maximum allowed length 16384."));
    client.call(1, &startup(&[("CQL_VERSION", "3.0.0")]));
    assert_eq!(client.call(QUERY, &large(4, 20_000)).result_kind(), 2);
}

#[test]
fn a_large_request_waits_for_memory_that_another_has_reserved_and_small_ones_do_not() {
    let server = serve_in(MIB);
    let [mut first, mut second, mut third] = [4, 4, 5].map(|version| Client::ready(server.address, version));
    let rest = begin(&server, &mut first, 900_000);
    assert_eq!(third.ask("KEYSPACE").result_kind(), 2);
    let waits = std::thread::spawn(move || second.call(QUERY, &large(4, 500_000)).result_kind());
    wait_until_paused(&server);
    assert_eq!(third.ask("KEYSPACE").result_kind(), 2);
    first.socket.write_all(&rest).unwrap();
    assert_eq!(first.receive().unwrap().result_kind(), 2);
    assert_eq!(waits.join().unwrap(), 2);
}

#[test]
fn memory_reserved_for_a_request_that_never_ends_comes_back() {
    let server = serve_in(MIB);
    let [mut first, mut second] = [4, 5].map(|version| Client::ready(server.address, version));
    begin(&server, &mut first, 900_000);
    assert_eq!(second.call(QUERY, &large(5, 500_000)).result_kind(), 2, "after some seconds");
    assert_eq!(first.socket.read(&mut [0]).unwrap(), 0, "the first is closed");
}

#[test]
fn a_client_that_asked_for_overload_errors_is_refused_a_large_request_and_stays_connected() {
    let server = serve_in(MIB);
    let mut first = Client::ready(server.address, 4);
    let rest = begin(&server, &mut first, 900_000);
    for version in [4, 5] {
        let mut second = Client::connect(server.address, version);
        let options = [("CQL_VERSION", "3.0.0"), ("THROW_ON_OVERLOAD", "1")];
        second.start(&options);
        let (code, text) = second.call(QUERY, &large(version, 500_000)).error();
        assert_eq!(code, 0x1001, "{text}");
        assert_eq!(second.ask("KEYSPACE").result_kind(), 2);
    }
    first.socket.write_all(&rest).unwrap();
    assert_eq!(first.receive().unwrap().result_kind(), 2);
}

#[test]
fn connections_beyond_the_limit_are_cut() {
    let server = serve_with(ServerOptions { connections_per_ip_max: Some(2), ..ServerOptions::default() });
    let _first = Client::ready(server.address, 5);
    let mut second = Client::ready(server.address, 5);
    let mut third = Client::connect(server.address, 5);
    assert_eq!(third.socket.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(second.ask("KEYSPACE").result_kind(), 2);
}

fn serve_at_rate(requests_per_second: u32) -> Running {
    let requests_per_second_max = std::num::NonZeroU32::new(requests_per_second);
    serve_with(ServerOptions { requests_per_second_max, ..ServerOptions::default() })
}

#[test]
fn requests_above_the_rate_are_refused_to_clients_that_asked_for_overload_errors() {
    let server = serve_at_rate(1);
    for version in [4, 5] {
        let mut client = Client::connect(server.address, version);
        client.start(&[("CQL_VERSION", "3.0.0"), ("THROW_ON_OVERLOAD", "1")]);
        let refused = (0..4).map(|_| client.ask("KEYSPACE")).find(|answer| answer.opcode == ERROR);
        let (code, text) =
            refused.expect("four requests are more than a burst of one second and the next slot").error();
        let expected = "Request breached global limit of 1 requests/second. Server is currently in an overloaded state and \
                        cannot accept more requests.";
        assert_eq!((code, &text[..]), (0x1001, expected));
    }
}

#[test]
fn requests_above_the_rate_wait_for_their_slots() {
    let server = serve_at_rate(20);
    let mut client = Client::ready(server.address, 5);
    for stream in 0..26 {
        client.query(stream, "KEYSPACE");
    }
    for _ in 0..26 {
        assert_eq!(client.receive().unwrap().result_kind(), 2);
    }
    assert!(server.metrics.connections_paused.get() > 0, "the slots after the burst are waited for");
}
