"""The disk in memory: the states that a power cut may leave, and those that it may not."""

import errno
import struct
import unittest
from random import Random

from proof.volume.disk import SECTOR, Disk
from proof.volume.mount import Fault, half_of


class PowerCuts(unittest.TestCase):
    def images(self, make, count: int = 200) -> list[Disk]:
        disk = Disk()
        make(disk)
        return [disk.after_power_cut(Random(seed)) for seed in range(count)]

    def contents(self, make, name: str = "file") -> set[bytes | None]:
        found = (image.root.names.get(name) for image in self.images(make))
        return {None if node is None else bytes(node.now) for node in found}

    def test_what_is_synced_stays(self):
        def make(disk: Disk) -> None:
            node = disk.make(disk.root, "file", 0o100644)
            disk.write(node, 0, b"synced", False)
            node.sync()
            disk.sync_names(disk.root)
        self.assertEqual(self.contents(make), {b"synced"})

    def test_files_are_listed_by_path_with_their_content(self):
        disk = Disk()
        directory = disk.make(disk.root, "directory", 0o040755)
        disk.write(disk.make(directory, "file", 0o100644), 0, b"content", False)
        disk.make(disk.root, "socket", 0o140644)
        self.assertEqual(disk.files(), {"directory/file": b"content"})

    def test_a_name_needs_its_directory_synced(self):
        def make(disk: Disk) -> None:
            disk.make(disk.root, "file", 0o100644).sync()
        self.assertEqual(self.contents(make), {None, b""})

    def test_what_is_not_synced_is_kept_dropped_or_torn_at_sectors(self):
        def make(disk: Disk) -> None:
            node = disk.make(disk.root, "file", 0o100644)
            node.set_length(2 * SECTOR)
            node.sync()
            disk.sync_names(disk.root)
            disk.write(node, 0, b"x" * 2 * SECTOR, False)
        old, new = bytes(SECTOR), b"x" * SECTOR
        self.assertEqual(self.contents(make), {old + old, old + new, new + old, new + new})

    def test_a_durable_write_syncs_itself_and_no_other(self):
        def make(disk: Disk) -> None:
            node = disk.make(disk.root, "file", 0o100644)
            disk.sync_names(disk.root)
            disk.write(node, 0, b"a" * SECTOR, False)
            disk.write(node, SECTOR, b"b" * SECTOR, True)
        tail = b"b" * SECTOR
        self.assertEqual(self.contents(make), {bytes(SECTOR) + tail, b"a" * SECTOR + tail})

    def test_a_durable_write_is_not_undone_by_an_older_one(self):
        def make(disk: Disk) -> None:
            node = disk.make(disk.root, "file", 0o100644)
            disk.sync_names(disk.root)
            disk.write(node, 0, b"old", False)
            disk.write(node, 0, b"new", True)
        self.assertEqual(self.contents(make), {b"new"})

    def test_a_rename_happens_whole(self):
        def make(disk: Disk) -> None:
            for name in ("file", "other"):
                node = disk.make(disk.root, name, 0o100644)
                disk.write(node, 0, name.encode(), False)
                node.sync()
            disk.sync_names(disk.root)
            disk.rename(disk.root, "other", disk.root, "file")
        images = {(bytes(image.root.names["file"].now), "other" in image.root.names) for image in self.images(make)}
        self.assertEqual(images, {(b"file", True), (b"other", False)})

    def test_a_sync_of_a_directory_takes_what_its_names_build_on(self):
        def make(disk: Disk) -> None:
            made = disk.make(disk.root, "dir", 0o040755)
            disk.make(made, "new", 0o100644)
            disk.rename(made, "new", disk.root, "file")
            disk.sync_names(disk.root)
        self.assertEqual(self.contents(make), {b""})
        self.assertTrue(all("new" not in image.root.names["dir"].names for image in self.images(make)))


class Faults(unittest.TestCase):
    def write_of(self, offset: int, data: bytes) -> bytes:
        return struct.pack("<QQIIQII", 1, offset, len(data), 0, 0, 0, 0) + data

    def test_half_a_write_is_whole_sectors_of_it(self):
        data = bytes(range(256)) * 6
        self.assertEqual(half_of(self.write_of(8192, data)), self.write_of(8192, data[:SECTOR]))
        for length in (100, SECTOR, 2 * SECTOR):
            self.assertEqual(half_of(self.write_of(0, data[:length])), self.write_of(0, data[:min(length, SECTOR)]))

    def test_a_fault_passes_over_what_it_skips_and_does_half_a_write_once(self):
        body = self.write_of(0, b"x")
        fault = Fault("log", ("write",), errno.EIO, skip=1, in_half=True)
        self.assertFalse(fault.hits("write", "/data", body) or fault.hits("fsync", "/log", body))
        self.assertEqual([fault.hits("write", "/log", body) for _ in range(3)], [False, True, True])
        fault.met.set()
        self.assertFalse(fault.hits("write", "/log", body))

    def test_a_fault_behind_an_offset_is_met_by_what_reaches_behind_it(self):
        fault = Fault("log", ("read",), None, behind=8192)
        self.assertFalse(fault.hits("read", "/log", self.write_of(4096, bytes(4096))))
        self.assertTrue(fault.hits("read", "/log", self.write_of(4096, bytes(4097))))


if __name__ == "__main__":
    unittest.main()
