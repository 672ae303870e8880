"""The outer framing of protocol v5: segments with a CRC24 over the header and a CRC32 over the payload."""

import zlib

import lz4.block

MAX_PAYLOAD = 131071
SELF_CONTAINED = 1 << 17
SELF_CONTAINED_LZ4 = 1 << 34
CRC32_START = zlib.crc32(b"\xfa\x2d\x55\xca")


def _crc24_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1974F0B
        table.append(crc)
    return table


CRC24 = _crc24_table()


def crc24(data: bytes) -> int:
    crc = 0x875060
    for byte in data:
        crc = ((crc << 8) & 0xFFFFFF) ^ CRC24[(crc >> 16) ^ byte]
    return crc


def encode(envelope: bytes, compressed: bool) -> bytes:
    """One envelope as one self-contained segment, or as several when it is too large."""
    if len(envelope) <= MAX_PAYLOAD:
        return _segment(envelope, True, compressed)
    return b"".join(_segment(envelope[at:at + MAX_PAYLOAD], False, compressed)
                    for at in range(0, len(envelope), MAX_PAYLOAD))


def _segment(payload: bytes, whole: bool, compressed: bool) -> bytes:
    if compressed:
        packed = lz4.block.compress(payload, store_size=False)
        size = len(payload)
        if len(packed) >= size:
            packed, size = payload, 0
        header = (len(packed) | size << 17 | (SELF_CONTAINED_LZ4 if whole else 0)).to_bytes(5, "little")
        payload = packed
    else:
        header = (len(payload) | (SELF_CONTAINED if whole else 0)).to_bytes(3, "little")
    return (header + crc24(header).to_bytes(3, "little") + payload
            + zlib.crc32(payload, CRC32_START).to_bytes(4, "little"))


def read(receive, compressed: bool) -> bytes:
    """The payload of the next segment; `receive(n)` gives exactly n bytes. Wrong sums raise ValueError."""
    size = 5 if compressed else 3
    header = receive(size + 3)
    if crc24(header[:size]) != int.from_bytes(header[size:], "little"):
        raise ValueError("segment header has a wrong CRC24")
    fields = int.from_bytes(header[:size], "little")
    length = fields & MAX_PAYLOAD
    data = receive(length + 4)
    payload = data[:length]
    if zlib.crc32(payload, CRC32_START) != int.from_bytes(data[length:], "little"):
        raise ValueError("segment payload has a wrong CRC32")
    unpacked = fields >> 17 & MAX_PAYLOAD if compressed else 0
    return lz4.block.decompress(payload, uncompressed_size=unpacked) if unpacked else payload
