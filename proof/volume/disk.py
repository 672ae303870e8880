"""The content of a disk, and the parts of it that a power cut would leave.

The rules are blockio's: a name is durable once its directory was synced, bytes once their file was (or at once, when
written with O_DSYNC); until then a power cut keeps, drops or tears each write independently of others, at sectors of
512 bytes, and keeps or drops each change of names. Not thread-safe: `mount.py` holds a lock.
"""

import errno
import stat
from dataclasses import dataclass, field
from random import Random

SECTOR = 512
O_DSYNC = 0o10000


@dataclass(eq=False)
class Node:
    """A file, directory or socket."""

    number: int
    mode: int
    now: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple] = field(default_factory=list)  # ("write", offset, bytes) or ("length", n), since the last sync
    names: dict[str, "Node"] = field(default_factory=dict)      # of a directory
    durable_names: dict[str, "Node"] = field(default_factory=dict)
    links: int = 1
    lookups: int = 0                                            # references that the kernel has
    # Threads whose write with O_DSYNC the kernel may follow with a sync.
    synced_by: set[int] = field(default_factory=set)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def write(self, offset: int, data: bytes, durable: bool) -> None:
        put(self.now, offset, data)
        if durable:
            # What lies below it and is older goes with it.
            overlapping = [change for change in self.pending if change[0] == "length" or
                           change[1] < offset + len(data) and offset < change[1] + len(change[2])]
            for change in overlapping:
                self.pending.remove(change)
                apply(self.durable, change)
            put(self.durable, offset, data)
        else:
            self.pending.append(("write", offset, bytes(data)))

    def set_length(self, length: int) -> None:
        cut(self.now, length)
        self.pending.append(("length", length))

    def sync(self) -> None:
        for change in self.pending:
            apply(self.durable, change)
        self.pending.clear()

    def after_power_cut(self, rng: Random) -> bytearray:
        left = bytearray(self.durable)
        for change in self.pending:
            fate = rng.choice(("kept", "dropped", "torn"))
            if fate == "kept" or change[0] == "length" and fate == "torn":
                apply(left, change)
            elif fate == "torn":
                tear(left, change, rng)
        return left


def put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset:offset + len(data)] = data


def cut(content: bytearray, length: int) -> None:
    del content[length:]
    content.extend(bytes(length - len(content)))


def apply(content: bytearray, change: tuple) -> None:
    if change[0] == "write":
        put(content, change[1], change[2])
    else:
        cut(content, change[1])


