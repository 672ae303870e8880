"""A record's lines about the machine and the versions, without names of machines or directories."""

import os
import platform
import re
import subprocess
from pathlib import Path

from proof import places


CORES_TO_PART = 4


def cores_apart() -> tuple[set[int], set[int]]:
    """The cores of a server and those of its client: a half each if there are enough, otherwise all for both."""
    cores = sorted(os.sched_getaffinity(0))
    middle = len(cores) // 2
    return (set(cores[:middle]), set(cores[middle:])) if len(cores) >= CORES_TO_PART else (set(cores), set(cores))


def pin(pid: int, cores: set[int]) -> None:
    """Restricts a process to these cores, with its threads and those that they will start."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:
            pass  # The process has ended.


def facts() -> dict[str, str]:
    servers, clients = cores_apart()
    cores = "the servers'" if servers == clients else "its own"
    return {
        "machine": f"{os.cpu_count()} x {processor()}, {memory_gib():.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": disk(),
        "commit": commit(),
        "rustc": first_line("rustc", "--version"),
        "java": first_line("java", "-version"),
        "Cassandra": places.CASSANDRA_VERSION,
        "client": f"scylla {driver_version()} (protocol v4), {len(clients)} threads, on {cores} cores",
        "load average": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def disk() -> str:
    """The file system and the device under `.cache`, where the servers' files are."""
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    under = [mount for mount in mounts if str(places.RUN).startswith(mount[1])]
    device, _, kind = max(under, key=lambda mount: len(mount[1]), default=("?", "/", "?"))
    name = re.sub(r"\d+$", "", device.rsplit("/", 1)[-1])
    size = Path(f"/sys/block/{name}/size")
    return f"{name} {int(size.read_text()) * 512 // 2**30} GiB, {kind}" if size.exists() else kind


def commit() -> str:
    revision = first_line("git", "rev-parse", "--short=12", "HEAD")
    # A run writes records, so records of an earlier run are no change of the programs.
    changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/record"],
                             cwd=places.ROOT, capture_output=True, text=True)
    return revision + (" with changes that are not committed" if changed.stdout.strip() else "")


def driver_version() -> str:
    found = re.search(r'^scylla = "=(.*)"$', (places.ROOT / "bench" / "load" / "Cargo.toml").read_text(), re.MULTILINE)
    return found.group(1) if found else "?"


def first_line(*command: str) -> str:
    done = subprocess.run(command, cwd=places.ROOT, capture_output=True, text=True)
    return (done.stdout or done.stderr).splitlines()[0].strip() if done.returncode == 0 else "?"
