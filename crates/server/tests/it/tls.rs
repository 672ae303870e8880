//! Clients with TLS.

use crate::fake::{Running, serve_with};
use crate::wire::{Client, QUERY, READY, query, startup};
use query::MemoryBudget;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use server::rustls::crypto::ring::default_provider;
use server::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use server::rustls::server::WebPkiClientVerifier;
use server::rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use server::{ServerOptions, Tls};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

type Stream = StreamOwned<ClientConnection, TcpStream>;
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    fn identity(&self, last_year: i32) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.not_after = date_time_ymd(last_year, 12, 31);
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        (vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    fn server(&self, requires_certificates: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let builder = match requires_certificates {
            true => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
            false => builder.with_no_client_auth(),
        };
        let (chain, key) = self.identity(4000);
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }

    /// A client that trusts this authority, and shows a certificate if it has one.
    fn client(&self, identity: Option<Identity>) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(self.roots());
        Arc::new(match identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        })
    }
}

fn serve_tls(
    config: Arc<ServerConfig>,
    optional: bool,
    options: ServerOptions,
) -> (Running, watch::Sender<Arc<ServerConfig>>) {
    let (sender, config) = watch::channel(config);
    (serve_with(ServerOptions { tls: Some(Tls { config, optional }), ..options }), sender)
}

/// A client after STARTUP; `None` if the handshake fails.
fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Option<Stream> {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let session = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(session, socket);
    let (opcode, _) = call(&mut stream, 1, &startup(&[("CQL_VERSION", "3.0.0")])).ok()?;
    assert_eq!(opcode, READY);
    Some(stream)
}

/// The opcode and the body of the answer, in version 4.
fn call(stream: &mut Stream, opcode: u8, body: &[u8]) -> std::io::Result<(u8, Vec<u8>)> {
    let head = [&[4, 0, 0, 1, opcode][..], &(body.len() as u32).to_be_bytes()].concat();
    stream.write_all(&[&head, body].concat())?;
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_be_bytes(head[5..].try_into().unwrap()) as usize];
    stream.read_exact(&mut body)?;
    Ok((head[4], body))
}

/// The kind of the result of a statement.
fn ask(stream: &mut Stream, text: &str) -> u32 {
    let (opcode, body) = call(stream, QUERY, &query(4, text)).unwrap();
    assert_eq!(opcode, crate::wire::RESULT);
    u32::from_be_bytes(body[..4].try_into().unwrap())
}

/// A client sees the end of its connection before the server counts it.
fn wait_until_closed(server: &Running, connections: u64) {
    let end = Instant::now() + Duration::from_secs(20);
    while server.metrics.connections_closed.get() < connections && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.metrics.connections_closed.get(), connections);
}

#[test]
fn the_first_byte_decides_where_tls_is_optional() {
    let authority = Authority::new();
    let (server, _config) = serve_tls(authority.server(false), true, ServerOptions::default());
    let mut tls = connect(server.address, &authority.client(None)).unwrap();
    let mut plain = Client::ready(server.address, 5);
    assert_eq!(ask(&mut tls, "KEYSPACE"), 2);
    assert_eq!(plain.ask("KEYSPACE").result_kind(), 2);
}

#[test]
fn a_plain_client_is_disconnected_where_tls_is_required_and_others_stay() {
    let authority = Authority::new();
    let (server, _config) = serve_tls(authority.server(false), false, ServerOptions::default());
    let mut tls = connect(server.address, &authority.client(None)).unwrap();
    let random: Vec<u8> = (0..4000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let as_record = [&[0x16, 3, 1, 0x10, 0][..], &random].concat();
    for garbage in [&startup(&[("CQL_VERSION", "3.0.0")])[..], &random, &as_record, &[0x16, 3, 1, 0xFF, 0xFF]] {
        let mut client = Client::connect(server.address, 4);
        client.socket.write_all(garbage).unwrap();
        // An alert may come first.
        let mut answer = Vec::new();
        let _ = client.socket.read_to_end(&mut answer);
        assert!(answer.len() < 20, "{answer:?}");
        assert_eq!(ask(&mut tls, "KEYSPACE"), 2);
    }
    wait_until_closed(&server, 4);
}

#[test]
fn certificates_of_clients_are_checked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (server, _config) = serve_tls(authority.server(true), false, ServerOptions::default());
    for (identity, is_accepted) in [
        (Some(authority.identity(4000)), true),
        (Some(authority.identity(2020)), false),
        (Some(other.identity(4000)), false),
        (None, false),
    ] {
        let client = connect(server.address, &authority.client(identity));
        assert_eq!(client.is_some(), is_accepted);
    }
    assert!(connect(server.address, &other.client(Some(authority.identity(4000)))).is_none(), "it trusts another");
}

