"""What a record has to say of the machine and of the versions. No names of machines or directories."""

import os
import platform
import re
import subprocess
from pathlib import Path

from proof import places


def facts() -> dict[str, str]:
    return {
        "machine": f"{os.cpu_count()} x {processor()}, {memory_gib():.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": disk(),
        "commit": commit(),
        "rustc": first_line("rustc", "--version"),
        "java": first_line("java", "-version"),
        "Cassandra": places.CASSANDRA_VERSION,
        "client": f"scylla {driver_version()} (protocol v4), {os.cpu_count()} threads, on the servers' cores",
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
    changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=places.ROOT, capture_output=True, text=True)
    return revision + (" with changes that are not committed" if changed.stdout.strip() else "")


def driver_version() -> str:
    found = re.search(r'^scylla = "=(.*)"$', (places.ROOT / "bench" / "load" / "Cargo.toml").read_text(), re.MULTILINE)
    return found.group(1) if found else "?"


def first_line(*command: str) -> str:
    done = subprocess.run(command, cwd=places.ROOT, capture_output=True, text=True)
    return (done.stdout or done.stderr).splitlines()[0].strip() if done.returncode == 0 else "?"
