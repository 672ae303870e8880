"""Every scenario runs at every length, on servers that do nothing, and comes to its end, whatever its plan says."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from bench.harness import echo, in_process, instructions, load, record, report, rounds, servers
from bench.harness.length import Length
from bench.harness.load import Run
from bench.harness.scenarios import (SCENARIOS, cassandra, commitlog, index_files, inmemory, inmemory_exhausted, memory, sstables, sstables_read, sstables_write,
                                     start, tls, ycsb)
from bench.harness.session import Session

LATENCIES = {"count": 9, "mean": 5.0, "p50": 5.0, "p90": 6.0, "p99": 7.0, "p999": 8.0, "max": 9.0, "curve": [(1.0, 1.0), (0.1, 6.0)]}


def run(node, keyspace: str, workload: dict, rate=None, **_) -> Run:
    samples = [{"seconds": at, "operations": 100 * at, "server_cpu_seconds": at / 2, "server_resident_bytes": 1 << 20} for at in (0, 1, 2)]
    report = {"seconds": 2.0, "operations": 200, "server_cpu_seconds": 1.0, "server_system_seconds": 0.5, "client_cpu_seconds": 0.5, "failures": 0,
              "timeouts": 0, "recall": 1.0,
              "server_resident_bytes": 1 << 20, "server_written_bytes": 1 << 20, "latency": LATENCIES, "read_latency": LATENCIES, "write_latency": LATENCIES,
              "samples": samples}
    return Run(report, 0.0, 0.0, 0.0, {"rate": rate})


class Node:
    """Takes every command, and has one SSTable of every table."""

    started: list["Node"] = []
    # Of Cassandra at a time.
    most = 0

    def __init__(self, name: str, directory: Path, settings: dict):
        self.name, self.directory, self.settings, self.environment, self.pid = name, directory, settings, {}, 1
        Node.started.append(self)
        Node.most = max(Node.most, sum(node.name == "cassandra" for node in Node.started))

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_) -> None:
        Node.started.remove(self)

    def __getattr__(self, command: str):
        return lambda *_, **__: 1

    def sstables(self, *_) -> list[Path]:
        return [self.directory / "da-1-bti-Data.db"]

    def memtable_bytes(self, *_) -> tuple[int, int, int]:
        return 0, 1000, 0

    def lz4_seconds(self, *_) -> tuple[float, float]:
        return 1e-9, 1e-9

    def steer(self, *_) -> str:
        return "Chunk Cache: 1"


class Scenarios(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        for component in ("Data", "Partitions", "Rows"):
            (self.directory / f"da-1-bti-{component}.db").write_bytes(bytes(1000))
        Node.most = 0
        self.stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        for target, name, fake in self.fakes():
            self.stack.enter_context(mock.patch.object(target, name, fake))

    def fakes(self) -> list[tuple]:
        """Replaces what scenarios do to servers, files and time."""
        def starts(kind: str):
            return lambda **settings: Node(kind, self.directory, settings)
        clock = SimpleNamespace(sleep=lambda _: None, monotonic=iter(range(1 << 30)).__next__)
        ticks = iter(range(1 << 30))
        return [
            (servers.Cassandra, "start", starts("cassandra")), (servers.Espalier, "start", starts("espalier")),
            (servers, "execute", lambda *_: None), (servers, "cpu_seconds", lambda _: next(ticks)),
            (load, "run", run), (load, "resident_bytes", lambda _: 1 << 20), (rounds, "until_quiet", lambda: None),
            (echo, "cpu_micros", lambda *_: 1.0), (instructions, "is_possible", lambda: True),
            (instructions, "per_operation", lambda connections: dict.fromkeys(connections, 5.0)),
            (in_process, "figures", lambda _: [{"memtable": "trie", "cpu_ratio": 1.0, "throughput_ratio": 1.0, "figure": "used", "last_to_first": 1.0, "wanted": 1.1}]),
            (commitlog, "figures_alone", lambda _: mock.MagicMock(items=dict().items, __getitem__=lambda *_: [1.0])),
            (commitlog, "ready_after_crash", lambda _: commitlog.Replayed(commitlog.GIB, 1.0, 1_000, 1.0)),
            (index_files, "build", lambda *_: index_files.Cost(1.0, 1.0)), (index_files, "until_idle", lambda _: None),
            (index_files, "sizes", lambda *_: index_files.Sizes(next(ticks), 10)),
            (start, "restart", lambda *_: 1.0), (inmemory, "start_with", lambda *_: (1 << 20, 1.0)),
            (tls, "Client", mock.MagicMock()), (tls, "drive", lambda *_: None), (ycsb, "compile_binding", lambda: None), (ycsb, "client", lambda *_: ycsb.Measured(*[1.0] * 9, 5)),
            (inmemory_exhausted, "ControlGroup", mock.MagicMock()), (inmemory_exhausted, "forget_pages", lambda _: None),
            (sstables, "hand_over", lambda system, table, _: [self.directory / "da-1-bti-Data.db"] * self.copies(table)),
            (sstables_read, "shutil", SimpleNamespace(rmtree=lambda _: None)), (sstables_write, "lz4_seconds", lambda _: (1e-9, 1e-9)),
            (cassandra, "JAR", self.directory), (cassandra, "compile_java", lambda _: None),
            (cassandra, "heap_per_row", lambda *_: "".join(
                f"{memtable}, heap_buffers, 9 rows, 1 of a partition: 1.0 bytes of heap for each row, 9.0 outside of it; counted: 1.0 and 9.0\n"
                f"  {memtable}, [B: 0.5 bytes of a row\n" for memtable in ("trie", "ours"))),
            *((module, "time", clock) for module in (cassandra, memory, sstables_read, sstables_write, start)),
        ]

    def copies(self, table: str) -> int:
        return sstables_read.POINT_TABLES if table == "points" else 1

    def outcome(self, name: str, length: Length):
        self.progress = []
        step = rounds.Progress.step

        def noted(progress, what: str):
            if progress not in self.progress:
                self.progress.append(progress)
            step(progress, what)
        with mock.patch.object(rounds.Progress, "step", noted), contextlib.closing(Session(length)) as session:
            outcome = SCENARIOS[name](session)
        self.assertEqual(Node.started, [], "all servers are stopped")
        return outcome

    def test_each_comes_to_its_end_at_every_length(self):
        # memtrie has no servers: what its programs print makes its bars.
        for name in sorted(set(SCENARIOS) - {"memtrie"}):
            for length in Length:
                with self.subTest(name, length=length):
                    outcome = self.outcome(name, length)
                    self.assertTrue(outcome.tables)
                    self.assertIn(outcome.tables[-1].title, record.text(outcome, {}, "today"))
                    self.assertIn(outcome.scenario, report.page([outcome], {}, "today"))
                    for progress in self.progress:
                        self.assertEqual(progress.done, progress.steps, progress.scenario)

    def test_throughput_never_has_more_than_two_cassandras(self):
        self.outcome("throughput", Length.FULL)
        self.assertEqual(Node.most, 2)

    def test_where_bars_hang_on_requests_to_cassandra_it_is_measured_with_few_threads_too(self):
        for name in ("throughput", "latency", "tables", "columns", "sustained"):
            for length in (Length.FULL, Length.SHORT):
                self.assertIn("cassandra, 2 threads", record.text(self.outcome(name, length), {}, "today"), name)
