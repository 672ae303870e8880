//! A client that returns every envelope, with the simplest possible framing.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub version: u8,
    pub flags: u8,
    pub stream: i16,
    pub opcode: u8,
    pub body: Vec<u8>,
}

pub const ERROR: u8 = 0;
pub const READY: u8 = 2;
pub const OPTIONS: u8 = 5;
pub const QUERY: u8 = 7;
pub const RESULT: u8 = 8;
pub const PREPARE: u8 = 9;
pub const EXECUTE: u8 = 10;
pub const REGISTER: u8 = 11;
pub const EVENT: u8 = 12;

pub struct Client {
    pub socket: TcpStream,
    pub version: u8,
    segments: bool,
    received: Vec<u8>,
}

impl Client {
    /// Opens a connection without sending anything.
    pub fn connect(address: SocketAddr, version: u8) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket, version, segments: false, received: Vec::new() }
    }

    /// Opens a connection that is ready for statements.
    pub fn ready(address: SocketAddr, version: u8) -> Client {
        let mut client = Client::connect(address, version);
        assert_eq!(client.start(&[("CQL_VERSION", "3.0.0")]).opcode, READY);
        client
    }

    /// Sends STARTUP with these options. In v5 the framing changes after its answer.
    pub fn start(&mut self, options: &[(&str, &str)]) -> Answer {
        let answer = self.call(1, &startup(options));
        assert_ne!(answer.opcode, ERROR, "{answer:?}");
        self.segments = self.version == 5;
        answer
    }

    /// An envelope in the current framing.
    pub fn frame(&self, stream: i16, opcode: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let [s0, s1] = stream.to_be_bytes();
        let mut envelope = vec![self.version, flags, s0, s1, opcode];
        envelope.extend_from_slice(&(body.len() as u32).to_be_bytes());
        envelope.extend_from_slice(body);
        if self.segments { segment(&envelope) } else { envelope }
    }

    pub fn send(&mut self, stream: i16, opcode: u8, body: &[u8]) {
        let frame = self.frame(stream, opcode, 0, body);
        self.socket.write_all(&frame).unwrap();
    }

    pub fn query(&mut self, stream: i16, text: &str) {
        self.send(stream, QUERY, &query(self.version, text));
    }

    /// Sends and receives.
    pub fn call(&mut self, opcode: u8, body: &[u8]) -> Answer {
        self.send(1, opcode, body);
        self.receive().unwrap()
    }

    pub fn ask(&mut self, text: &str) -> Answer {
        let body = query(self.version, text);
        self.call(QUERY, &body)
    }

    /// Receives the next envelope; `None` if the server has closed the connection.
    pub fn receive(&mut self) -> Option<Answer> {
        let mut plain = Vec::new();
        loop {
            if !self.segments {
                if let Some((answer, size)) = parse(&self.received) {
                    self.received.drain(..size);
                    return Some(answer);
                }
            } else if let Some((payload, size)) = open_segment(&self.received) {
                plain.extend_from_slice(&payload);
                self.received.drain(..size);
                if let Some((answer, size)) = parse(&plain) {
                    // The rest of the segment is put back as a segment of its own.
                    if size < plain.len() {
                        let mut rest = segment(&plain[size..]);
                        rest.extend_from_slice(&self.received);
                        self.received = rest;
                    }
                    return Some(answer);
                }
                continue;
            }
            let mut chunk = [0; 65536];
            match self.socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }
}

impl Answer {
    /// The code and the text of an ERROR.
    pub fn error(&self) -> (u32, String) {
        assert_eq!(self.opcode, ERROR, "{self:?}");
        let code = u32::from_be_bytes(self.body[..4].try_into().unwrap());
        let size = usize::from(u16::from_be_bytes(self.body[4..6].try_into().unwrap()));
        (code, String::from_utf8(self.body[6..6 + size].to_vec()).unwrap())
    }

    /// The last cell of a RESULT of rows, if it is a short text.
    pub fn last_cell(&self) -> &str {
        let size_at =
            |start: &usize| self.body[*start..*start + 4] == ((self.body.len() - start - 4) as u32).to_be_bytes();
        let start = (0..self.body.len() - 4).rev().find(size_at).unwrap();
        std::str::from_utf8(&self.body[start + 4..]).unwrap()
    }

    /// The kind of a RESULT.
    pub fn result_kind(&self) -> u32 {
        assert_eq!(self.opcode, RESULT, "{:?}", self.error());
        u32::from_be_bytes(self.body[..4].try_into().unwrap())
    }
}

/// The segments of an envelope that may be too long for one segment.
fn segment(envelope: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = envelope.chunks(131_071).collect();
    let self_contained = u32::from(parts.len() == 1);
    let mut out = Vec::new();
    for part in parts {
        let lengths = part.len() as u32 | self_contained << 17;
        let lengths = &lengths.to_le_bytes()[..3];
        out.extend_from_slice(lengths);
        out.extend_from_slice(&crc24(lengths).to_le_bytes()[..3]);
        out.extend_from_slice(part);
        let checked = [&[0xFA, 0x2D, 0x55, 0xCA], part].concat();
        out.extend_from_slice(&crc32(&checked).to_le_bytes());
    }
    out
}

fn open_segment(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let header = bytes.get(..6)?;
    let lengths = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    assert_eq!(crc24(&header[..3]).to_le_bytes()[..3], header[3..]);
    let size = (lengths & 0x1FFFF) as usize;
    let whole = bytes.get(..6 + size + 4)?;
    let payload = whole[6..6 + size].to_vec();
    let checked = [&[0xFA, 0x2D, 0x55, 0xCA], &payload[..]].concat();
    assert_eq!(crc32(&checked).to_le_bytes(), whole[6 + size..]);
    Some((payload, 6 + size + 4))
}

fn crc24(bytes: &[u8]) -> u32 {
    let mut crc = 0x87_5060_u32;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            crc ^= if crc & 0x100_0000 != 0 { 0x197_4F0B } else { 0 };
        }
    }
    crc
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 != 0 { 0xEDB8_8320 } else { 0 };
        }
    }
    !crc
}

fn parse(bytes: &[u8]) -> Option<(Answer, usize)> {
    let head = bytes.get(..9)?;
    let size = 9 + u32::from_be_bytes(head[5..9].try_into().unwrap()) as usize;
    let body = bytes.get(9..size)?.to_vec();
    let stream = i16::from_be_bytes([head[2], head[3]]);
    Some((Answer { version: head[0], flags: head[1], stream, opcode: head[4], body }, size))
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

pub fn long_string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

pub fn startup(options: &[(&str, &str)]) -> Vec<u8> {
    let mut body = (options.len() as u16).to_be_bytes().to_vec();
    for (key, value) in options {
        body.extend_from_slice(&string(key));
        body.extend_from_slice(&string(value));
    }
    body
}

pub fn query(version: u8, text: &str) -> Vec<u8> {
    let tail: &[u8] = if version >= 5 { &[0, 1, 0, 0, 0, 0] } else { &[0, 1, 0] };
    [&long_string(text)[..], tail].concat()
}
