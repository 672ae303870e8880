"""Random histories against Cassandra 5.0.8 and Espalier: same rows, metadata, warnings and errors.

Kept histories (regressions/*.json) run first. A difference is shrunk, printed and written to .cache/differences/, from
where `--replay FILE` runs it again; a fixed one is kept by moving it to regressions/.

Several histories run at a time, in lanes (lanes.py): each has an Espalier of its own, and all share one Cassandra.

A seed gives 100 histories, about 55,000 statements; then comes the next seed. A long run keeps a journal, with which
`--resume` continues a run that was ended or found a difference.

usage: python -m proof.differential [--seed S] [--ops N] [--lanes L] [--resume] [--self] ...
"""

import argparse
import itertools
import json
import signal
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from proof import places
from proof.differential.compare import Difference, Outcome
from proof.differential.journal import Entry, Journal
from proof.differential.lanes import Lane, Numbered
from proof.differential.steps import History
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier

REGRESSIONS = Path(__file__).with_name("regressions")
FOUND = places.CACHE / "differences"
JOURNALS = places.CACHE / "journals"
STEPS_PER_HISTORY = 130
HISTORIES_PER_SEED = 100
LONG_RUN = 50_000           # statements
REPORTED_EVERY = 20_000
MEMTABLES, ENGINE, BOTH = "espalier", "espalier_storage", "both"


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))     # the lanes' too: nothing they started stays
    with Cassandra.start(ephemeral=True, long_run=options.ops >= LONG_RUN, sasi=True) as left, ExitStack() as begun:
        other = partial(second_cassandra, options.plugin, options.memtable) if options.self else espalier
        lanes = [begun.enter_context(Lane(left, other)) for _ in range(options.lanes)]
        totals = Totals(options)
        if not options.self and not options.replay:
            totals.strange_traces = lanes[0].check_traces()
        waiting = Waiting(histories(options, totals.journal.ended if totals.journal else set()))
        with ThreadPoolExecutor(len(lanes)) as threads:
            try:
                for done in [threads.submit(run, lane, waiting, totals, options) for lane in lanes]:
                    done.result()
            finally:
                waiting.end()
        totals.report()
    sys.exit(1 if totals.found or totals.strange_traces else 0)


def run(lane: Lane, waiting: "Waiting", totals: "Totals", options: argparse.Namespace) -> None:
    """Runs one history after another until enough was sent, or enough differs."""
    try:
        while not totals.is_enough and (chosen := waiting.next()) is not None:
            with waiting.keyspaces[chosen.keyspace]:
                totals.add(lane, chosen, lane.run(chosen, options.stop_at))
    except BaseException:
        waiting.end()           # for the other lanes too
        raise


def espalier() -> Espalier:
    """Starts an Espalier whose log loses nothing at kill -9."""
    return Espalier.start(in_memory=True, commitlog_sync="batch", sasi_indexes_enabled="true")


