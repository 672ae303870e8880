"""A disk in memory as a file system: the kernel's FUSE protocol, version 7.31, spoken over /dev/fuse without a library.

`Mount` serves it from threads of this process, which must not touch the mounted directory itself other
than through other processes or threads. Faults are set on it while it runs: operations of chosen files
fail, stall, or the power is cut.
"""

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import threading
from pathlib import Path

from proof.volume.disk import O_DSYNC, SECTOR, Disk, Node

THREADS = 8
BUFFER_BYTES = (1 << 20) + 4096
MINOR_VERSION = 31
# FUSE_ASYNC_READ, FUSE_ATOMIC_O_TRUNC, FUSE_BIG_WRITES, FUSE_MAX_PAGES
FLAGS = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 22
# FUSE_ASYNC_DIO. With it the kernel makes an I/O error of a short write.
ASYNC_DIRECT_FLAG = 1 << 15
MAX_WRITE_BYTES, MAX_PAGES = 1 << 20, 256
MNT_DETACH = 2
IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
SET_SIZE, SET_MODE = 1 << 3, 1 << 0
KEEP_SIZE = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def in_own_namespace(module: str) -> str | None:
    """Runs `python -m module` again where it may mount, and where mounts end with it. Without root, as root of a user
    namespace. Returns there; or here, with the reason, if nothing can be mounted."""
    if os.environ.get("PROOF_NAMESPACE") == "1":
        return None
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened"
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--mount", "--propagation", "private"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no mount namespace: {tried.stderr.strip()}"
    os.environ["PROOF_NAMESPACE"] = "1"
    os.execvp("unshare", [*command, sys.executable, "-m", module, *sys.argv[1:]])


class Fault:
    """A fault of operations on files whose path contains `part`: an error number, or None to stall until it is lifted.
    With `in_half` it happens once: half of a write is carried out. Without an error number, the call then returns the
    shorter length."""

    def __init__(self, part: str, operations: tuple[str, ...], error: int | None, skip: int = 0, behind: int = 0, in_half: bool = False):
        self.part, self.operations, self.error = part, operations, error
        self.skip = skip                                # the number of matching operations that pass before it acts
        self.behind = behind                            # only reads and writes that end after this offset
        self.in_half = in_half
        self.met = threading.Event()
        self.lifted = threading.Event()

    def hits(self, operation: str, path: str, body: bytes) -> bool:
        if operation not in self.operations or self.part not in path or self.in_half and self.met.is_set():
            return False
        if self.behind:
            _, offset, size = struct.unpack_from("<QQI", body)
            if offset + size <= self.behind:
                return False
        self.skip -= 1
        return self.skip < 0


