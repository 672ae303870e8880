"""A table in memory of more than 4 GiB: filled beside flushes and merges, its parts split as they fill, and
loaded whole by the next start.

usage: python -m proof.large [--mib 4096]
       (takes 6 GiB of memory, 12 of disk and some minutes; no part of `make test`)
"""

import argparse
import shutil

from bench.harness import in_process
from proof import places
from proof.drivers.checks import Checks

# Of the program: what a row's value has, and which rows it looks for after a start.
VALUE_BYTES, LOOKED_FOR = 1_000, 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=4096)
    options = parser.parse_args()
    in_process.build(["inmemory"])
    program, directory = in_process.binary("inmemory"), places.run_directory("large")
    checks = Checks("large")
    try:
        rows = (options.mib << 20) // VALUE_BYTES
        [filled] = in_process.figures([program, "fill", options.mib, directory])
        print(f"filled: {filled}")
        checks.equal("rows written", filled["rows"], rows)
        checks.true("all of it is in memory", filled["in_memory_mib"] > options.mib, str(filled))
        started, found = in_process.figures([program, "start", directory])
        print(f"started: {started}")
        checks.true("all of it is in memory after a start", started["gib"] * 1024 > options.mib, str(started))
        checks.equal("rows found", found["rows_found"], -(-rows // LOOKED_FOR))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    checks.end()


if __name__ == "__main__":
    main()
