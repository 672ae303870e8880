"""Tests of the harness of the benchmarks, without servers."""

import contextlib
import io
import os
import sys
import tempfile
import threading
import time
import unittest
from argparse import Namespace
from collections import Counter
from pathlib import Path
from unittest import mock

from bench.harness import __main__ as harness
from bench.harness import files_visited, report, rounds, thread_times
from bench.harness.length import Length
from bench.harness.load import Run
from bench.harness.outcome import Bar, Outcome, Plot, Table
from bench.harness.record import free_stem
from bench.harness.scenarios import BY_DEFAULT, SCENARIOS, commitlog, latency, sstables
from bench.harness.session import Session


class ThreadTimes(unittest.TestCase):
    def test_threads_whose_names_differ_in_a_number_are_one_kind(self):
        before = thread_times.seconds_by_kind(os.getpid())
        measured, may_end = threading.Barrier(3), threading.Event()

        def work(number: int) -> None:
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(f"Some Work-{number}")
            while time.thread_time() < 0.1:
                pass
            measured.wait()
            may_end.wait()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        measured.wait()
        used = thread_times.between(before, thread_times.seconds_by_kind(os.getpid()))
        may_end.set()
        for thread in threads:
            thread.join()
        self.assertGreaterEqual(used["Some Work"], 0.15)
        self.assertEqual(list(used.values()), sorted(used.values(), reverse=True))


class Lengths(unittest.TestCase):
    def test_what_is_named_runs_in_full(self):
        self.assertIs(Length.of(is_named=True, quick=False), Length.FULL)

    def test_all_of_them_are_short_and_with_quick_shorter(self):
        self.assertIs(Length.of(is_named=False, quick=False), Length.SHORT)
        self.assertIs(Length.of(is_named=False, quick=True), Length.SMOKE)

    def test_what_is_named_with_quick_runs_as_among_all(self):
        self.assertIs(Length.of(is_named=True, quick=True), Length.SHORT)

    def test_every_scenario_says_what_each_length_means(self):
        plans = [sys.modules[run.__module__].PLANS for run in SCENARIOS.values() if run is not sstables.run]
        for plan in [*plans, sstables.SIZES, commitlog.KINDS]:
            self.assertEqual(set(plan), set(Length))

    def test_the_long_ones_run_only_by_name(self):
        self.assertEqual(set(SCENARIOS) - set(BY_DEFAULT), {"commitlog-paper", "inmemory", "inmemory-exhausted", "tls", "conditions", "counters", "indexes",
                                                           "vectors", "vectors-wide", "cassandra", "cassandra-2gib", "cassandra-4gib", "cassandra-floor"})


class Records(unittest.TestCase):
    def test_a_second_record_of_a_day_stands_beside_the_first(self):
        with tempfile.TemporaryDirectory() as directory:
            stems = []
            for _ in range(3):
                stems.append(free_stem(Path(directory), "day-start"))
                (Path(directory) / f"{stems[-1]}.txt").write_text("")
        self.assertEqual(stems, ["day-start", "day-start-2", "day-start-3"])


class Compared(unittest.TestCase):
    def run_of(self, operations: int) -> Run:
        return Run({"operations": operations, "seconds": 1.0}, 0.0, 0.0, 0.0, {})

    def test_the_better_cassandra_is_the_one_that_does_more(self):
        by_system = {"cassandra": [self.run_of(10)], "cassandra, 2 threads": [self.run_of(20)], "espalier": [self.run_of(90)]}
        self.assertEqual(rounds.best(by_system), "cassandra, 2 threads")

    def test_a_bar_says_which_cassandra_was_better(self):
        pair = {"cassandra": [self.run_of(10)], "espalier": [self.run_of(90)]}
        self.assertEqual(rounds.whose(pair), "Cassandra's")
        self.assertEqual(rounds.whose(pair | {"cassandra, 2 threads": [self.run_of(20)]}), "the better Cassandra's (cassandra, 2 threads)")


class Rates(unittest.TestCase):
    def test_a_rate_that_is_not_held_is_lowered_until_it_is(self):
        asked = []

        def run(*_, rate, **__) -> Run:
            asked.append(rate)
            return Run({"latency": {"p50": 900.0 if rate <= 8_000 else 600_000.0}}, 0.0, 0.0, 0.0, {})
        with mock.patch.object(latency.load, "run", run):
            held = latency.held_rate(rounds.System("cassandra", None, "k"), latency.PLANS[Length.SMOKE], 50, 10_000)
        self.assertEqual((held, asked), (7_200, [10_000, 9_000, 8_100, 7_200]))


REACHED, MISSED = Bar("cheap", 1, "<=", 2), Bar("dear", 3, "<=", 2)


