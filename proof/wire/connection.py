"""One connection: STARTUP, then requests and their answers, one at a time or pipelined."""

import socket
import ssl
import struct
from collections import deque

import lz4.block
import snappy

from proof.wire import requests, responses, segments
from proof.wire.requests import QueryOptions
from proof.wire.responses import Error, Event, Message, Prepared, Response

COMPRESSED_FLAG, TRACING_FLAG, BETA_FLAG = 0x01, 0x02, 0x10
HEADER_SIZE = 9
TIMEOUT_SECONDS = 60


class ConnectionClosed(Exception):
    """The server ended the connection."""


class LoginRefused(Exception):
    """The server does not accept the name or the password."""


class Connection:
    """A connection after STARTUP. Events that arrive while waiting for an answer are kept in `events`."""

    timeout_seconds = TIMEOUT_SECONDS       # for each answer

    def __init__(self, host: str, port: int, version: int = 5, compression: str | None = None, startup: bool = True,
                 login: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None, source: str | None = None):
        self.version = version
        self.compression = compression
        self.socket = socket.create_connection((host, port), self.timeout_seconds, source_address=(source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = bytearray()           # bytes from the socket
        self.envelopes = bytearray()        # v5: bytes out of segments
        self.segmented = False
        self.compressing = False
        self.events: deque[Event] = deque()
        self.streams = 0
        self.prepared: dict[str, Prepared] = {}     # for callers that execute a prepared statement again
        self.login = login
        if startup:
            self.startup()

    def startup(self) -> None:
        options = {"CQL_VERSION": "3.0.0"}
        if self.compression:
            options["COMPRESSION"] = self.compression
        answer = self.request(requests.STARTUP, requests.string_map(options), expect_switch=True)
        if self.login is not None and isinstance(answer, responses.Other):
            answer = self.log_in(*self.login)
            if isinstance(answer, Error):
                raise LoginRefused(answer.message)
        elif not isinstance(answer, responses.Ready):
            raise ValueError(f"STARTUP was answered with {answer}")

    def log_in(self, name: str, password: str) -> Response:
        """SASL PLAIN; the answer to it."""
        return self.request(requests.AUTH_RESPONSE, requests.value(f"\0{name}\0{password}".encode()))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # Requests, one at a time

    def query(self, cql: str, options: QueryOptions = QueryOptions(), tracing: bool = False) -> Response:
        return self.request(requests.QUERY, requests.query(cql, options, self.version), TRACING_FLAG if tracing else 0)

    def prepare(self, cql: str, keyspace: str | None = None) -> Response:
        return self.request(requests.PREPARE, requests.prepare(cql, self.version, keyspace))

    def execute(self, prepared, options: QueryOptions = QueryOptions()) -> Response:
        body = requests.execute(prepared.id, prepared.metadata_id, options, self.version)
        return self.request(requests.EXECUTE, body)

    def batch(self, kind: int, items: list[tuple], options: QueryOptions = QueryOptions()) -> Response:
        return self.request(requests.BATCH, requests.batch(kind, items, options, self.version))

    def register(self, *events: str) -> Response:
        return self.request(requests.REGISTER, requests.register(*events))

    def request(self, opcode: int, body: bytes, flags: int = 0, expect_switch: bool = False) -> Response:
        stream = self.send(opcode, body, flags)
        answered, answer = self.receive(expect_switch)
        if answered != stream:
            raise ValueError(f"request on stream {stream} was answered on stream {answered}: {answer}")
        return answer

    # Pipelining

    def send(self, opcode: int, body: bytes, flags: int = 0) -> int:
        """Sends a request; the stream its answer will come on."""
        self.streams = (self.streams + 1) % 32768
        self.send_bytes(self.frame(opcode, body, flags))
        return self.streams

    def frame(self, opcode: int, body: bytes, flags: int) -> bytes:
        if self.compressing and not self.segmented and body:
            body, flags = self.compress(body), flags | COMPRESSED_FLAG
        header = struct.pack(">BBhBi", self.version, flags, self.streams, opcode, len(body))
        return segments.encode(header + body, self.compressing) if self.segmented else header + body

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as failure:
            raise ConnectionClosed(str(failure)) from failure

    def receive(self, expect_switch: bool = False) -> tuple[int, Response]:
        """The next answer to any request: (stream, answer). After STARTUP's answer v5 changes its framing."""
        stream, message = self.receive_message()
        answer = message.decode()
        if expect_switch and not isinstance(answer, Error):
            self.segmented = self.version >= 5
            self.compressing = self.compression is not None
        return stream, answer

    def receive_message(self) -> tuple[int, Message]:
        """As `receive`, with the answer as it came."""
        while True:
            version, flags, stream, opcode, body = self.next_envelope()
            if not self.segmented and flags & COMPRESSED_FLAG:
                body = self.decompress(body)
            message = Message(opcode, flags & ~COMPRESSED_FLAG, body, version & 0x7F)
            if stream == -1 and opcode == responses.EVENT:
                self.events.append(message.decode())
                continue
            return stream, message

    def wait_for_event(self) -> Event:
        """The next event, waiting for it when none has come yet. No request may be in flight."""
        while not self.events:
            _, flags, stream, opcode, body = self.next_envelope()
            if not self.segmented and flags & COMPRESSED_FLAG:
                body = self.decompress(body)
            if stream != -1:
                raise ValueError(f"an answer on stream {stream} where an event was awaited")
            self.events.append(responses.decode(opcode, flags, body, self.version))
        return self.events.popleft()

    # Bytes

    def next_envelope(self) -> tuple[int, int, int, int, bytes]:
        version, flags, stream, opcode, length = struct.unpack(">BBhBi", self.take(HEADER_SIZE))
        return version, flags, stream, opcode, self.take(length)

    def take(self, count: int) -> bytes:
        if not self.segmented:
            return self.take_raw(count)
        while len(self.envelopes) < count:
            self.envelopes += segments.read(self.take_raw, self.compressing)
        data = bytes(self.envelopes[:count])
        del self.envelopes[:count]
        return data

    def take_raw(self, count: int) -> bytes:
        while len(self.buffer) < count:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError as failure:
                raise ConnectionClosed(str(failure)) from failure
            if not data:
                raise ConnectionClosed(f"the server closed the connection after {len(self.buffer)} of {count} bytes")
            self.buffer += data
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    def compress(self, body: bytes) -> bytes:
        if self.compression == "lz4":
            return struct.pack(">i", len(body)) + lz4.block.compress(body, store_size=False)
        return snappy.compress(body)

    def decompress(self, body: bytes) -> bytes:
        if self.compression == "lz4":
            size = struct.unpack(">i", body[:4])[0]
            return lz4.block.decompress(body[4:], uncompressed_size=size) if size else b""
        return snappy.decompress(body)