#[test]
fn new_certificates_serve_new_connections_and_the_others_stay() {
    let (authority, renewed) = (Authority::new(), Authority::new());
    let (server, config) = serve_tls(authority.server(false), false, ServerOptions::default());
    let mut before = connect(server.address, &authority.client(None)).unwrap();
    config.send_replace(renewed.server(false));
    let mut after = connect(server.address, &renewed.client(None)).unwrap();
    assert!(connect(server.address, &authority.client(None)).is_none());
    for stream in [&mut before, &mut after] {
        assert_eq!(ask(stream, "KEYSPACE"), 2);
    }
}

#[test]
fn slow_handshakes_end_and_delay_no_other_client() {
    let authority = Authority::new();
    let options = ServerOptions { handshake_timeout: Duration::from_secs(2), ..ServerOptions::default() };
    for optional in [false, true] {
        let (server, _config) = serve_tls(authority.server(false), optional, options.clone());
        let mut slow: Vec<_> = (0..50).map(|_| Client::connect(server.address, 4)).collect();
        for client in slow.iter_mut().step_by(2) {
            client.socket.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        }
        let mut tls = connect(server.address, &authority.client(None)).unwrap();
        for client in &mut slow {
            assert_eq!(client.socket.read(&mut [0]).unwrap(), 0);
        }
        assert_eq!(ask(&mut tls, "KEYSPACE"), 2);
        wait_until_closed(&server, 50);
    }
}

#[test]
fn handshakes_that_do_not_end_take_no_memory_of_their_address() {
    let authority = Authority::new();
    let memory = 256 * 1024;
    let options = ServerOptions {
        request_memory: MemoryBudget::new(memory),
        request_bytes_in_flight_per_ip_max: memory,
        handshake_timeout: Duration::from_secs(60),
        ..ServerOptions::default()
    };
    let (server, _config) = serve_tls(authority.server(false), false, options);
    // Each has sent the begin of a message of 64 KiB.
    let begin = [&[0x16, 3, 1, 0x40, 0, 1, 0, 0xFF, 0xFF][..], &[0; 2000]].concat();
    let begun: Vec<_> = (0..40)
        .map(|_| {
            let mut client = Client::connect(server.address, 4);
            client.socket.write_all(&begin).unwrap();
            client
        })
        .collect();
    let started = Instant::now();
    let mut tls = connect(server.address, &authority.client(None)).unwrap();
    assert_eq!(ask(&mut tls, "KEYSPACE"), 2);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    drop(begun);
}

#[test]
fn handshakes_count_among_the_connections() {
    let authority = Authority::new();
    let options = ServerOptions { connections_max: Some(1), ..ServerOptions::default() };
    let (server, _config) = serve_tls(authority.server(false), false, options);
    let silent = Client::connect(server.address, 4);
    while server.metrics.connections_accepted.get() == 0 {
        std::thread::yield_now();
    }
    assert!(connect(server.address, &authority.client(None)).is_none());
    drop(silent);
    while connect(server.address, &authority.client(None)).is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn large_requests_and_answers_arrive() {
    let authority = Authority::new();
    let (server, _config) = serve_tls(authority.server(false), false, ServerOptions::default());
    let mut stream = connect(server.address, &authority.client(None)).unwrap();
    assert_eq!(ask(&mut stream, &format!("KEYSPACE {}", "x".repeat(3_000_000))), 2);
    for size in [1, 16_384, 100_000, 5_000_000] {
        let (opcode, body) = call(&mut stream, QUERY, &query(4, &format!("ROW {size}"))).unwrap();
        assert_eq!(opcode, crate::wire::RESULT);
        assert!(body.len() >= size, "{} of {size}", body.len());
    }
}

#[test]
fn a_port_for_tls_leaves_the_other_plain() {
    let authority = Authority::new();
    // The test needs a port that is free.
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let options = ServerOptions { listen_tls: Some(free), ..ServerOptions::default() };
    let (server, _config) = serve_tls(authority.server(false), false, options);
    assert_eq!(Client::ready(server.address, 5).ask("KEYSPACE").result_kind(), 2);
    assert_eq!(ask(&mut connect(free, &authority.client(None)).unwrap(), "KEYSPACE"), 2);
}

#[test]
fn a_stop_ends_connections_with_tls_and_handshakes() {
    let authority = Authority::new();
    let (mut server, _config) = serve_tls(authority.server(false), false, ServerOptions::default());
    let mut stream = connect(server.address, &authority.client(None)).unwrap();
    let mut silent = Client::connect(server.address, 4);
    server.stop();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "TLS says that the connection ends");
    assert_eq!(silent.socket.read(&mut [0]).unwrap_or(0), 0);
}
