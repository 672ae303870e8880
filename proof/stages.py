"""`make test`: every stage of the proof in turn, each with its time, and one line of totals at the end.

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
from dataclasses import dataclass

from proof import places

PYTHON = str(places.VENV / "bin" / "python")
TOTALS = re.compile(r"^(\d+) passed, (\d+) failed$")
LIMIT_SECONDS = 40 * 60
CARGO_TOTALS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;")


@dataclass
class Stage:
    name: str
    command: list[str]
    kind: str = "proof"         # "proof": prints totals; "cargo-test": cargo's totals; "single": its status is the test


STAGES = [
    Stage("format", ["cargo", "fmt", "--all", "--check"], "single"),
    Stage("clippy", ["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], "single"),
    Stage("cargo-test", ["cargo", "test", "--workspace", "--quiet", "--no-fail-fast"], "cargo-test"),
    Stage("proof-tests", [PYTHON, "-m", "proof.tests"]),
    Stage("release-build", ["cargo", "build", "--release", "--quiet", "--bin", "espalier"], "single"),
    Stage("node", [PYTHON, "-m", "proof.node"]),
    Stage("drivers", [PYTHON, "-m", "proof.drivers"]),
    Stage("catalog", [PYTHON, "-m", "proof.catalog"]),
    Stage("errors", [PYTHON, "-m", "proof.errors"]),
    Stage("differential", [PYTHON, "-m", "proof.differential"]),
    Stage("nycflights", [PYTHON, "examples/nycflights/load.py", "--limit", "20000", "--own-node"]),
    Stage("tables", [PYTHON, "-m", "proof.tables"]),
    Stage("upgrade", [PYTHON, "-m", "proof.upgrade"]),
    Stage("kill", [PYTHON, "-m", "proof.kill"]),
    Stage("log", [PYTHON, "-m", "proof.log"]),
]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    wanted = sys.argv[1:] or [stage.name for stage in STAGES]
    unknown = set(wanted) - {stage.name for stage in STAGES}
    if unknown:
        sys.exit(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in STAGES)}")
    results = [(stage, *run(stage)) for stage in STAGES if stage.name in wanted]
    print()
    for stage, passed, failed, seconds in results:
        print(f"{stage.name:15} {seconds:7.1f} s  {passed:6} passed {failed:4} failed")
    if shutil.which("go") is None:
        print("GO IS NOT INSTALLED: the gocql driver was NOT tested")
    passed, failed = sum(r[1] for r in results), sum(r[2] for r in results)
    print(f"{sum(r[3] for r in results):.0f} s in all")
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


def run(stage: Stage) -> tuple[int, int, float]:
    """Runs a stage, letting its output through; (passed, failed, seconds)."""
    print(f"\n=== {stage.name}: {' '.join(stage.command)}", flush=True)
    started = time.monotonic()
    process = subprocess.Popen(stage.command, cwd=places.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    limit = threading.Timer(LIMIT_SECONDS, end, [stage, process])
    limit.daemon = True
    limit.start()
    passed = failed = 0
    summarised = False
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            totals = (CARGO_TOTALS if stage.kind == "cargo-test" else TOTALS).match(line.strip())
            if totals and stage.kind != "single":
                passed, failed = (passed + int(totals[1]), failed + int(totals[2]))
                summarised = True
        status = process.wait()
    finally:
        limit.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if stage.kind == "single":
        passed, failed = (1, 0) if status == 0 else (0, 1)
    elif not summarised or (status != 0 and failed == 0):
        failed += 1
    seconds = time.monotonic() - started
    print(f"--- {stage.name}: {passed} passed, {failed} failed in {seconds:.1f} s", flush=True)
    return passed, failed, seconds


def end(stage: Stage, process: subprocess.Popen) -> None:
    """Ends a stage with all that it started in its session."""
    print(f"--- {stage.name} did not end within {LIMIT_SECONDS} s", flush=True)
    os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
