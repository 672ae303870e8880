"""YCSB A to F: YCSB's own core workloads through the Java driver 4 and protocol 5, every value
that is read verified by YCSB."""

import re
import subprocess
from dataclasses import dataclass

from bench.harness import load, servers
from bench.harness.length import Length
from bench.harness.outcome import Outcome, Table, median, spread
from bench.harness.rounds import Progress, System, interleaved
from bench.harness.session import Session
from proof import places

KEYSPACE = "ycsb"
TARGET = places.CACHE / "bench-ycsb"
SOURCES = servers.HERE / "ycsb"
THREADS = 32
FIELDS = 10
# A scan takes as long as some tens of reads.
SCANS_FEWER = 10
# The settings of YCSB's own workload files, in addition to its defaults. Every workload uses the same records.
WORKLOADS = {
    "A": {"readproportion": 0.5, "updateproportion": 0.5, "requestdistribution": "zipfian"},
    "B": {"readproportion": 0.95, "updateproportion": 0.05, "requestdistribution": "zipfian"},
    "C": {"readproportion": 1, "updateproportion": 0, "requestdistribution": "zipfian"},
    "D": {"readproportion": 0.95, "updateproportion": 0, "insertproportion": 0.05, "requestdistribution": "latest"},
    "E": {"readproportion": 0, "updateproportion": 0, "scanproportion": 0.95, "insertproportion": 0.05, "requestdistribution": "zipfian",
          "maxscanlength": 100, "scanlengthdistribution": "uniform"},
    "F": {"readproportion": 0.5, "updateproportion": 0, "readmodifywriteproportion": 0.5, "requestdistribution": "zipfian"},
}
NAMES = {"A": "A, half updates", "B": "B, mostly reads", "C": "C, reads only", "D": "D, latest", "E": "E, short scans",
         "F": "F, read-modify-write"}


@dataclass(frozen=True)
class Plan:
    records: int
    rounds: int
    operations: int
    # There is no warm-up: each run is a new process, and the shared parts are warm.
    warmup_operations: int
    workloads: str


PLANS = {
    Length.FULL: Plan(500_000, 5, 200_000, 400_000, "ABCDEF"),
    Length.SHORT: Plan(20_000, 3, 10_000, 20_000, "ABCDEF"),
    Length.SMOKE: Plan(2_000, 1, 2_000, 0, "A"),
}


@dataclass
class Measured:
    """One run: operations per second, the server's processor time per operation, latencies of the
    commonest operation, microseconds."""

    throughput: float
    cpu_micros: float
    p50: float
    p90: float
    p99: float
    p999: float
    resident_mb: float
    written_bytes_per_operation: float
    gc_ms: float
    verified: int


COLUMNS = {"operations/s": "throughput", "server CPU µs/op": "cpu_micros", "p50 µs": "p50", "p90 µs": "p90", "p99 µs": "p99", "p99.9 µs": "p999",
           "RSS MiB": "resident_mb", "written B/op": "written_bytes_per_operation", "GC ms": "gc_ms"}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    records, rounds, operations = plan.records, plan.rounds, plan.operations
    compile_binding()
    with session.pair(KEYSPACE) as systems:
        progress = Progress("ycsb", 2 * (2 + len(plan.workloads) * rounds))
        for system in systems:
            progress.step(f"{system.name}: loading {records:,} records")
            fields = ", ".join(f"field{place} blob" for place in range(FIELDS))
            replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            servers.execute(system.node, f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}",
                            f"CREATE TABLE {KEYSPACE}.usertable (y_id text PRIMARY KEY, {fields})")
            client(system.node, "-load", {"recordcount": records})
            progress.step(f"{system.name}: warming up")
            if plan.warmup_operations:
                client(system.node, "-t", {"recordcount": records, "operationcount": plan.warmup_operations, **WORKLOADS["A"]})
        results = {}
        for name in plan.workloads:
            properties = WORKLOADS[name]

            def one(system: System, _round: int) -> Measured:
                count = operations // (SCANS_FEWER if "scanproportion" in properties else 1)
                return client(system.node, "-t", {"recordcount": records, "operationcount": count, **properties})
            results[NAMES[name]] = interleaved(systems, rounds, one, progress, NAMES[name])
        progress.end()
        outcome = Outcome("ycsb", settings={
            "load": f"YCSB 0.17.0 core, {records:,} records of {FIELDS} fields of 100 bytes, {THREADS} threads, closed loop, consistency LOCAL_ONE",
            "client": "Java driver 4.19.0, protocol 5, 2 connections, a new process for each run: its start is not in the figures, its compiler's warming up is",
            "checks": "dataintegrity=true: YCSB verifies every value it reads, and every operation must succeed",
            "rounds": f"{rounds} of {operations:,} operations ({operations // SCANS_FEWER:,} where they scan), interleaved",
            **{system.name: system.node.settings for system in systems}})
    rows, ratios = [], []
    for name, by_system in results.items():
        for system, runs in by_system.items():
            figures = {field: [getattr(run, field) for run in runs] for field in COLUMNS.values()}
            rows.append([name, system, *(spread(values) if field in ("throughput", "cpu_micros") else median(values)
                                         for field, values in figures.items()), sum(run.verified for run in runs)])
        theirs, ours = by_system["cassandra"], by_system["espalier"]
        of = lambda runs, field: median([getattr(run, field) for run in runs])
        ratios.append([name, *(of(ours, field) / of(theirs, field) for field in ("throughput", "cpu_micros", "p99"))])
    outcome.tables.append(Table("Medians (least–greatest)",
                                ["workload", "system", *COLUMNS, "reads verified"], rows))
    outcome.tables.append(Table("Espalier ÷ Cassandra", ["workload", "throughput", "server CPU per operation", "p99"], ratios))
    return outcome


