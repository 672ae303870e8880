"""Makes a failing history small: fewer steps, with the last one still answered differently."""

import time
from dataclasses import replace

from proof.differential.compare import Difference, Pair
from proof.differential.steps import History, Step


def shrink(pair: Pair, found: Difference, seconds: float) -> Difference:
    """Delta debugging on the steps before the failing one, for about `seconds`."""
    deadline = time.monotonic() + seconds
    target = found.history.steps[found.index]
    best = found
    steps = found.history.steps[:found.index]
    size = max(1, len(steps) // 2)
    while steps and time.monotonic() < deadline:
        shrunk = False
        at = 0
        while at < len(steps) and time.monotonic() < deadline:
            fewer = steps[:at] + steps[at + size:]
            difference = still_differs(pair, found.history, fewer, target)
            if difference is not None:
                steps, best, shrunk = fewer, difference, True
            else:
                at += size
        if size == 1 and not shrunk:
            break
        size = max(1, min(size // 2, len(steps)))
    return best


def still_differs(pair: Pair, history: History, steps: list[Step], target: Step) -> Difference | None:
    tried = replace(history, steps=steps + [target])
    differences = pair.run(tried).differences
    return differences[0] if differences and differences[0].index == len(steps) else None


