"""The files of `crates/` that a prepared write of one row and a read of one row from a memtable visit, from the frame
to the trie: the length of the path that a reader of the sources has to follow.

A file is visited if at least `LINES_MIN` of its lines run in an operation; fewer lines are accessors and conversions,
which a reader need not open to follow the request. A line runs in an operation if it takes half an instruction or more
on average. Lines count where they are written, so inlined functions count for their own file. `LINES_MIN` is the
number with which the tree before the rework of 2026-11-24 (commit 9ac22cc9) has the 48 files for a write that its
reviewer counted by reading.

    python -m bench.harness.files_visited       (needs valgrind, as bench.harness.instructions)
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from bench.harness.instructions import KEYSPACE, OPERATIONS, PARTITIONS, Counted
from bench.harness.scenarios import tables

READS_PERCENT = {"writes": 0, "memtable reads": 100}
LINES_MIN = 6
NAME = re.compile(r"\((\d+)\)(?: (.*))?$")
# The standard library is also below a directory `crates`, in `library/stdarch`.
OURS = re.compile(r"^(?!.*/stdarch/).*\bcrates/(\w+/src/.*\.rs)$")


@dataclass
class Visit:
    """The part of a file that an operation visits."""

    lines: int
    instructions: float


def line_costs(dump: Iterable[str]) -> Counter[tuple[str, int]]:
    """The instructions of each line of a file, without those of the functions that it calls, from callgrind's dump."""
    names: dict[str, str] = {}
    costs: Counter[tuple[str, int]] = Counter()
    file, line, is_call = "", 0, False
    for row in dump:
        key, is_field, value = row.strip().partition("=")
        if is_field and key in ("fl", "fi", "fe", "cfi", "cfl"):
            number, name = NAME.match(value).groups()
            # A name is written out once. Later it is a number.
            names.setdefault(number, name or "")
            file = names[number] if key in ("fl", "fi", "fe") else file
        elif key == "calls":
            is_call = True
        elif key[:1] in tuple("+-*0123456789"):
            at, *count = key.split()
            line = line if at == "*" else line + int(at) if at[0] in "+-" else int(at)
            # The line after `calls=` has the cost of the called function.
            if not is_call and count:
                costs[file, line] += int(count[0])
            is_call = False
    return costs


def visits(short: Counter[tuple[str, int]], long: Counter[tuple[str, int]], operations: int) -> dict[str, Visit]:
    """The visits of each of our files by an operation, from two runs that differ by this number of operations."""
    found: defaultdict[str, Visit] = defaultdict(lambda: Visit(0, 0.0))
    for (file, line), count in long.items():
        per_operation = (count - short[file, line]) / operations
        if ours := OURS.match(file):
            found[ours[1]].instructions += per_operation
            found[ours[1]].lines += per_operation >= 0.5
    return {file: visit for file, visit in found.items() if visit.lines >= LINES_MIN}


def main() -> None:
    with Counted.start(memtable_mb=256) as node:
        tables.make(node, KEYSPACE, {"kv": tables.KEY_VALUE})
        tables.fill(node, KEYSPACE, "kv", PARTITIONS)
        for load_name, reads_percent in READS_PERCENT.items():
            runs = []
            for operations in (OPERATIONS, 2 * OPERATIONS):
                node.count(reads_percent, operations, 2)
                with node.dump.open() as dump:
                    runs.append(line_costs(dump))
            visited = visits(*runs, OPERATIONS)
            print(f"{load_name}: {len(visited)} files")
            for file, visit in sorted(visited.items()):
                print(f"    {file:45}{visit.lines:5} lines {visit.instructions:6.0f} instructions", flush=True)


if __name__ == "__main__":
    main()
