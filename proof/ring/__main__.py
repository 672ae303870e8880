"""A ring of three Cassandras on loopback with our memtables: to play with, or to prove.

usage: python -m proof.ring [--check] [--mode memtable|storage ...] [--steps kills hints ...] [--seed 1]
       [--statements 150] [--jar FILE] [--library FILE] [--keep]
       python -m proof.ring --nodetool PORT status
"""

import argparse
import signal
import sys
from pathlib import Path

from proof import places
from proof.plugin.__main__ import JAR
from proof.ring.check import STEPS, prove
from proof.ring.nodes import Plugin, Ring, nodetool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="run the proof, where a ring would wait for ^C")
    parser.add_argument("--mode", nargs="+", choices=("memtable", "storage"), default=["memtable", "storage"])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--statements", type=int, default=150)
    parser.add_argument("--jar", type=Path, default=JAR)
    parser.add_argument("--library", type=Path, help="a native library in place of the one in the jar")
    parser.add_argument("--keep", action="store_true", help="keep the directories of the nodes")
    parser.add_argument("--nodetool", nargs=argparse.REMAINDER, metavar="PORT",
                        help="Cassandra's nodetool on the JMX port of a node")
    options = parser.parse_args()
    if options.nodetool:
        done = nodetool(*options.nodetool)
        print(done.stdout + done.stderr, end="")
        sys.exit(done.returncode)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    if options.check:
        sys.exit(check(options))
    play(options)


def check(options: argparse.Namespace) -> int:
    """Returns the exit status."""
    passed = failed = 0
    for mode in options.mode:
        print(f"mode {mode}", flush=True)
        with Ring(Plugin(options.jar, options.library, mode)) as ring:
            ring.is_kept = options.keep
            more_passed, more_failed = prove(ring, options.seed, options.statements, options.steps)
        passed, failed = passed + more_passed, failed + more_failed
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def play(options: argparse.Namespace) -> None:
    mode = options.mode[0]
    try:
        with Ring(Plugin(options.jar, options.library, mode)) as ring:
            ring.is_kept = options.keep
            for number in (1, 2, 3):
                print(f"starting 127.0.0.{number}", flush=True)
                ring.add()
            python = places.VENV.relative_to(places.ROOT) / "bin" / "python"
            print(f"\nThree nodes run. A table WITH memtable = '{ring.plugin.memtable}' is in mode {mode}.")
            for node in ring.nodes:
                print(f"  {python.parent}/cqlsh {node.host} {node.port}")
                print(f"  {python} -m proof.ring --nodetool {node.jmx_port} status")
            print("^C ends them.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("ended", flush=True)


if __name__ == "__main__":
    main()
