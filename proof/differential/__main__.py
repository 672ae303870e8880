"""Random histories against Cassandra 5.0.8 and Espalier: same rows, metadata, warnings and errors.

Kept histories (regressions/*.json) run first. A difference is shrunk, printed and written to .cache/differences/, from where
`--replay FILE` runs it again; a fixed one is kept by moving it to regressions/.

usage: python -m proof.differential [--seed S] [--ops N] [--processes P] [--self] ...
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from proof import places
from proof.differential import traces
from proof.differential.compare import Difference, Outcome, Pair
from proof.differential.generator import history
from proof.differential.shrink import shrink
from proof.differential.steps import History
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier

REGRESSIONS = Path(__file__).with_name("regressions")
FOUND = places.CACHE / "differences"
STEPS_PER_HISTORY = 130
LONG_RUN = 50_000           # statements
REPORTED_EVERY = 20_000
TOTALS = re.compile(r"^(\d+) passed, (\d+) failed$")


def main() -> None:
    options = arguments()
    if options.processes > 1 and not options.self and not options.replay:
        sys.exit(in_processes(options))
    with Cassandra.start(heap_mb=1024, long_run=options.ops >= LONG_RUN) as left, compared(options) as right:
        pair = Pair(left, right)
        totals = Totals(pair, options)
        started = time.monotonic()
        if not options.self and not options.replay and not options.part:
            totals.strange_traces = traces.check((left, right))
        for chosen in histories(options):
            totals.add(pair.run(chosen, options.stop_at))
            totals.report_progress(time.monotonic() - started)
            if options.ops and totals.statements >= options.ops or len(totals.found) >= options.max_found:
                break
        totals.report(time.monotonic() - started)
    sys.exit(1 if totals.found or totals.strange_traces else 0)


def in_processes(options: argparse.Namespace) -> int:
    """The histories dealt out to processes, each with servers of its own; what they print, and the sum of their totals."""
    command = [sys.executable, "-m", "proof.differential", *sys.argv[1:], "--ops", str(-(-options.ops // options.processes))]
    command += ["--processes", "1", "--of", str(options.processes)]
    running = [subprocess.Popen([*command, "--part", str(part)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=places.ROOT)
               for part in range(options.processes)]
    totals, statuses = [], []

    def follow(process: subprocess.Popen) -> None:
        for line in process.stdout:
            found = TOTALS.match(line.strip())
            totals.append((int(found[1]), int(found[2]))) if found else print(line, end="", flush=True)
        statuses.append(process.wait())

    followers = [threading.Thread(target=follow, args=(process,)) for process in running]
    for follower in followers:
        follower.start()
    for follower in followers:
        follower.join()
    # A process that ended without totals has failed, whatever else it said.
    failed = sum(failed for _, failed in totals) + options.processes - len(totals)
    print(f"{sum(passed for passed, _ in totals)} passed, {failed} failed")
    return 1 if failed or any(statuses) else 0


def compared(options: argparse.Namespace):
    """What Cassandra is compared with: Espalier, with a log that kill -9 takes nothing from."""
    return Cassandra.start(heap_mb=1024) if options.self else Espalier.start(commitlog_sync="batch")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", type=int, default=20_000, help="statements to send to each")
    parser.add_argument("--processes", type=int, default=2, help="how many pairs of servers share the histories")
    parser.add_argument("--part", type=int, default=0, help="of the histories, one of every --of")
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--self", action="store_true", help="Cassandra against a second Cassandra: proves this program")
    parser.add_argument("--replay", type=Path, help="run one kept history")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--shrink-seconds", type=float, default=40)
    parser.add_argument("--stop-at", type=int, default=10, help="differences looked for in one history")
    parser.add_argument("--max-found", type=int, default=12, help="different differences after which to stop")
    return parser.parse_args()


def histories(options: argparse.Namespace):
    if options.replay:
        yield History.from_json(json.loads(options.replay.read_text()))
        options.ops = 1
        return
    for kept in sorted(REGRESSIONS.glob("*.json"))[options.part::options.of]:
        yield History.from_json(json.loads(kept.read_text()))
    number = options.first + options.part
    while True:
        yield history(options.seed, number, STEPS_PER_HISTORY)
        number += options.of


class Totals:
    """What a run has seen so far."""

    def __init__(self, pair: Pair, options: argparse.Namespace):
        self.pair = pair
        self.options = options
        self.histories = 0
        self.equal = 0
        self.explained: dict[str, int] = {}
        self.found: dict[str, Difference] = {}
        self.again: dict[str, int] = {}
        self.strange_traces: list[str] = []
        self.reported = 0

    @property
    def statements(self) -> int:
        return self.equal + sum(self.explained.values()) + sum(self.again.values())

    def add(self, outcome: Outcome) -> None:
        self.histories += 1
        self.equal += outcome.equal
        for rule, count in outcome.explained.items():
            self.explained[rule] = self.explained.get(rule, 0) + count
        for difference in outcome.differences:
            signature = difference.signature
            self.again[signature] = self.again.get(signature, 0) + 1
            if signature not in self.found and len(self.found) < self.options.max_found:
                self.found[signature] = self.keep(difference)

    def report_progress(self, seconds: float) -> None:
        if self.statements >= self.reported + REPORTED_EVERY:
            self.reported = self.statements
            print(f"part {self.options.part}: {self.histories} histories, {self.statements} statements in {seconds:.0f} s, "
                  f"{sum(self.again.values())} differences", flush=True)

    def keep(self, difference: Difference) -> Difference:
        """Shrinks, prints and writes a difference not seen before."""
        print(f"\nDIFFERENCE {len(self.found) + 1}: {difference}", flush=True)
        if not self.options.no_shrink:
            difference = shrink(self.pair, difference, self.options.shrink_seconds)
            print(f"  shrunk to {len(difference.history.steps)} steps:")
            for step in difference.history.steps:
                print("    " + str(step).replace("\n", "\n    "))
            print(f"  cassandra: {difference.left}\n  espalier:  {difference.right}", flush=True)
        FOUND.mkdir(parents=True, exist_ok=True)
        file = FOUND / f"{self.options.seed}-{difference.history.keyspace}-{difference.index}.json"
        file.write_text(json.dumps(difference.history.to_json(), indent=1))
        print(f"  kept in {file.relative_to(places.ROOT)}", flush=True)
        return difference

    def report(self, seconds: float) -> None:
        print(f"\nseed {self.options.seed}: {self.histories} histories, {self.statements} statements in {seconds:.1f} s")
        for rule, count in sorted(self.explained.items()):
            print(f"  explained {count} times: {rule}")
        for signature, difference in self.found.items():
            print(f"  {self.again[signature]} times: {difference.history.steps[-1 if not self.options.no_shrink else difference.index]}"
                  f"\n      cassandra: {difference.left[:300]}\n      espalier:  {difference.right[:300]}")
        for strange in self.strange_traces:
            print(f"  {strange}")
        print(f"{self.equal} passed, {sum(self.again.values()) + len(self.strange_traces)} failed")


if __name__ == "__main__":
    main()
