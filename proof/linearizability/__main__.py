"""Concurrent clients send conditional writes and reads while a node is killed with -9, and ended with SIGTERM. Its log
and its memory are small and used by others too, and its wall clock jumps back and forth.

Histories of eight clients on three partitions must be linearizable. Then clients use conditions and counters as
applications do: a queue, a lock with a fencing token, a registry of names, a bank, and counters; the rows must be
exactly what the clients were told.

usage: python -m proof.linearizability [--seconds 60] [--seed 1] [--periodic | --check FILE]

--periodic proves this program: in that sync mode, a node that is killed loses acknowledged writes.
"""

import argparse
import pickle
import shutil
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from proof.drivers.checks import Checks
from proof.linearizability import checker, histories, partition, scenarios
from proof.linearizability.clock import Clock
from proof.oracle.espalier import Espalier
from proof.wire import Connection, Error

HISTORY_SECONDS, SCENARIO_SECONDS = 12, 10
# The sync modes that acknowledge durable writes.
MODES = ("batch", "batch", "group", "each")
# So little room that writes wait for flushes, and that reads of SSTables wait for the device.
SCARCE = {"commitlog_segment_size": "1MiB", "commitlog_total_space": "4MiB", "memtable_offheap_space": "16MiB", "file_cache_size": "1MiB",
          "commitlog_sync_group_window": "2ms"}
# The table of the histories is in another one in each round.
PLACES = ("memtable = 'trie'", "compaction = {'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 64}",
          "compaction = {'class': 'UnifiedCompactionStrategy'} AND memtable = 'skiplist'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--periodic", action="store_true")
    parser.add_argument("--check", help="only checks a history that was kept")
    options = parser.parse_args()
    checks = Checks("linearizability")
    if options.check:
        with open(options.check, "rb") as file:
            failure = checker.check(pickle.load(file), partition.EMPTY, partition.step, partition.Values())
        checks.true(options.check, failure is None, str(failure))
        checks.end()
    counts: Counter[str] = Counter()
    modes = ("periodic",) if options.periodic else MODES
    with Espalier.start(commitlog_sync=modes[0], **SCARCE) as node:
        create(node, (*partition.SCHEMA, *scenarios.SCHEMA))
        change = changes(node, Random(f"{options.seed}/changes"), modes, checks)
        until, number = time.monotonic() + options.seconds, 0
        while time.monotonic() < until and not checks.failed:
            create(node, [f"ALTER TABLE {partition.TABLE} WITH {PLACES[number % len(PLACES)]}"])
            with checks.part(f"seed {options.seed}, history {number}"):
                counts.update(histories.run(node, options.seed, number, HISTORY_SECONDS, checks, change))
            with checks.part(f"seed {options.seed}, scenarios {number}"):
                counts.update(scenarios.run(node, options.seed, number, SCENARIO_SECONDS, checks, change))
            number += 1
        checks.equal("each kind of request had each outcome", [name for name in histories.OUTCOMES if not counts[name]], [])
        if checks.failed:
            node.keep = True
            print(f"the node's directory is kept: {node.directory}")
    print(f"seed {options.seed}: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    checks.end()


def changes(node, rng: Random, modes: tuple[str, ...], checks: Checks) -> Callable[[], None]:
    """Returns a function that gives the next life another clock, another sync mode, and another way to read files."""
    has_compiler = shutil.which("cc") is not None
    if not has_compiler:
        checks.skipped("a clock that is set back", "there is no C compiler")
    clock = Clock(node, rng) if has_compiler else lambda: None

    def change() -> None:
        clock()
        node.environment["ESPALIER_COMMITLOG_SYNC"] = rng.choice(modes)
        node.environment["ESPALIER_DISK_ACCESS_MODE"] = rng.choice(("auto", "direct"))

    return change


def create(node, statements) -> None:
    with Connection(node.host, node.port) as connection:
        for statement in statements:
            answer = connection.query(statement)
            if isinstance(answer, Error):
                raise RuntimeError(f"{statement}: {answer.message}")


if __name__ == "__main__":
    main()
