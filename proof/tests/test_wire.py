"""The protocol client against bytes that Cassandra accepted."""

import unittest

from proof.differential.values import decimals, signed_vint, unsigned_vint, varint
from proof.wire import QueryOptions, UNSET, requests, responses, segments


class Segments(unittest.TestCase):
    def read_back(self, envelope: bytes, compressed: bool) -> bytes:
        data = segments.encode(envelope, compressed)
        at = 0

        def receive(count: int) -> bytes:
            nonlocal at
            at += count
            return data[at - count:at]

        read = b""
        while at < len(data):
            read += segments.read(receive, compressed)
        return read

    def test_read_back(self):
        for envelope in (b"", b"x", b"abc" * 1000, bytes(range(256)) * 2000):
            for compressed in (False, True):
                if envelope or not compressed:
                    self.assertEqual(self.read_back(envelope, compressed), envelope)

    def test_crc32_of_nothing_is_cassandras(self):
        self.assertEqual(segments.encode(b"", False)[-4:][::-1].hex(), "44777ed3")

    def test_a_flipped_byte_is_seen(self):
        for at in range(20):
            data = bytearray(segments.encode(b"some payload here", False))
            data[at] ^= 1
            stream = iter(data)
            with self.assertRaises((ValueError, StopIteration, RuntimeError)):
                segments.read(lambda count: bytes(next(stream) for _ in range(count)), False)


class Requests(unittest.TestCase):
    def test_null_and_unset_differ(self):
        self.assertEqual(requests.value(None), b"\xff\xff\xff\xff")
        self.assertEqual(requests.value(UNSET), b"\xff\xff\xff\xfe")

    def test_flags_are_one_byte_before_v5(self):
        options = QueryOptions((b"v",), page_size=5, timestamp=1)
        self.assertEqual(options.encode(4)[:3].hex(), "000125")
        self.assertEqual(options.encode(5)[:6].hex(), "000100000025")

    def test_error_keeps_its_extra_fields(self):
        body = b"\0\0\x24\0" + requests.short_string("exists") + requests.short_string("ks") + requests.short_string("t")
        error = responses.decode(responses.ERROR, 0, body, 5)
        self.assertEqual((error.code, error.message, error.tail), (0x2400, "exists", b"\0\2ks\0\1t"))


class Values(unittest.TestCase):
    def test_varints_are_minimal(self):
        expected = {0: "00", 127: "7f", 128: "0080", -128: "80", -129: "ff7f", -1: "ff"}
        self.assertEqual({number: varint(number).hex() for number in expected}, expected)

    def test_vints(self):
        self.assertEqual([unsigned_vint(n).hex() for n in (0, 127, 128, 300, 1 << 63)], ["00", "7f", "8080", "812c", "ff8000000000000000"])
        self.assertEqual([signed_vint(n).hex() for n in (0, -1, 1, -2)], ["00", "01", "02", "03"])

    def test_decimals(self):
        self.assertEqual([value.data.hex() for value in decimals("1.5", "-1.5", "0.001")], ["000000010f", "00000001f1", "0000000301"])
