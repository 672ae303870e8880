"""Kills a node with -9 again and again while threads write and change the schema, and checks it after each restart.

Each start uses another sync mode than the one before, because a log is replayed in any mode, whatever the
mode that it was written in.

usage: python -m proof.kill [--rounds 50] [--seed 1] [--cassandra]

--cassandra proves this program; without DDL and TRUNCATE, for Cassandra killed inside DDL may never start again, and
inside TRUNCATE keeps a part. Counters and conditions are left out too, because a counter of a deleted row continues
from its old total there, and indexes, because SELECTs fail while Cassandra builds them.
"""

import argparse
import sys
import threading
import time
from random import Random

from proof.kill.indexed import IndexedWriter
from proof.kill.load import KEYSPACE, SchemaChanger, Writer, create_schema
from proof.kill.steps import Stepper
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier
from proof.wire import Connection

WRITERS = 4
STEPPERS = 2
# The sync modes that acknowledge durable writes, in turn.
MODES = ("batch", "group", "each")
GROUP_WINDOW = "2ms"
# In one of this many rounds, several clients write, so that their writes share the log's frames.
CROWD, CROWD_EVERY = 64, 5
# The time in which all of them connect. The load of such a round is longer by that much.
CROWD_SECONDS = 0.5
SHORTEST_SECONDS, LONGEST_SECONDS = 0.05, 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cassandra", action="store_true")
    options = parser.parse_args()
    node = Cassandra.start(durable=True) if options.cassandra else Espalier.start(commitlog_sync=MODES[0], commitlog_sync_group_window=GROUP_WINDOW)
    failed = 0
    with node:
        with Connection(node.host, node.port) as connection:
            create_schema(connection, in_memory=not options.cassandra, has_indexes=not options.cassandra)
        rng = Random(f"{options.seed}/rounds")
        writers, changer = [Writer(number, options.seed) for number in range(CROWD)], SchemaChanger(options.seed, ddl=not options.cassandra)
        steppers = [] if options.cassandra else [Stepper(number, options.seed, KEYSPACE) for number in range(STEPPERS)]
        indexed = [] if options.cassandra else [IndexedWriter(options.seed, KEYSPACE)]
        slowest, of_memory, of_crowd = 0.0, 0, dict.fromkeys(MODES, 0)
        for round_number in range(options.rounds):
            is_crowded = round_number % CROWD_EVERY == CROWD_EVERY - 1
            loads = [*(writers if is_crowded else writers[:WRITERS]), *steppers, *indexed, changer]
            mode, before = MODES[round_number % len(MODES)], acknowledged(writers[WRITERS:])
            next_mode = MODES[(round_number + 1) % len(MODES)]
            wrong, seconds = one_round(node, loads, rng, CROWD_SECONDS if is_crowded else 0, next_mode)
            of_crowd[mode] += acknowledged(writers[WRITERS:]) - before
            slowest = max(slowest, seconds)
            failed += bool(wrong)
            of_memory += "rows" in changer.in_memory
            for line in wrong[:20]:
                print(f"round {round_number}, {mode}: {line}", flush=True)
            if wrong and node.process.poll() is not None:
                break
        of_modes = ", ".join(f"{count} in {mode}" for mode, count in of_crowd.items())
        print(f"seed {options.seed}: {options.rounds} kills ({of_memory} with the rows in memory), {acknowledged(writers)} writes (of "
              f"{CROWD - WRITERS} writers in every {CROWD_EVERY}th: {of_modes}), {acknowledged(steppers)} conditions, counts and "
              f"compact rows, {acknowledged(indexed)} of rows with indexes, and {changer.acknowledged} schema and table steps acknowledged, "
              f"slowest restart {slowest:.2f} s")
        if failed:
            node.keep = True
            print(f"the node's directory is kept: {node.directory}")
    print(f"{options.rounds - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def acknowledged(loads: list) -> int:
    return sum(load.acknowledged for load in loads)


def one_round(node, loads: list, rng: Random, seconds_more: float, next_mode: str) -> tuple[list[str], float]:
    """Loads, kills, restarts in the next mode and checks. Returns the faults and the seconds of the restart."""
    stop = threading.Event()
    refused: list[str] = []
    threads = [threading.Thread(target=run, args=(load, node, stop, refused)) for load in loads]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(SHORTEST_SECONDS, LONGEST_SECONDS) + seconds_more)
    if rng.random() < 0.4:
        flusher = threading.Thread(target=flush, args=(node,))
        flusher.start()
        threads.append(flusher)
        time.sleep(rng.uniform(0, 0.15))
    node.kill()
    stop.set()
    for thread in threads:
        thread.join()
    if isinstance(node, Espalier):
        node.environment["ESPALIER_COMMITLOG_SYNC"] = next_mode
    started = time.monotonic()
    node.launch()
    seconds = time.monotonic() - started
    with Connection(node.host, node.port) as connection:
        wrong = [line for load in loads for line in load.check(connection)]
    return refused + wrong, seconds


def run(load, node, stop: threading.Event, refused: list[str]) -> None:
    try:
        load.run(node, stop)
    except Exception as failure:            # whatever a load meets but a broken connection is a finding
        refused.append(f"{type(load).__name__}: {type(failure).__name__}: {failure}")


def flush(node) -> None:
    try:
        node.flush(KEYSPACE)
    except (RuntimeError, OSError):
        return          # the node was killed under it


if __name__ == "__main__":
    main()
