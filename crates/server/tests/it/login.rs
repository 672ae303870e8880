//! The login of a client, with a real engine on a simulated disk behind the server.

use crate::wire::{Client, ERROR, OPTIONS, PREPARE, QUERY, RESULT, long_string, query, startup, string};
use blockio::SimulatedDisk;
use engine::{Engine, EngineOptions};
use query::{AuthOptions, Authenticator, Processor, ProcessorOptions};
use server::{Listener, Server, ServerOptions};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use testkit::{Random, seed};
use tokio::runtime::Runtime;

const AUTHENTICATE: u8 = 3;
const AUTH_RESPONSE: u8 = 15;
const AUTH_SUCCESS: u8 = 16;

const BAD_CREDENTIALS: u32 = 0x0100;
const PROTOCOL: u32 = 0x000A;

/// A node whose clients have roles. It ends with the runtime.
fn serve() -> (SocketAddr, Runtime) {
    serve_with(AuthOptions::default().credentials_validity)
}

/// A node that keeps for this time which passwords were right.
fn serve_with(credentials_validity: Duration) -> (SocketAddr, Runtime) {
    let mut options = EngineOptions::new(Arc::new(SimulatedDisk::new()), "/node");
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 4 << 20;
    options.concurrent_compactors = 0;
    let (authenticator, permissions) = (Authenticator::Password, true);
    let auth = AuthOptions { authenticator, permissions, credentials_validity, ..AuthOptions::default() };
    let processor = ProcessorOptions { auth, ..ProcessorOptions::default() };
    let processor = Arc::new(Processor::new(Engine::open(options).unwrap(), processor));
    processor.start_roles().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Tests wait for many hashes in a row.
    let (listen, handshake_timeout) = (([127, 0, 0, 1], 0).into(), Duration::from_secs(60));
    let options = ServerOptions { listen, handshake_timeout, ..ServerOptions::default() };
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
        client.socket.write_all(&frame).unwrap();
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

/// Something that a client may send to an authenticator: nearly right, too short, too long, or nothing of the kind.
fn hostile_token(random: &mut Random) -> Vec<u8> {
    let name = ["cassandra", "nobody", "", "\u{202e}", "' OR 1 = 1 --"][random.below(5)];
    let password = ["wrong", "", "wrong\0", "\0", "x\0cassandra\0wrong"][random.below(5)];
    let mut token = sasl(name, password);
    match random.below(6) {
        0 => token.truncate(random.below(token.len() + 1)),
        1 => token[..4].copy_from_slice(&[i32::MAX, -2, i32::MIN, 100_000][random.below(4)].to_be_bytes()),
        2 => {
            let place = random.below(token.len());
            token[place] = random.number() as u8;
        }
        3 => token = long_string(&"\0".repeat(random.below(100_000))),
        4 => token = (0..random.below(200)).map(|_| random.number() as u8).collect(),
        _ => {}
    }
    token
}

/// A frame of a client that has not logged in.
fn hostile_frame(client: &Client, random: &mut Random) -> Vec<u8> {
    let select = query(client.version, "SELECT cluster_name FROM system.local");
    let (opcode, body) = match random.below(8) {
        0 => (QUERY, select),
        1 => (PREPARE, long_string("SELECT cluster_name FROM system.local")),
        2 => (1, startup(&[("CQL_VERSION", "3.0.0")])),
        // CREDENTIALS of the first version of the protocol.
        3 => (4, [&2_u16.to_be_bytes()[..], &string("username"), &string("cassandra")].concat()),
        4 => (random.number() as u8, hostile_token(random)),
        _ => (AUTH_RESPONSE, hostile_token(random)),
    };
    let flags = if random.one_in(8) { random.number() as u8 } else { 0 };
    let mut frame = client.frame(random.number() as i16, opcode, flags, &body);
    if random.one_in(10) {
        let place = random.below(frame.len());
        frame[place] ^= 1 << random.below(8);
    }
    frame
}

#[test]
fn hostile_bytes_before_a_login_are_refused_and_delay_no_other_client() {
    let (address, _runtime) = serve();
    let mut honest = logged_in(address, "cassandra");
    let mut random = Random(seed(1));
    for number in 0..400 {
        let mut client = Client::connect(address, [3, 4, 5][random.below(3)]);
        if !random.one_in(8) {
            assert_eq!(client.start(&[("CQL_VERSION", "3.0.0")]).opcode, AUTHENTICATE);
        }
        let frames: Vec<u8> = (0..1 + random.below(6)).flat_map(|_| hostile_frame(&client, &mut random)).collect();
        // The server may have closed the connection before it has read everything.
        let _ = client.socket.write_all(&frames).and_then(|()| client.socket.shutdown(Shutdown::Write));
        let mut answers = Vec::new();
        let _ = client.socket.read_to_end(&mut answers);
        let has = |text: &[u8]| answers.windows(text.len()).any(|found| found == text);
        assert!(!has(b"Test Cluster") && !has(b"cluster_name"), "conversation {number}: {answers:?}");
        if number % 20 == 0 {
            assert_eq!(honest.ask("LIST ROLES").result_kind(), 2, "conversation {number}");
        }
    }
    // The failures have closed the way for the address, and the connections that are there go on.
    assert_eq!(honest.ask("SELECT cluster_name FROM system.local").result_kind(), 2);
}

/// Whether a client has an answer to read.
fn is_answered(client: &mut Client) -> bool {
    client.socket.set_nonblocking(true).unwrap();
    let answered = client.socket.peek(&mut [0]).is_ok();
    client.socket.set_nonblocking(false).unwrap();
    answered
}

#[test]
fn logins_of_a_role_with_a_costly_hash_do_not_hold_up_others() {
    let (address, _runtime) = serve_with(Duration::from_secs(3600));
    let mut admin = logged_in(address, "cassandra");
    for number in 0..2 {
        admin.ask(&format!("CREATE ROLE costly{number} WITH LOGIN = true"));
        // It costs four times as much as the other hashes.
        let hash = "$2a$12$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG";
        admin.ask(&format!("ALTER ROLE costly{number} WITH HASHED PASSWORD = '{hash}'"));
    }
    admin.ask("CREATE ROLE r WITH LOGIN = true AND PASSWORD = 'r'");
    let mut locked = asked(address, 4);
    for _ in 0..10 {
        locked.call(AUTH_RESPONSE, &sasl("nobody", "x")).error();
    }
    let attempt = |role: &str| {
        let mut client = asked(address, 4);
        client.send(1, AUTH_RESPONSE, &sasl(role, "wrong"));
        client
    };
    let mut costly: Vec<Client> = (0..4).map(|_| attempt("costly0")).collect();
    logged_in(address, "r");
    assert!(costly.iter_mut().any(|client| !is_answered(client)), "a role has one place for a hash");
    costly.extend((0..4).map(|_| attempt("costly1")));
    // These need no hash, and do not wait for the places.
    logged_in(address, "cassandra");
    locked.call(AUTH_RESPONSE, &sasl("nobody", "x")).error();
    assert!(!is_answered(&mut costly[7]));
    for mut client in costly {
        assert_eq!(client.receive().unwrap().error().0, BAD_CREDENTIALS);
    }
}