def tear(content: bytearray, change: tuple, rng: Random) -> None:
    """Keeps or drops each sector of a write."""
    _, offset, data = change
    at = 0
    while at < len(data):
        end = min(len(data), (offset + at) // SECTOR * SECTOR + SECTOR - offset)
        if rng.random() < 0.5:
            put(content, offset + at, data[at:end])
        at = end


class Disk:
    """Names and files. Errors are OSError."""

    def __init__(self):
        self.root = Node(1, stat.S_IFDIR | 0o755)
        self.nodes = {1: self.root}
        self.last_number = 1
        self.changes: list[list[tuple[Node, str, Node | None]]] = []      # of names, not durable yet, oldest first
        self.capacity_bytes = 1 << 40
        self.refuses_direct = False                                       # files cannot be opened with O_DIRECT

    def used_bytes(self) -> int:
        return sum(len(node.now) for node in self.nodes.values() if node.links > 0)

    def files(self) -> dict[str, bytes]:
        """The content of every file, by its path."""
        found: dict[str, bytes] = {}
        waiting = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            if node.is_directory:
                waiting += [(f"{path}/{name}".lstrip("/"), child) for name, child in node.names.items()]
            elif stat.S_ISREG(node.mode):
                found[path] = bytes(node.now)
        return found

    def new(self, mode: int) -> Node:
        self.last_number += 1
        node = self.nodes[self.last_number] = Node(self.last_number, mode)
        return node

    def make(self, directory: Node, name: str, mode: int) -> Node:
        if name in directory.names:
            raise OSError(errno.EEXIST, name)
        node = self.new(mode)
        self.change([(directory, name, node)])
        return node

    def change(self, changes: list[tuple[Node, str, Node | None]]) -> None:
        """Changes of names that happen together."""
        for directory, name, node in changes:
            set_name(directory.names, name, node)
        self.changes.append(changes)

    def remove(self, directory: Node, name: str) -> None:
        node = self.named(directory, name)
        if node.names:
            raise OSError(errno.ENOTEMPTY, name)
        node.links -= 1
        self.change([(directory, name, None)])

    def rename(self, old: Node, old_name: str, new: Node, new_name: str) -> None:
        node = self.named(old, old_name)
        if new.names.get(new_name, node) is not node and new.names[new_name].names:
            raise OSError(errno.ENOTEMPTY, new_name)
        replaced = new.names.get(new_name)
        if replaced is not None and replaced is not node:
            replaced.links -= 1
        self.change([(old, old_name, None), (new, new_name, node)])

    def link(self, node: Node, directory: Node, name: str) -> None:
        if name in directory.names:
            raise OSError(errno.EEXIST, name)
        node.links += 1
        self.change([(directory, name, node)])

    def forget(self, number: int, lookups: int) -> None:
        """Records that the kernel dropped this many references. A file without references
        and without a name is deleted."""
        node = self.nodes.get(number)
        if node is not None:
            node.lookups -= lookups
            if node.lookups <= 0 and node.links <= 0:
                del self.nodes[number]

    @staticmethod
    def named(directory: Node, name: str) -> Node:
        node = directory.names.get(name)
        if node is None:
            raise OSError(errno.ENOENT, name)
        return node

    def write(self, node: Node, offset: int, data: bytes, durable: bool) -> None:
        self.grow(node, offset + len(data))
        node.write(offset, data, durable)

    def grow(self, node: Node, length: int) -> None:
        """Fails if the disk is full before the file is so long."""
        more = length - len(node.now)
        if more > 0 and self.used_bytes() + more > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "the disk is full")

    def sync_names(self, directory: Node) -> None:
        """Makes every change of a name in the directory durable, and what those changes build on."""
        needed: set[tuple[int, str]] = set()
        flushed = []
        for changes in reversed(self.changes):
            if any(where is directory or (where.number, name) in needed for where, name, _ in changes):
                flushed.append(changes)
                needed.update((where.number, name) for where, name, _ in changes)
        for changes in reversed(flushed):
            for where, name, node in changes:
                set_name(where.durable_names, name, node)
        self.changes = [changes for changes in self.changes if not any(changes is done for done in flushed)]

    def after_process_death(self) -> "Disk":
        """The disk that the next process finds: the page cache outlives the one that was killed, and nothing is more
        durable than before. References of the kernel went with the mount."""
        for number, node in list(self.nodes.items()):
            node.lookups = 0
            node.synced_by.clear()
            if node.links <= 0:
                del self.nodes[number]
        return self

    def after_power_cut(self, rng: Random) -> "Disk":
        """The disk as the machine would find it at its next start."""
        names: dict[int, dict[str, Node]] = {}

        def names_in(directory: Node) -> dict[str, Node]:
            return names.setdefault(directory.number, dict(directory.durable_names))

        for changes in self.changes:
            if rng.random() < 0.5:
                for where, name, node in changes:
                    set_name(names_in(where), name, node)
        left = Disk()
        left.capacity_bytes, left.last_number = self.capacity_bytes, self.last_number
        left.nodes = {}
        left.root = left.copy_of(self.root, names_in, rng)
        return left

    def copy_of(self, node: Node, names_in, rng: Random) -> Node:
        if node.number in self.nodes:
            self.nodes[node.number].links += 1
            return self.nodes[node.number]
        content = bytearray() if node.is_directory else node.after_power_cut(rng)
        copy = self.nodes[node.number] = Node(node.number, node.mode, content, bytearray(content))
        if node.is_directory:
            copy.names = {name: self.copy_of(child, names_in, rng) for name, child in sorted(names_in(node).items())}
            copy.durable_names = dict(copy.names)
        return copy


def set_name(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
