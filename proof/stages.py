"""`make test`: every stage of the proof, each with its time, and one line of totals at the end.

What cargo does comes first, in turn. The proofs of the binary need nothing of each other and wait for servers to start most of the
time: two of them run side by side, and what one prints is shown when it has ended.

A stage is a command that prints "N passed, N failed" last (cargo's own summaries are added up). A stage that ends
without such a line, or with a status other than zero and no failure counted, counts as one failure. One that hangs is
ended after `LIMIT_SECONDS`, so that the others are still run and it is the one that is seen to have failed.

usage: python -m proof.stages [STAGE ...]        (all of them by default)
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from proof import places
from proof.drivers.checks import NOT_PROVED

PYTHON = str(places.VENV / "bin" / "python")
TOTALS = re.compile(r"^(\d+) passed, (\d+) failed$")
LIMIT_SECONDS = 40 * 60
SIDE_BY_SIDE = 2
CARGO_TOTALS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;")


@dataclass
class Stage:
    name: str
    command: list[str]
    kind: str = "proof"         # "proof": prints totals; "cargo-test": cargo's totals; "single": its status is the test


@dataclass
class Result:
    stage: Stage
    passed: int
    failed: int
    seconds: float
    skipped: list[str] = field(default_factory=list)        # what cannot be proved on this machine, and why


CARGO = [
    Stage("format", ["cargo", "fmt", "--all", "--check"], "single"),
    Stage("clippy", ["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], "single"),
    Stage("cargo-test", ["cargo", "test", "--workspace", "--quiet", "--no-fail-fast"], "cargo-test"),
    Stage("proof-tests", [PYTHON, "-m", "proof.tests"]),
    Stage("release-build", ["cargo", "build", "--release", "--quiet", "--bin", "espalier"], "single"),
]
# The longest first, so that none is left to run alone.
PROOFS = [
    Stage("drivers", [PYTHON, "-m", "proof.drivers"]),
    Stage("differential", [PYTHON, "-m", "proof.differential"]),
    Stage("tables", [PYTHON, "-m", "proof.tables"]),
    Stage("upgrade", [PYTHON, "-m", "proof.upgrade"]),
    Stage("node", [PYTHON, "-m", "proof.node"]),
    Stage("kill", [PYTHON, "-m", "proof.kill"]),
    Stage("attack", [PYTHON, "-m", "proof.attack"]),
    Stage("errors", [PYTHON, "-m", "proof.errors"]),
    Stage("catalog", [PYTHON, "-m", "proof.catalog"]),
    Stage("nycflights", [PYTHON, "examples/nycflights/load.py", "--limit", "20000", "--own-node"]),
    Stage("log", [PYTHON, "-m", "proof.log"]),
]
STAGES = CARGO + PROOFS

RUNNING: set[subprocess.Popen] = set()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    wanted = sys.argv[1:] or [stage.name for stage in STAGES]
    unknown = set(wanted) - {stage.name for stage in STAGES}
    if unknown:
        sys.exit(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in STAGES)}")
    started = time.monotonic()
    results = [run(stage, print_now) for stage in CARGO if stage.name in wanted]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        try:
            results += pool.map(run_apart, [stage for stage in PROOFS if stage.name in wanted])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
    print()
    for result in results:
        print(f"{result.stage.name:15} {result.seconds:7.1f} s  {result.passed:6} passed {result.failed:4} failed")
    print("".join(f"{line}\n" for result in results for line in result.skipped), end="")
    if shutil.which("go") is None:
        print("GO IS NOT INSTALLED: the gocql driver was NOT tested")
    passed, failed = sum(result.passed for result in results), sum(result.failed for result in results)
    print(f"{time.monotonic() - started:.0f} s in all")
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


def print_now(line: str) -> None:
    print(line, flush=True)


def run_apart(stage: Stage) -> Result:
    """Runs a stage beside another; its output is printed at its end."""
    lines: list[str] = []
    try:
        return run(stage, lines.append)
    finally:
        print("\n".join(lines), flush=True)


def run(stage: Stage, tell: Callable[[str], None]) -> Result:
    """Runs a stage; every line of its output is told."""
    tell(f"\n=== {stage.name}: {' '.join(stage.command)}")
    started = time.monotonic()
    process = subprocess.Popen(stage.command, cwd=places.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    RUNNING.add(process)
    limit = threading.Timer(LIMIT_SECONDS, end, [process])
    limit.daemon = True
    limit.start()
    passed = failed = 0
    summarised = False
    skipped: list[str] = []
    try:
        for line in process.stdout:
            tell(line.rstrip("\n"))
            if line.startswith(NOT_PROVED):
                skipped.append(line.rstrip("\n"))
            totals = (CARGO_TOTALS if stage.kind == "cargo-test" else TOTALS).match(line.strip())
            if totals and stage.kind != "single":
                passed, failed = (passed + int(totals[1]), failed + int(totals[2]))
                summarised = True
        status = process.wait()
    finally:
        limit.cancel()
        end(process)
        RUNNING.discard(process)
    seconds = time.monotonic() - started
    if seconds >= LIMIT_SECONDS:
        tell(f"--- {stage.name} did not end within {LIMIT_SECONDS} s")
    if stage.kind == "single":
        passed, failed = (1, 0) if status == 0 else (0, 1)
    elif not summarised or (status != 0 and failed == 0):
        failed += 1
    tell(f"--- {stage.name}: {passed} passed, {failed} failed in {seconds:.1f} s")
    return Result(stage, passed, failed, seconds, skipped)


def end(process: subprocess.Popen) -> None:
    """Ends a stage with all that it started in its session, if it has not ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def end_all() -> None:
    for process in list(RUNNING):
        end(process)


if __name__ == "__main__":
    main()
