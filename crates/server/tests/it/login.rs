//! The login of a client, with a real engine on a simulated disk behind the server.

use crate::wire::{Client, ERROR, OPTIONS, PREPARE, QUERY, RESULT, long_string, query};
use blockio::SimulatedDisk;
use engine::{Engine, EngineOptions};
use query::{AuthOptions, Authenticator, Processor, ProcessorOptions};
use server::{Listener, Server, ServerOptions};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Runtime;

const AUTHENTICATE: u8 = 3;
const AUTH_RESPONSE: u8 = 15;
const AUTH_SUCCESS: u8 = 16;

const BAD_CREDENTIALS: u32 = 0x0100;
const PROTOCOL: u32 = 0x000A;

/// A node whose clients have roles. It ends with the runtime.
fn serve() -> (SocketAddr, Runtime) {
    let mut options = EngineOptions::new(Arc::new(SimulatedDisk::new()), "/node");
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 4 << 20;
    options.concurrent_compactors = 0;
    let auth = AuthOptions { authenticator: Authenticator::Password, permissions: true, ..AuthOptions::default() };
    let processor = ProcessorOptions { auth, ..ProcessorOptions::default() };
    let processor = Arc::new(Processor::new(Engine::open(options).unwrap(), processor));
    processor.start_roles().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let options = ServerOptions { listen: ([127, 0, 0, 1], 0).into(), ..ServerOptions::default() };
    let listener = runtime.block_on(Listener::bind(options)).unwrap();
    let address = listener.local_addr();
    runtime.spawn(Server::new(listener, processor).run(std::future::pending()));
    (address, runtime)
}

fn sasl(name: &str, password: &str) -> Vec<u8> {
    long_string(&format!("\0{name}\0{password}"))
}

/// A connection that is asked for a password.
fn asked(address: SocketAddr, version: u8) -> Client {
    let mut client = Client::connect(address, version);
    let answer = client.start(&[("CQL_VERSION", "3.0.0")]);
    assert_eq!(answer.opcode, AUTHENTICATE);
    assert_eq!(answer.body, [&[0, 47][..], b"org.apache.cassandra.auth.PasswordAuthenticator"].concat());
    client
}

fn logged_in(address: SocketAddr, name: &str) -> Client {
    let mut client = asked(address, 4);
    assert_eq!(client.call(AUTH_RESPONSE, &sasl(name, name)).opcode, AUTH_SUCCESS);
    client
}

#[test]
fn a_client_logs_in_in_every_version_and_its_statements_are_those_of_its_role() {
    let (address, _runtime) = serve();
    for version in [3, 4, 5] {
        let mut client = asked(address, version);
        let answer = client.call(AUTH_RESPONSE, &sasl("cassandra", "cassandra"));
        assert_eq!((answer.opcode, &answer.body[..]), (AUTH_SUCCESS, &(-1_i32).to_be_bytes()[..]));
        assert_eq!(client.ask("LIST ROLES").result_kind(), 2);
    }
}

#[test]
fn nothing_but_a_login_is_accepted_before_it() {
    let (address, _runtime) = serve();
    for version in [3, 4, 5] {
        let mut client = asked(address, version);
        for (opcode, body, name) in [
            (QUERY, query(version, "SELECT * FROM system.local"), "QUERY"),
            (PREPARE, long_string("SELECT * FROM system.local"), "PREPARE"),
            (OPTIONS, Vec::new(), "OPTIONS"),
            (1, Vec::new(), "STARTUP"),
        ] {
            let refused = (PROTOCOL, format!("Unexpected message {name}, expecting SASL_RESPONSE"));
            assert_eq!(client.call(opcode, &body).error(), refused);
        }
        assert_eq!(client.call(AUTH_RESPONSE, &sasl("cassandra", "cassandra")).opcode, AUTH_SUCCESS);
    }
}

#[test]
fn a_client_that_was_refused_may_try_again() {
    let (address, _runtime) = serve();
    let mut client = asked(address, 5);
    for (token, text) in [
        (sasl("cassandra", "x"), "Provided username cassandra and/or password are incorrect"),
        (sasl("nobody", "x"), "Provided username nobody and/or password are incorrect"),
        (long_string(""), "Password must not be null"),
        ((-1_i32).to_be_bytes().to_vec(), "Password must not be null"),
        (long_string("\0\0x"), "Authentication ID must not be null"),
    ] {
        assert_eq!(client.call(AUTH_RESPONSE, &token).error(), (BAD_CREDENTIALS, text.to_owned()));
    }
    assert_eq!(client.call(AUTH_RESPONSE, &[0, 0, 0, 9, 1]).opcode, ERROR, "the message is cut off");
    assert_eq!(client.call(AUTH_RESPONSE, &sasl("cassandra", "cassandra")).opcode, AUTH_SUCCESS);
    assert_eq!(client.ask("LIST ROLES").result_kind(), 2);
}

#[test]
fn requests_behind_a_login_wait_for_it() {
    let (address, _runtime) = serve();
    let mut client = asked(address, 4);
    client.send(1, AUTH_RESPONSE, &sasl("cassandra", "cassandra"));
    client.send(2, QUERY, &query(4, "LIST ROLES"));
    let answers = [client.receive().unwrap(), client.receive().unwrap()];
    assert_eq!(answers.map(|answer| (answer.stream, answer.opcode)), [(1, AUTH_SUCCESS), (2, RESULT)]);
}

#[test]
fn a_trace_shows_no_password() {
    let (address, _runtime) = serve();
    let mut client = logged_in(address, "cassandra");
    let traced = |client: &mut Client, opcode: u8, body: &[u8]| {
        let frame = client.frame(7, opcode, 2, body);
        std::io::Write::write_all(&mut client.socket, &frame).unwrap();
        client.receive().unwrap();
    };
    traced(&mut client, QUERY, &query(4, "CREATE ROLE r WITH PASSWORD = 'hidden_word'"));
    traced(&mut client, PREPARE, &long_string("ALTER ROLE r WITH PASSWORD = 'hidden_word'"));
    // A trace is written in the background.
    let shown = |client: &mut Client| {
        let mut bytes = client.ask("SELECT * FROM system_traces.sessions").body;
        bytes.extend(client.ask("SELECT * FROM system_traces.events").body);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    loop {
        let text = shown(&mut client);
        assert!(!text.contains("hidden_word"), "{text}");
        if text.contains("CREATE ROLE r WITH PASSWORD *******") && text.contains("ALTER ROLE r WITH PASSWORD *******") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
