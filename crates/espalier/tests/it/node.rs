//! A node in a temporary directory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A running node; killed when dropped.
pub struct Node {
    pub process: Child,
    pub address: SocketAddr,
    /// The log lines before it listened.
    pub started: String,
    log: BufReader<std::process::ChildStderr>,
}

/// Opcodes of the native protocol.
const ERROR: u8 = 0;
const STARTUP: u8 = 1;
const QUERY: u8 = 7;
const AUTH_RESPONSE: u8 = 15;

/// `espalier` with these arguments, and without options from the test's environment.
pub fn espalier(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_espalier"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ESPALIER_") || name == "RUST_LOG") {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command that ends by itself.
pub fn run(arguments: &[&str]) -> Output {
    espalier(arguments).output().unwrap()
}

/// The single line that a failed command printed.
pub fn failure(output: &Output) -> String {
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_owned()
}

impl Node {
    /// Starts a node on a free port and waits until it listens.
    pub fn start(data: &Path) -> Node {
        Node::launch(espalier(&["serve", "--data", data.to_str().unwrap(), "--port", "0"]))
    }

    pub fn launch(mut command: Command) -> Node {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the node ended: {seen}");
            seen += &line;
            if line.contains("Starting listening for CQL clients") {
                let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
                break address.parse().unwrap();
            }
        };
        Node { process, address, started: seen, log }
    }

    /// Sends a statement, which must succeed, on a new connection.
    pub fn query(&self, statement: &str) {
        self.answer(statement, 0);
    }

    /// The number of rows of the answer to a SELECT, which must succeed.
    pub fn row_count(&self, statement: &str) -> u32 {
        const SKIP_METADATA: u8 = 2;
        let answer = self.answer(statement, SKIP_METADATA);
        u32::from_be_bytes(*answer[12..].first_chunk().unwrap())
    }

    /// The body of the answer to a statement, which must succeed.
    fn answer(&self, statement: &str, flags: u8) -> Vec<u8> {
        let (opcode, answer) = self.exchange(&[(QUERY, query(statement, flags))]);
        assert_ne!(opcode, ERROR, "{statement}: {}", String::from_utf8_lossy(&answer));
        answer
    }

    /// Executes a statement as a role, which must be possible.
    pub fn query_as(&self, name: &str, password: &str, statement: &str) {
        let (opcode, answer) = self.exchange(&[login(name, password), (QUERY, query(statement, 0))]);
        assert_ne!(opcode, ERROR, "{statement}: {}", String::from_utf8_lossy(&answer));
    }

    /// Tries to log in, which must fail.
    pub fn refused_login(&self, name: &str) {
        let (opcode, answer) = self.exchange(&[login(name, "password")]);
        assert_eq!(opcode, ERROR, "{}", String::from_utf8_lossy(&answer));
    }

    /// Sends messages on a new connection, behind STARTUP. Returns the opcode and the body of the last answer.
    fn exchange(&self, messages: &[(u8, Vec<u8>)]) -> (u8, Vec<u8>) {
        let options = [&[0, 1, 0, 11], &b"CQL_VERSION"[..], &[0, 5], b"3.0.0"].concat();
        let mut socket = TcpStream::connect(self.address).unwrap();
        let mut ask = |opcode: u8, body: &[u8]| {
            let length = u32::try_from(body.len()).unwrap().to_be_bytes();
            socket.write_all(&[&[4, 0, 0, 0, opcode], &length[..], body].concat()).unwrap();
            let mut header = [0; 9];
            socket.read_exact(&mut header).unwrap();
            let mut answer = vec![0; u32::from_be_bytes(*header.last_chunk().unwrap()) as usize];
            socket.read_exact(&mut answer).unwrap();
            (header[4], answer)
        };
        let (started, answer) = ask(STARTUP, &options);
        assert_ne!(started, ERROR, "{}", String::from_utf8_lossy(&answer));
        let answers: Vec<_> = messages.iter().map(|(opcode, body)| ask(*opcode, body)).collect();
        answers.into_iter().next_back().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Waits for the end; returns the exit code and the rest of the log.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.process.wait().unwrap().code(), rest)
    }
}

/// The body of a QUERY.
fn query(statement: &str, flags: u8) -> Vec<u8> {
    let consistency_one = [0, 1];
    let length = u32::try_from(statement.len()).unwrap().to_be_bytes();
    [&length[..], statement.as_bytes(), &consistency_one, &[flags]].concat()
}

/// The message with a name and a password.
fn login(name: &str, password: &str) -> (u8, Vec<u8>) {
    let token = format!("\0{name}\0{password}");
    let length = u32::try_from(token.len()).unwrap().to_be_bytes();
    (AUTH_RESPONSE, [&length[..], token.as_bytes()].concat())
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