def half_of(body: bytes) -> bytes:
    """The first half of a write, in whole sectors, and at least one: a write of nothing is an error to
    the kernel, not a short one."""
    whole = struct.unpack_from("<I", body, 16)[0]
    size = min(whole, max(SECTOR, whole // 2 // SECTOR * SECTOR))
    return body[:16] + struct.pack("<I", size) + body[20:40 + size]


class Mount:
    """A mounted disk; `close()` unmounts it and leaves the disk. With `short_writes` programs are told of short writes,
    and direct writes are carried out one after the other."""

    def __init__(self, disk: Disk, directory: Path, short_writes: bool = False):
        self.disk, self.directory = disk, directory
        self.flags = FLAGS | (0 if short_writes else ASYNC_DIRECT_FLAG)
        self.lock = threading.Lock()
        self.faults: list[Fault] = []
        self.paths: dict[int, str] = {}                 # the last name of a node, for faults
        self.caller = 0                                 # the thread whose operation is carried out
        self.operations = 0                             # that change or sync anything
        self.cut_at: int | None = None
        self.power_cut = threading.Event()
        self.released = threading.Event()
        directory.mkdir(parents=True, exist_ok=True)
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
        if LIBC.mount(b"volume", str(directory).encode(), b"fuse.volume", 2 | 4, options) != 0:     # nosuid, nodev
            number = ctypes.get_errno()
            raise OSError(number, f"cannot mount on {directory}: {os.strerror(number)}")
        self.threads = [threading.Thread(target=self.serve, daemon=True) for _ in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def __enter__(self) -> "Mount":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self.release()
        for fault in self.faults:
            fault.lifted.set()
        LIBC.umount2(str(self.directory).encode(), MNT_DETACH)
        for thread in self.threads:
            thread.join(10)
        os.close(self.device)

    # Faults.

    def fail(self, part: str, error: int, *operations: str) -> Fault:
        return self.add(Fault(part, operations or ("write", "fsync"), error))

    def fail_in_half(self, part: str, error: int | None, skip: int) -> Fault:
        """The write that comes after `skip` others is done half, and fails; without an error it is a short one."""
        return self.add(Fault(part, ("write",), error, skip, in_half=True))

    def stall(self, part: str, *operations: str, behind: int = 0) -> Fault:
        return self.add(Fault(part, operations or ("write", "fsync"), None, behind=behind))

    def add(self, fault: Fault) -> Fault:
        with self.lock:
            self.faults.append(fault)
        return fault

    def lift(self, fault: Fault) -> None:
        with self.lock:
            self.faults.remove(fault)
        fault.lifted.set()

    def cut_power_after(self, operations: int) -> None:
        """Lets this many operations that change or sync anything be done. The one after them is in flight when the
        power is cut. From then on nothing is answered until `release`, so that no process can report it."""
        with self.lock:
            self.cut_at = self.operations + operations

    def cut_power(self) -> None:
        with self.lock:
            self.cut_at = self.operations
            self.power_cut.set()

    def release(self) -> None:
        """Fails the operations that were pending since the power cut, for killed processes that wait in the kernel."""
        self.released.set()

    # The protocol.

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self.device, BUFFER_BYTES)
            except OSError as failure:
                if failure.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return                                  # unmounted
            _, opcode, unique, number, _, _, caller, *_ = IN_HEADER.unpack_from(request)
            if opcode in SILENT:
                self.forget(opcode, number, request[IN_HEADER.size:])
                continue
            try:
                answer = self.handle(HANDLERS.get(opcode), number, request[IN_HEADER.size:], caller)
                error = 0
            except OSError as failure:
                answer, error = b"", failure.errno
            try:
                os.write(self.device, OUT_HEADER.pack(OUT_HEADER.size + len(answer), -error, unique) + answer)
            except OSError:
                pass                                    # interrupted or unmounted: no process waits for it

    def forget(self, opcode: int, number: int, body: bytes) -> None:
        with self.lock:
            if opcode == FORGET:
                self.disk.forget(number, struct.unpack_from("<Q", body)[0])
            elif opcode == BATCH_FORGET:
                for at in range(8, len(body), 16):
                    self.disk.forget(*struct.unpack_from("<QQ", body, at))

    def handle(self, handler, number: int, body: bytes, caller: int) -> bytes:
        if handler is None:
            raise OSError(errno.ENOSYS, "not implemented")
        operation = handler.__name__
        if self.power_cut.is_set() and handler is not initialize:
            self.released.wait()
            raise OSError(errno.EIO, "the power was cut")
        with self.lock:
            path = self.paths.get(number, "")
            fault = next((f for f in self.faults if f.hits(operation, path, body)), None)
            if fault is not None:
                fault.met.set()
        if fault is not None and not fault.in_half:
            if fault.error is not None:
                raise OSError(fault.error, "injected")
            fault.lifted.wait()
        with self.lock:
            self.caller = caller
            last = False
            if operation in CHANGING:
                last = self.cut_at is not None and self.operations >= self.cut_at
                self.operations += 1
            if last:
                return self.last_operation(handler, number, body)
            if fault is None or not fault.in_half:
                return handler(self, self.disk.nodes.get(number), body)
            answer = handler(self, self.disk.nodes.get(number), half_of(body))
            if fault.error is not None:
                raise OSError(fault.error, "injected")
            return answer

    def last_operation(self, handler, number: int, body: bytes) -> bytes:
        """Carries out an operation that is on its way when the power goes. A write may be on the disk, whole or in
        part; a sync did not happen."""
        if not self.power_cut.is_set():
            self.power_cut.set()
            if handler is write:
                _, offset, size, _, _, _, _ = struct.unpack_from("<QQIIQII", body)
                self.disk.nodes[number].write(offset, body[40:40 + size], False)
        self.lock.release()
        try:
            self.released.wait()
        finally:
            self.lock.acquire()
        raise OSError(errno.EIO, "the power was cut")


def initialize(mount: Mount, _: Node, body: bytes) -> bytes:
    readahead = struct.unpack_from("<IIII", body)[2]
    return struct.pack("<IIIIHHIIHH", 7, MINOR_VERSION, readahead, mount.flags, 64, 48, MAX_WRITE_BYTES, 1, MAX_PAGES, 0).ljust(64, b"\0")


def text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode()


def attributes(node: Node) -> bytes:
    size = len(node.now)
    return ATTRIBUTES.pack(node.number, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, node.mode, max(node.links, 1),
                           os.getuid(), os.getgid(), 0, 4096, 0)


def entry(mount: Mount, directory: Node, name: str, node: Node) -> bytes:
    node.lookups += 1
    mount.paths[node.number] = f"{mount.paths.get(directory.number, '')}/{name}"
    return struct.pack("<QQQQII", node.number, 0, 0, 0, 0, 0) + attributes(node)


def lookup(mount: Mount, node: Node, body: bytes) -> bytes:
    name = text(body)
    return entry(mount, node, name, mount.disk.named(node, name))


def getattr_(mount: Mount, node: Node, body: bytes) -> bytes:
    return struct.pack("<QII", 0, 0, 0) + attributes(node)


def setattr_(mount: Mount, node: Node, body: bytes) -> bytes:
    valid, _, _, size = struct.unpack_from("<IIQQ", body)
    if valid & SET_SIZE:
        mount.disk.grow(node, size)
        node.set_length(size)
    if valid & SET_MODE:
        node.mode = stat.S_IFMT(node.mode) | struct.unpack_from("<I", body, 68)[0] & 0o7777
    return getattr_(mount, node, body)


def mknod(mount: Mount, node: Node, body: bytes) -> bytes:
    mode = struct.unpack_from("<I", body)[0]
    name = text(body[16:])
    return entry(mount, node, name, mount.disk.make(node, name, mode))


def mkdir(mount: Mount, node: Node, body: bytes) -> bytes:
    mode = struct.unpack_from("<I", body)[0]
    name = text(body[8:])
    return entry(mount, node, name, mount.disk.make(node, name, stat.S_IFDIR | mode & 0o7777))


def unlink(mount: Mount, node: Node, body: bytes) -> bytes:
    mount.disk.remove(node, text(body))
    return b""


def rename(mount: Mount, node: Node, body: bytes) -> bytes:
    return move(mount, node, body, 8)


def rename2(mount: Mount, node: Node, body: bytes) -> bytes:
    return move(mount, node, body, 16)


def move(mount: Mount, node: Node, body: bytes, head: int) -> bytes:
    target = mount.disk.nodes[struct.unpack_from("<Q", body)[0]]
    old, new = (part.decode() for part in body[head:].split(b"\0")[:2])
    mount.disk.rename(node, old, target, new)
    mount.paths[target.names[new].number] = f"{mount.paths.get(target.number, '')}/{new}"
    return b""


def link(mount: Mount, node: Node, body: bytes) -> bytes:
    linked = mount.disk.nodes[struct.unpack_from("<Q", body)[0]]
    mount.disk.link(linked, node, text(body[8:]))
    return entry(mount, node, text(body[8:]), linked)


def open_(mount: Mount, node: Node, body: bytes) -> bytes:
    flags = struct.unpack_from("<I", body)[0]
    if mount.disk.refuses_direct and flags & os.O_DIRECT:
        raise OSError(errno.EINVAL, "no O_DIRECT here")
    if flags & os.O_TRUNC:
        node.set_length(0)
    return struct.pack("<QII", node.number, 0, 0)


def opendir(mount: Mount, node: Node, body: bytes) -> bytes:
    return struct.pack("<QII", node.number, 0, 0)


def create(mount: Mount, node: Node, body: bytes) -> bytes:
    mode = struct.unpack_from("<II", body)[1]
    name = text(body[16:])
    made = mount.disk.make(node, name, stat.S_IFREG | mode & 0o7777)
    return entry(mount, node, name, made) + struct.pack("<QII", made.number, 0, 0)


def read(mount: Mount, node: Node, body: bytes) -> bytes:
    _, offset, size = struct.unpack_from("<QQI", body)
    return bytes(node.now[offset:offset + size])


def write(mount: Mount, node: Node, body: bytes) -> bytes:
    _, offset, size, _, _, flags, _ = struct.unpack_from("<QQIIQII", body)
    durable = bool(flags & O_DSYNC)
    mount.disk.write(node, offset, body[40:40 + size], durable)
    (node.synced_by.add if durable else node.synced_by.discard)(mount.caller)
    return struct.pack("<II", size, 0)


def statfs(mount: Mount, node: Node, body: bytes) -> bytes:
    block = 4096
    total = min(mount.disk.capacity_bytes, 1 << 40) // block
    free = max(0, total - mount.disk.used_bytes() // block)
    return struct.pack("<QQQQQIIII", total, free, free, 1 << 20, 1 << 20, block, 255, block, 0).ljust(80, b"\0")


def fsync(mount: Mount, node: Node, body: bytes) -> bytes:
    # After a synchronous write with O_DSYNC the kernel requests a sync of the whole file, although the caller asked for
    # that write only.
    if mount.caller in node.synced_by:
        node.synced_by.discard(mount.caller)
    else:
        node.sync()
    return b""


def fsyncdir(mount: Mount, node: Node, body: bytes) -> bytes:
    mount.disk.sync_names(node)
    return b""


def fallocate(mount: Mount, node: Node, body: bytes) -> bytes:
    _, offset, length, mode, _ = struct.unpack_from("<QQQII", body)
    mount.disk.grow(node, offset + length)
    if mode & ~KEEP_SIZE:
        raise OSError(errno.EOPNOTSUPP, "punching holes")
    if not mode & KEEP_SIZE and offset + length > len(node.now):
        node.set_length(offset + length)
    return b""


def readdir(mount: Mount, node: Node, body: bytes) -> bytes:
    _, offset, size = struct.unpack_from("<QQI", body)
    out = bytearray()
    names = [(".", node), ("..", node), *sorted(node.names.items())]
    for at, (name, child) in enumerate(names[offset:], start=offset + 1):
        raw = name.encode()
        one = struct.pack("<QQII", child.number, at, len(raw), stat.S_IFMT(child.mode) >> 12) + raw
        one = one.ljust((len(one) + 7) // 8 * 8, b"\0")
        if len(out) + len(one) > size:
            break
        out += one
    return bytes(out)


def done(mount: Mount, node: Node, body: bytes) -> bytes:
    return b""


HANDLERS = {1: lookup, 3: getattr_, 4: setattr_, 8: mknod, 9: mkdir, 10: unlink, 11: unlink, 12: rename, 13: link, 14: open_, 15: read,
            16: write, 17: statfs, 18: done, 20: fsync, 25: done, 26: initialize, 27: opendir, 28: readdir, 29: done, 30: fsyncdir,
            34: done, 35: create, 38: done, 43: fallocate, 45: rename2}
FORGET, INTERRUPT, BATCH_FORGET = 2, 36, 42
SILENT = {FORGET, INTERRUPT, BATCH_FORGET}              # no answer
CHANGING = {"setattr_", "mknod", "mkdir", "unlink", "rename", "rename2", "link", "create", "write", "fsync", "fsyncdir", "fallocate"}