class Ends(unittest.TestCase):
    """The ends of runs of the harness."""

    def end_of(self, scenarios: dict, check: bool) -> tuple[int, str]:
        """The exit status and the output of a run with these scenarios in place of the real ones."""
        options = Namespace(check=check, note="", no_record=True)
        with tempfile.TemporaryDirectory(dir=harness.places.CACHE) as directory, contextlib.redirect_stdout(io.StringIO()) as printed, \
                contextlib.redirect_stderr(io.StringIO()), mock.patch.object(harness, "SCENARIOS", scenarios), \
                mock.patch.object(harness, "REPORTS", Path(directory)), mock.patch.object(harness.machine, "facts", dict):
            status = harness.run_scenarios(list(scenarios), Session(Length.SMOKE), options)
            self.page = next(Path(directory).glob("*.html")).read_text()
        return status, printed.getvalue()

    def test_a_missed_bar_fails_only_a_check(self):
        scenarios = {"one": lambda _: Outcome("one", bars=[REACHED, MISSED])}
        self.assertEqual(self.end_of(scenarios, check=False)[0], 0)
        status, printed = self.end_of(scenarios, check=True)
        self.assertEqual(status, 1)
        self.assertIn(f"one: {MISSED.line()}", printed)
        self.assertEqual(self.end_of({"one": lambda _: Outcome("one", bars=[REACHED])}, check=True)[0], 0)

    def test_whatever_a_scenario_raises_the_next_is_run_and_reported(self):
        def fails(_):
            raise KeyError("figure")
        status, printed = self.end_of({"one": fails, "two": lambda _: Outcome("two", bars=[REACHED])}, check=False)
        self.assertEqual(status, 1)
        self.assertIn("failed: one: KeyError('figure')", printed)
        self.assertIn("two", self.page)


class Reports(unittest.TestCase):
    def test_a_page_needs_nothing_else(self):
        plot = Plot("latency", "N", "µs", {"cassandra": [(1, 300), (10, 900)], "espalier": [(1, 30), (10, 90)]}, x_logarithmic=True, y_logarithmic=True)
        page = report.page([Outcome("latency", tables=[Table("Medians", ["load"], [["reads <1>"]])], bars=[MISSED], plots=[plot])], {"machine": "two"}, "today")
        self.assertIn("<polyline", page)
        self.assertIn("reads &lt;1&gt;", page)
        for outside in ("src=", "<link", "<script", "url(", "@import"):
            self.assertNotIn(outside, page)

    def test_a_logarithmic_axis_has_ticks_wherever_it_lies(self):
        for least, most in ((1, 10_000), (210, 940), (120, 4_800), (400, 420)):
            ticks = report.Axis([least, most], True, 0, 100).ticks()
            self.assertTrue(all(least <= tick <= most for tick in ticks))
            self.assertGreaterEqual(len(ticks), 1 if most < 2 * least else 3, (least, most))


class VisitedFiles(unittest.TestCase):
    """The count of the files that an operation visits, from callgrind's dumps."""

    DUMP = """positions: line
events: Ir
fl=(1) /src/crates/query/src/entry.rs
fn=(1) begin
10 4
+2 6
fi=(2) /src/crates/model/src/row.rs
7 9
fe=(1)
-1 2
cfi=(3) /rust/library/alloc/src/vec.rs
cfn=(2) grow
calls=1 40
* 500
* 1
fl=(3)
fn=(2)
40 500
"""

    def test_a_line_counts_in_the_file_where_it_is_written_without_what_it_calls(self):
        entry, row, alloc = "/src/crates/query/src/entry.rs", "/src/crates/model/src/row.rs", "/rust/library/alloc/src/vec.rs"
        self.assertEqual(files_visited.line_costs(self.DUMP.splitlines()),
                         {(entry, 10): 4, (entry, 12): 6, (row, 7): 9, (entry, 6): 3, (alloc, 40): 500})

    def test_a_file_is_visited_if_enough_of_its_lines_run_in_most_operations(self):
        names = {"crates/query/src/entry.rs": files_visited.LINES_MIN, "crates/model/src/row.rs": files_visited.LINES_MIN - 1,
                 "library/stdarch/crates/core_arch/src/simd.rs": 50, "library/alloc/src/vec.rs": 50}
        short = Counter({(f"/src/{name}", line): 100 for name, lines in names.items() for line in range(lines)})
        # A line that ran only while the clients connected, and one that runs in one of ten operations.
        short["/src/crates/model/src/row.rs", 900] = 10_000
        long = Counter({place: count + (1000 if count == 100 else 0) for place, count in short.items()})
        long["/src/crates/model/src/row.rs", 901] = 100
        visited = files_visited.visits(short, long, 1000)
        self.assertEqual(visited, {"query/src/entry.rs": files_visited.Visit(files_visited.LINES_MIN, files_visited.LINES_MIN)})
