"""A wall clock that is wrong: while the node runs, it jumps back and forth between the time and another time."""

import subprocess
from pathlib import Path
from random import Random

SOURCE = Path(__file__).parent / "clock.c"
# A conditional write follows what it read up to one day ahead of the clock; two lives must not be further apart.
LONGEST_SECONDS = 6 * 3600


class Clock:
    """Called before a node is launched, it chooses the clock of the next life."""

    def __init__(self, node, rng: Random):
        self.node, self.rng = node, rng
        library = node.directory / "clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
        node.environment["LD_PRELOAD"] = str(library)

    def __call__(self) -> None:
        self.node.environment["CLOCK_OFFSET_SECONDS"] = str(self.rng.randint(-LONGEST_SECONDS, LONGEST_SECONDS))