def second_cassandra(plugin: Path | None, memtable: str) -> Cassandra:
    if plugin is not None:
        return Cassandra.start(plugin=plugin, memtable=ENGINE if memtable == ENGINE else MEMTABLES, sasi=True)
    return Cassandra.start(ephemeral=True, sasi=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", type=int, default=20_000, help="statements to send to each")
    parser.add_argument("--lanes", type=int, default=4, help="histories at a time")
    parser.add_argument("--first", type=int, default=0, help="number of a seed's first history")
    parser.add_argument("--resume", action="store_true", help="go on with the long run of this seed: count what is in its journal")
    parser.add_argument("--self", action="store_true", help="Cassandra against a second Cassandra: proves this program")
    parser.add_argument("--plugin", type=lambda file: Path(file).resolve(), help="the same, and the second one has our memtables: the jar of `make plugin`")
    parser.add_argument("--memtable", choices=(MEMTABLES, ENGINE, BOTH), default=MEMTABLES, help="of the second one with the plugin: our memtables, "
                        "and then tables have views too; or our engine, which has no tables with indexes, so histories with indexes are left "
                        "out; or both by turns, without the kept histories")
    parser.add_argument("--replay", type=Path, help="run one kept history")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--shrink-seconds", type=float, default=40)
    parser.add_argument("--stop-at", type=int, default=10, help="differences looked for in one history")
    parser.add_argument("--max-found", type=int, default=12, help="different differences after which to stop")
    options = parser.parse_args()
    options.self = options.self or options.plugin is not None
    if options.self or options.replay:
        options.lanes = 1
    return options


def histories(options: argparse.Namespace, ended: set[tuple[int, int]]):
    for chosen in all_histories(options, ended):
        if options.plugin is None or options.replay:
            yield chosen
        elif options.memtable == BOTH and isinstance(chosen, Numbered):
            yield by_turns(chosen)
        elif options.memtable == MEMTABLES:
            yield replace(chosen, has_views=True) if isinstance(chosen, Numbered) else chosen
        elif options.memtable == ENGINE and not has_indexes(chosen):
            yield chosen


def by_turns(chosen: Numbered) -> Numbered:
    """Puts every second history into our engine, if it has no indexes. The others have views."""
    is_in_engine = chosen.number % 2 == 1 and not has_indexes(chosen)
    return replace(chosen, memtable=ENGINE) if is_in_engine else replace(chosen, has_views=True)


def has_indexes(chosen: History | Numbered) -> bool:
    made = chosen.make() if isinstance(chosen, Numbered) else chosen
    return any(" INDEX " in step.cql for step in made.steps)


def all_histories(options: argparse.Namespace, ended: set[tuple[int, int]]):
    if options.replay:
        yield History.from_json(json.loads(options.replay.read_text()))
        return
    for kept in sorted(REGRESSIONS.glob("*.json")):
        yield History.from_json(json.loads(kept.read_text()))
    for seed in itertools.count(options.seed):
        for number in range(options.first, options.first + HISTORIES_PER_SEED):
            if (seed, number) not in ended:
                yield Numbered(seed, number, STEPS_PER_HISTORY)


def journal(options: argparse.Namespace) -> Journal | None:
    """Returns the journal of a long run. A run that is not resumed begins a new one."""
    if options.ops < LONG_RUN or options.replay:
        return None
    file = JOURNALS / f"seed-{options.seed}.jsonl"
    return Journal.resume(file) if options.resume and file.exists() else Journal.begin(file)


class Waiting:
    """The histories that no lane has taken yet. Several threads may use it."""

    def __init__(self, histories):
        self.histories = histories
        self.lock = threading.Lock()
        self.keyspaces = defaultdict(threading.Lock)    # kept histories may have one name

    def next(self) -> History | Numbered | None:
        with self.lock:
            return next(self.histories, None)

    def end(self) -> None:
        """Lets no lane take another history."""
        with self.lock:
            self.histories = iter(())


class Totals:
    """The results of a run so far. Several threads may use it."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.lock = threading.Lock()
        self.started = time.monotonic()
        self.journal = journal(options)
        self.before = self.journal.statements if self.journal else 0
        self.histories = 0
        self.equal = 0
        self.explained: dict[str, int] = {}
        self.found: dict[str, Difference] = {}
        self.again: dict[str, int] = {}
        self.strange_traces: list[str] = []
        self.reported = 0

    @property
    def statements(self) -> int:
        """The statements of this run."""
        return self.equal + sum(self.explained.values()) + sum(self.again.values())

    @property
    def is_enough(self) -> bool:
        return self.before + self.statements >= self.options.ops or len(self.found) >= self.options.max_found

    def add(self, lane: Lane, chosen: History | Numbered, outcome: Outcome) -> None:
        with self.lock:
            self.count(outcome)
            new = self.unseen(outcome.differences)
            if self.journal and isinstance(chosen, Numbered):
                self.journal.add(Entry(chosen.seed, chosen.number, outcome.equal, outcome.explained, len(outcome.differences)))
            self.report_progress()
        for signature, difference in new.items():
            self.found[signature] = self.keep(lane, difference)      # the other lanes go on meanwhile

    def count(self, outcome: Outcome) -> None:
        self.histories += 1
        self.equal += outcome.equal
        for rule, count in outcome.explained.items():
            self.explained[rule] = self.explained.get(rule, 0) + count
        for difference in outcome.differences:
            self.again[difference.signature] = self.again.get(difference.signature, 0) + 1

    def unseen(self, differences: list[Difference]) -> dict[str, Difference]:
        """Returns the differences that look like no earlier one, and remembers them."""
        new = {}
        for difference in differences:
            if difference.signature not in self.found and len(self.found) < self.options.max_found:
                self.found[difference.signature] = new[difference.signature] = difference
        return new

    def report_progress(self) -> None:
        if self.statements >= self.reported + REPORTED_EVERY:
            self.reported = self.statements
            print(f"{self.histories} histories, {self.statements} statements in {time.monotonic() - self.started:.0f} s, "
                  f"{sum(self.again.values())} differences{f'; {self.before} statements before' if self.before else ''}", flush=True)

    def keep(self, lane: Lane, difference: Difference) -> Difference:
        """Shrinks, prints and writes a difference not seen before."""
        print(f"\nDIFFERENCE: {difference}", flush=True)
        if not self.options.no_shrink:
            difference = lane.shrink(difference, self.options.shrink_seconds)
            lines = [f"  shrunk to {len(difference.history.steps)} steps:"]
            lines += ["    " + str(step).replace("\n", "\n    ") for step in difference.history.steps]
            print("\n".join(lines) + f"\n  cassandra: {difference.left}\n  espalier:  {difference.right}", flush=True)
        FOUND.mkdir(parents=True, exist_ok=True)
        file = FOUND / f"{difference.history.file_name}-{difference.index}.json"
        file.write_text(json.dumps(difference.history.to_json(), indent=1))
        print(f"  kept in {file.relative_to(places.ROOT)}", flush=True)
        return difference

    def report(self) -> None:
        seconds = time.monotonic() - self.started
        print(f"\nseed {self.options.seed}: {self.histories} histories, {self.statements} statements in {seconds:.1f} s")
        for rule, count in sorted(self.explained.items()):
            print(f"  explained {count} times: {rule}")
        for signature, difference in self.found.items():
            print(f"  {self.again[signature]} times: {difference.history.steps[-1 if not self.options.no_shrink else difference.index]}"
                  f"\n      cassandra: {difference.left[:300]}\n      espalier:  {difference.right[:300]}")
        for strange in self.strange_traces:
            print(f"  {strange}")
        if self.journal:
            print("in all:", *self.journal.summary(), sep="\n  ")
        print(f"{self.equal} passed, {sum(self.again.values()) + len(self.strange_traces)} failed")


if __name__ == "__main__":
    main()
