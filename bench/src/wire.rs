//! A minimal client: protocol v4, one connection, requests sent in groups.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0A;
const HEADER_BYTES: usize = 9;
const CONSISTENCY_ONE: [u8; 2] = [0, 1];
const WITH_VALUES: u8 = 0x01;

/// A connection that costs its own thread little, so that the rest of the process's time is the server's.
#[derive(Debug)]
pub struct WireClient {
    socket: TcpStream,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl WireClient {
    /// Connects and starts the protocol.
    pub fn connect(address: SocketAddr) -> io::Result<WireClient> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let mut client = WireClient { socket, sent: Vec::new(), received: Vec::new() };
        let mut body = 1u16.to_be_bytes().to_vec();
        for text in ["CQL_VERSION", "3.0.0"] {
            body.extend_from_slice(&(text.len() as u16).to_be_bytes());
            body.extend_from_slice(text.as_bytes());
        }
        client.push(STARTUP, &body);
        client.send()?;
        client.answer()?;
        Ok(client)
    }

    /// Executes a statement that has no values.
    pub fn query(&mut self, text: &str) -> io::Result<()> {
        let body = [&(text.len() as u32).to_be_bytes(), text.as_bytes(), &CONSISTENCY_ONE, &[0]].concat();
        self.push(QUERY, &body);
        self.send()?;
        self.result().map(drop)
    }

    /// Prepares a statement and returns its id.
    pub fn prepare(&mut self, text: &str) -> io::Result<Vec<u8>> {
        self.push(PREPARE, &[&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat());
        self.send()?;
        let body = self.result()?;
        let length = body.get(4..6).and_then(|length| length.try_into().ok()).map_or(0, u16::from_be_bytes);
        body.get(6..6 + usize::from(length)).map(<[u8]>::to_vec).ok_or_else(|| bad("no id"))
    }

    /// Adds an EXECUTE to the next group of requests. Its answer will contain metadata, as most drivers want.
    pub fn execute(&mut self, id: &[u8], values: &[&[u8]]) {
        let size: usize = values.iter().map(|value| 4 + value.len()).sum();
        let mut body = Vec::with_capacity(size + id.len() + 16);
        body.extend_from_slice(&(id.len() as u16).to_be_bytes());
        body.extend_from_slice(id);
        body.extend_from_slice(&CONSISTENCY_ONE);
        body.push(WITH_VALUES);
        body.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            body.extend_from_slice(&(value.len() as u32).to_be_bytes());
            body.extend_from_slice(value);
        }
        self.push(EXECUTE, &body);
    }

    /// Sends the requests that were added.
    pub fn send(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.sent)?;
        self.sent.clear();
        Ok(())
    }

    /// Returns the body of the next answer, which must be a result.
    pub fn result(&mut self) -> io::Result<&[u8]> {
        match self.answer()? {
            RESULT => Ok(&self.received),
            opcode => Err(bad(&format!("opcode {opcode}: {}", String::from_utf8_lossy(&self.received)))),
        }
    }

    fn push(&mut self, opcode: u8, body: &[u8]) {
        self.sent.extend_from_slice(&[4, 0, 0, 0, opcode]);
        self.sent.extend_from_slice(&(body.len() as u32).to_be_bytes());
        self.sent.extend_from_slice(body);
    }

    fn answer(&mut self) -> io::Result<u8> {
        let mut header = [0; HEADER_BYTES];
        self.socket.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        self.received.resize(length as usize, 0);
        self.socket.read_exact(&mut self.received)?;
        Ok(header[4])
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}
