"""What the bench promises of its runs, without servers."""

import sys
import tempfile
import unittest
from pathlib import Path

from bench.harness import rounds
from bench.harness.length import Length
from bench.harness.load import Run
from bench.harness.record import free_stem
from bench.harness.scenarios import BY_DEFAULT, SCENARIOS, commitlog, sstables


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
        self.assertEqual(set(SCENARIOS) - set(BY_DEFAULT), {"commitlog-paper", "inmemory", "inmemory-exhausted"})


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
