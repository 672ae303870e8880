"""Runs the tests of the proof machinery and prints the totals every stage ends with."""

import sys
import unittest

from proof.tests import (test_bench, test_bench_scenarios, test_differential, test_kill_model, test_linearizability,
                         test_record, test_ring, test_secrets, test_survival, test_volume, test_wire)

SUITES = (test_wire, test_kill_model, test_linearizability, test_record, test_ring, test_secrets, test_survival, test_volume,
          test_differential, test_bench, test_bench_scenarios)


def main() -> None:
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(loader.loadTestsFromModule(module) for module in SUITES)
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
