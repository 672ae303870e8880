"""Processor time of a process by kinds of threads: threads whose names differ in a number are of one kind."""

import os
import re
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/task/TID/stat after the name, which is in brackets: ticks in user mode and in the kernel.
USER, KERNEL = 11, 12


def seconds_by_kind(pid: int) -> dict[str, float]:
    """Seconds since the start of each kind of the threads that are alive. Names have fifteen characters at most."""
    seconds: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, fields = (task / "stat").read_text().partition("(")[2].rsplit(")", 1)
        except OSError:
            continue        # the thread has ended
        ticks = fields.split()
        kind = re.sub(r"[-#:]*\d+$", "", name)
        seconds[kind] = seconds.get(kind, 0.0) + (int(ticks[USER]) + int(ticks[KERNEL])) / TICKS_PER_SECOND
    return seconds


def between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """The processor time between two readings, the most first."""
    used = {kind: seconds - before.get(kind, 0.0) for kind, seconds in after.items()}
    return dict(sorted(used.items(), key=lambda item: -item[1]))
