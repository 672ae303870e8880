"""Control groups that limit what memory a server has, the pages of the files that it reads and writes included."""

import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
# The kernel takes a moment to count out a process that has ended.
REMOVAL_SECONDS = 5


class ControlGroup:
    """Limits the memory of the processes that are added. A context manager: at its end the processes are
    ended and the group is removed."""

    def __init__(self, limit_mb: int):
        """Raises OSError where no such group can be made: that takes root, and a kernel
        and a container that allow it."""
        first = ROOT / "memory"          # of the first version; the second has one tree for all that is limited
        is_first = first.is_dir()
        if not is_first:
            (ROOT / "cgroup.subtree_control").write_text("+memory")
        self.path = (first if is_first else ROOT) / f"espalier-bench-{os.getpid()}"
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(limit_mb << 20))

    def add(self, pid: int) -> None:
        """Counts memory that the process takes from now on, but not the memory that it has already."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def __enter__(self) -> "ControlGroup":
        return self

    def __exit__(self, *_) -> None:
        deadline = time.monotonic() + REMOVAL_SECONDS
        while True:
            try:
                self.path.rmdir()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def forget_pages(files: list[Path]) -> None:
    """Takes files out of the page cache."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
