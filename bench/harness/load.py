"""Runs the load generator and reads its report."""

import json
import os
import subprocess
import time
from dataclasses import dataclass, field

from bench.harness import machine
from proof import places

TARGET = places.CACHE / "bench-load"
MANIFEST = places.ROOT / "bench" / "load" / "Cargo.toml"
TIMEOUT_SECONDS = 1800
CORES = len(os.sched_getaffinity(0))


def build() -> None:
    subprocess.run(["cargo", "build", "--release", "--quiet", "--locked", "--manifest-path", str(MANIFEST), "--target-dir", str(TARGET)],
                   check=True)


@dataclass
class Run:
    """One run of the generator. Times in seconds, latencies in microseconds."""

    report: dict
    gc_seconds: float
    # Processor time of all other processes during the run, as a share of one core.
    others_cores: float
    # The processor time that the host of a virtual machine withheld during the run, as a share of one core.
    stolen_cores: float
    load: dict = field(repr=False)

    @property
    def throughput(self) -> float:
        return self.report["operations"] / max(self.report["seconds"], 1e-9)

    @property
    def cpu_micros(self) -> float:
        """The server's processor time per operation, which is also CPU seconds per million operations."""
        return self.report["server_cpu_seconds"] * 1e6 / max(self.report["operations"], 1)

    @property
    def kernel_micros(self) -> float:
        """The part of it that the server's process spent in the kernel: sockets, files, scheduling."""
        return self.report["server_system_seconds"] * 1e6 / max(self.report["operations"], 1)

    @property
    def client_cpu_micros(self) -> float:
        return self.report["client_cpu_seconds"] * 1e6 / max(self.report["operations"], 1)

    @property
    def resident_mb(self) -> float:
        return self.report["server_resident_bytes"] / 2**20

    @property
    def written_bytes_per_operation(self) -> float:
        return self.report["server_written_bytes"] / max(self.report["operations"], 1)

    @property
    def server_cores(self) -> float:
        """How many of the cores the server used."""
        return self.report["server_cpu_seconds"] / max(self.report["seconds"], 1e-9)

    @property
    def client_cores(self) -> float:
        return self.report["client_cpu_seconds"] / max(self.report["seconds"], 1e-9)

    def latency(self, which: str, kind: str = "latency") -> float:
        """`which`: p50, p90, p99, p999; of all operations, or of one kind: `read_latency`, `write_latency`."""
        return self.report[kind][which] if self.report[kind] else float("nan")

    def curve(self) -> list:
        return self.report["latency"]["curve"] if self.report["latency"] else []


class WrongAnswers(Exception):
    """The server failed, or gave a wrong answer."""


def run(node, keyspace: str, workload: dict, seed: int = 1, connections: int = 2, in_flight: int = 128, reads_percent: int = 0,
        **more) -> Run:
    """Loads `node` and checks its answers; raises when any operation failed."""
    servers_cores, clients_cores = machine.cores_apart()
    machine.pin(node.pid, servers_cores)
    spec = {"node": f"{node.host}:{node.port}", "server_pid": node.pid, "keyspace": keyspace, "connections": connections,
            "in_flight": in_flight, "threads": len(clients_cores), "seed": seed, "reads_percent": reads_percent, "workload": workload, "login": node.login, **more}
    gc_before, busy_before, stolen_before, started = node.gc_seconds(), busy_seconds(), stolen_seconds(), time.monotonic()
    server_before = process_seconds(node.pid)
    done = subprocess.run([str(TARGET / "release" / "load"), json.dumps(spec)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
                          preexec_fn=lambda: os.sched_setaffinity(0, clients_cores))
    if done.returncode != 0:
        raise WrongAnswers(f"{node.name}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    if report["failures"]:
        raise WrongAnswers(f"{node.name}: {report['failures']} operations failed: {'; '.join(report['failure_texts'])}")
    elapsed = time.monotonic() - started
    children = os.times()
    ours = process_seconds(node.pid) - server_before
    busy, stolen = busy_seconds() - busy_before, stolen_seconds() - stolen_before
    run.client_total, client = children.children_user + children.children_system, \
        children.children_user + children.children_system - getattr(run, "client_total", 0.0)
    return Run(report, node.gc_seconds() - gc_before, max(0.0, (busy - ours - client) / elapsed), stolen / elapsed, spec)


def busy_seconds() -> float:
    """Processor time of everything on the machine since it started."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def stolen_seconds() -> float:
    """Time in which the machine had work for a processor that its host gave to another machine."""
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def process_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