def compile_binding() -> None:
    compiled, source = TARGET / "classes" / "CqlBinding.class", SOURCES / "CqlBinding.java"
    if compiled.exists() and compiled.stat().st_mtime >= source.stat().st_mtime:
        return
    subprocess.run(["mvn", "--batch-mode", "--quiet", "-f", str(SOURCES / "pom.xml"), "dependency:copy-dependencies",
                    f"-DoutputDirectory={TARGET / 'lib'}"], check=True, stdout=subprocess.DEVNULL)
    compiled.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["javac", "-nowarn", "-d", str(compiled.parent), "-cp", f"{TARGET / 'lib'}/*", str(source)], check=True)


def client(node, phase: str, properties: dict) -> Measured:
    """A run of YCSB's client; raises if an operation failed or a value was wrong."""
    settings = {"workload": "site.ycsb.workloads.CoreWorkload", "dataintegrity": "true", "fieldcount": FIELDS,
                "hdrhistogram.percentiles": "50,90,99,99.9", "measurementtype": "hdrhistogram", "cql.host": node.host, "cql.port": node.port,
                "cql.keyspace": KEYSPACE, **properties}
    command = ["java", "-Xmx1g", "-XX:+UseParallelGC", "-cp", f"{TARGET / 'classes'}:{TARGET / 'lib'}/*", "site.ycsb.Client", phase,
               "-db", "CqlBinding", "-threads", str(THREADS)]
    for name, value in settings.items():
        command += ["-p", f"{name}={value}"]
    before, gc_before, written_before = load.process_seconds(node.pid), node.gc_seconds(), written_bytes(node.pid)
    done = subprocess.run(command, capture_output=True, text=True, timeout=load.TIMEOUT_SECONDS)
    cpu_seconds, gc_seconds = load.process_seconds(node.pid) - before, node.gc_seconds() - gc_before
    written = written_bytes(node.pid) - written_before
    figures = {(kind, what): float(value) for kind, what, value in re.findall(r"^\[([\w-]+)\], ([^,]+), ([\d.]+)", done.stdout, re.MULTILINE)}
    returned = {place: count for place, count in figures.items() if place[1].startswith("Return=")}
    wrong = {place: count for place, count in returned.items() if place[1] != "Return=OK"}
    if done.returncode != 0 or wrong or not returned:
        raise load.WrongAnswers(f"{node.name}: YCSB: {wrong or 'no figures'}: {done.stderr.strip()[-2000:]}")
    # Verifying is counted as an operation of its own, and so are the halves of a read-modify-write.
    kinds = {kind: figures[kind, "Operations"] for kind, what in figures if what == "Operations" and kind not in ("CLEANUP", "VERIFY")}
    if "READ-MODIFY-WRITE" in kinds:
        kinds["READ"] -= kinds.pop("READ-MODIFY-WRITE")
    commonest, count = max(kinds, key=kinds.get), sum(kinds.values())
    return Measured(figures["OVERALL", "Throughput(ops/sec)"], cpu_seconds * 1e6 / count,
                    *(figures[commonest, f"{rank}PercentileLatency(us)"] for rank in ("50th", "90th", "99th", "99.9")),
                    load.resident_bytes(node.pid) / 2**20, written / count, gc_seconds * 1000, int(figures.get(("VERIFY", "Return=OK"), 0)))


def written_bytes(pid: int) -> int:
    """Bytes that went, or will go, to the device."""
    with open(f"/proc/{pid}/io") as io:
        return next(int(line.split()[1]) for line in io if line.startswith("write_bytes:"))
