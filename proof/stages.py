"""`make test`: every stage of the proof, each with its time and its CPU time, and one line of totals at the end.

Formatting and the build of the tests come first, one after another: each of them uses all processors. The compiler of
the tests is clippy's, so that clippy has no build of its own; any warning is a failure. The other stages run side by
side, as soon as the stages that they need have ended. Tests and proofs wait for devices, clocks and servers much of the
time, so the release build and the proofs of the binary fill the time that the tests leave. The output of a stage that
runs beside others is shown when it has ended.

No output may have a password of the proofs or a hash of one, and each node of a proof has its logs searched for them
when it is stopped (`proof/oracle/espalier.py`).

A stage is a command that prints "N passed, N failed" last (cargo's own summaries are added up). A stage that ends
without such a line, or with a status other than zero and no failure counted, counts as one failure. One that hangs is
ended after `LIMIT_SECONDS`, so that the others are still run and it is the one that is seen to have failed. What its
threads did at that time is printed at the end: the thread of a test has its name.

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
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from proof import places
from proof.drivers.checks import NOT_PROVED
from proof.oracle.espalier import secret_in

PYTHON = str(places.VENV / "bin" / "python")
TOTALS = re.compile(r"^(\d+) passed, (\d+) failed$")
LIMIT_SECONDS = 40 * 60
# Each proof may run a Cassandra and a node, so a machine with little memory runs fewer of them.
MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
SIDE_BY_SIDE = 3 if MEMORY_BYTES >= 14 << 30 else 2
CARGO_TOTALS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;")
# A failed check of a proof, a test of cargo, a test of Python. The first lines of each stage are printed again at the
# end.
FAILURE = re.compile(r"^(\S+: )?FAIL |--- FAILED$|^(FAIL|ERROR): ")
TRACEBACK = "Traceback (most recent call last):"
FAILURES_SHOWN_MAX = 10
FAILURE_CHARACTERS_MAX = 300


@dataclass
class Stage:
    name: str
    command: list[str]
    kind: str = "proof"         # "proof": prints totals; "cargo-test": cargo's totals; "single": its status is the
                                # test, and a warning fails it
    needs: tuple[str, ...] = ()     # the stages that have to end before it starts, if they run at all
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Result:
    stage: Stage
    passed: int
    failed: int
    seconds: float
    cpu_seconds: float          # of its processes, without those for which no process of the stage waited
    notes: list[str] = field(default_factory=list)      # lines that are printed again at the end


# The driver of clippy is the compiler with more lints. Cargo shows the warnings of what is built already, too.
LINTED = {"RUSTC_WORKSPACE_WRAPPER": "clippy-driver"}
# One after another.
CARGO = [
    Stage("format", ["cargo", "fmt", "--all", "--check"], "single"),
    Stage("test-build", ["cargo", "test", "--workspace", "--all-targets", "--quiet", "--no-run"], "single", environment=LINTED),
]
BINARY = ("release-build",)
# The client of the benchmarks is no member of the workspace, but uses its crates.
CLIENT_OF_BENCH = ["--manifest-path", "bench/load/Cargo.toml", "--target-dir", ".cache/bench-load"]
# A short run, half of it with indexes and views and half in our engine. The histories are those of `differential`.
HISTORIES_OF_PLUGIN = [PYTHON, "-m", "proof.differential", "--plugin", "java/target/espalier-cassandra-0.1.0.jar", "--memtable", "both",
                       "--seed", "2", "--ops", "2500"]
# Side by side, in this order: the longest first, so that none is left to run alone. The last one waits for the plugin.
OTHERS = [
    Stage("cargo-test", ["cargo", "test", "--workspace", "--quiet", "--no-fail-fast"], "cargo-test", environment=LINTED),
    Stage("release-build", ["cargo", "build", "--release", "--quiet", "--bin", "espalier"], "single"),
    Stage("bench-check", ["cargo", "check", "--quiet", "--locked", *CLIENT_OF_BENCH], "single"),
    Stage("proof-tests", [PYTHON, "-m", "proof.tests"]),
    Stage("plugin-build", ["make", "--no-print-directory", "plugin"], "single", needs=BINARY),
    Stage("plugin", [PYTHON, "-m", "proof.plugin"], needs=("plugin-build",)),
    Stage("plugin-snapshots", [PYTHON, "-m", "proof.plugin.snapshots"], needs=("plugin-build",)),
    Stage("plugin-histories", HISTORIES_OF_PLUGIN, needs=("plugin-build",)),
    Stage("roles", [PYTHON, "-m", "proof.roles", "--recorded"], needs=BINARY),
    Stage("differential", [PYTHON, "-m", "proof.differential"], needs=BINARY),
    Stage("drivers", [PYTHON, "-m", "proof.drivers", "--recorded"], needs=BINARY),
    Stage("tables", [PYTHON, "-m", "proof.tables"], needs=BINARY),
    Stage("upgrade", [PYTHON, "-m", "proof.upgrade", "--recorded"], needs=BINARY),
    Stage("kill", [PYTHON, "-m", "proof.kill"], needs=BINARY),
    Stage("linearizability", [PYTHON, "-m", "proof.linearizability"], needs=BINARY),
    Stage("log", [PYTHON, "-m", "proof.log"], needs=BINARY),
    Stage("node", [PYTHON, "-m", "proof.node"], needs=BINARY),
    Stage("catalog", [PYTHON, "-m", "proof.catalog"], needs=BINARY),
    Stage("nycflights", [PYTHON, "examples/nycflights/load.py", "--limit", "20000", "--own-node"], needs=BINARY),
    Stage("errors", [PYTHON, "-m", "proof.errors", "--recorded"], needs=BINARY),
    # It times an honest client's answers and measures memory, which a busy machine gives back later. So tests, builds
    # and other databases must not take the processors from it.
    Stage("attack", [PYTHON, "-m", "proof.attack"], needs=(*BINARY, "cargo-test", "plugin-build", "plugin", "plugin-snapshots", "plugin-histories")),
]
STAGES = CARGO + OTHERS

RUNNING: set[subprocess.Popen] = set()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    wanted = sys.argv[1:] or [stage.name for stage in STAGES]
    unknown = set(wanted) - {stage.name for stage in STAGES}
    if unknown:
        sys.exit(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in STAGES)}")
    started = time.monotonic()
    results = [run(stage, print_now) for stage in CARGO if stage.name in wanted]
    results += run_side_by_side([stage for stage in OTHERS if stage.name in wanted])
    print()
    for result in results:
        print(f"{result.stage.name:15} {result.seconds:7.1f} s {result.cpu_seconds:7.1f} s of CPU  {result.passed:6} passed {result.failed:4} failed")
    print("".join(f"{line}\n" for result in results for line in result.notes), end="")
    if shutil.which("go") is None:
        print("GO IS NOT INSTALLED: the gocql driver was NOT tested")
    passed, failed = sum(result.passed for result in results), sum(result.failed for result in results)
    print(f"{time.monotonic() - started:.0f} s in all, {sum(result.cpu_seconds for result in results):.0f} s of CPU")
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


def run_side_by_side(stages: list[Stage]) -> list[Result]:
    """Runs stages beside each other, each after the stages that it needs. Returns the results in the stages' order."""
    waiting = list(stages)
    running: dict[Future[Result], Stage] = {}
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        try:
            while waiting or running:
                unfinished = {stage.name for stage in [*waiting, *running.values()]}
                ready = [stage for stage in waiting if unfinished.isdisjoint(stage.needs)]
                for stage in ready[:SIDE_BY_SIDE - len(running)]:
                    waiting.remove(stage)
                    running[pool.submit(run_apart, stage)] = stage
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    results[running.pop(done).name] = done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
    return [results[stage.name] for stage in stages]


def print_now(line: str) -> None:
    print(line, flush=True)


def run_apart(stage: Stage) -> Result:
    """Runs a stage beside another; its output is printed at its end."""
    lines: list[str] = []
    try:
        return run(stage, lines.append)
    finally:
        print("\n".join(lines), flush=True)


def run(stage: Stage, emit: Callable[[str], None]) -> Result:
    """Runs a stage and passes every line of its output to `emit`."""
    emit(f"\n=== {stage.name}: {' '.join(stage.command)}")
    started = time.monotonic()
    process = subprocess.Popen(stage.command, cwd=places.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                               env={**os.environ, **stage.environment})
    RUNNING.add(process)
    passed = failed = 0
    cpu_seconds = 0.0
    is_summarised = has_secret = has_warning = False
    notes: list[str] = []
    failures: list[str] = []
    limit = threading.Timer(LIMIT_SECONDS, end_late, [process, stage.name, notes])
    limit.daemon = True
    limit.start()
    try:
        for line in process.stdout:
            if not has_secret and secret_in(line):
                has_secret = True
                notes.append(f"{stage.name}: A PASSWORD OR A HASH OF ONE IS IN THE OUTPUT")
            emit(line.rstrip("\n"))
            if line.startswith(NOT_PROVED):
                notes.append(line.rstrip("\n"))
            if is_failure(line.rstrip(), failures):
                failures.append(f"{stage.name}: {line.rstrip()[:FAILURE_CHARACTERS_MAX]}")
            totals = (CARGO_TOTALS if stage.kind == "cargo-test" else TOTALS).match(line.strip())
            has_warning |= line.startswith("warning")
            if totals and stage.kind != "single":
                passed, failed = (passed + int(totals[1]), failed + int(totals[2]))
                is_summarised = True
        status, cpu_seconds = end_of(process)
    finally:
        limit.cancel()
        end(process)
        RUNNING.discard(process)
    seconds = time.monotonic() - started
    if stage.kind == "single":
        passed, failed = (0, 1) if status or has_warning else (1, 0)
    elif not is_summarised or (status != 0 and failed == 0):
        failed += 1
    failed += has_secret
    notes += failures[:FAILURES_SHOWN_MAX]
    emit(f"--- {stage.name}: {passed} passed, {failed} failed in {seconds:.1f} s, {cpu_seconds:.1f} s of CPU")
    return Result(stage, passed, failed, seconds, cpu_seconds, notes)


def is_failure(line: str, before: list[str]) -> bool:
    """Returns whether a line says what failed: the check, or the exception at the end of a traceback, given the
    failures before it."""
    is_exception = bool(before) and before[-1].endswith(TRACEBACK) and line[:1].isalpha()
    return is_exception or FAILURE.search(line) is not None


def end_of(process: subprocess.Popen) -> tuple[int, float]:
    """Waits for a stage: its status, and the CPU time of its process and of all for which its processes have waited."""
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except ChildProcessError:       # the timer that ends a late stage has waited for it
        return process.wait(), 0.0
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def end_late(process: subprocess.Popen, name: str, notes: list[str]) -> None:
    """Ends a stage that has not ended in time, and notes what its threads did."""
    notes.append(f"{name} did not end within {LIMIT_SECONDS} s; its threads, with the system calls in which they waited:")
    notes.extend(threads_of_session(process.pid))
    end(process)


def threads_of_session(session: int) -> list[str]:
    """A line for each process of a session: its command, and the names and system calls of its threads."""
    lines = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(directory.name)) != session:
                continue
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            threads = [f"{thread.joinpath('comm').read_text().strip()} ({system_call(thread)})"
                       for thread in (directory / "task").iterdir()]
        except (OSError, ValueError):
            continue        # it has ended in the meantime
        lines.append(f"    {command[:100].strip()}: {', '.join(sorted(threads))[:1000]}")
    return lines


def system_call(thread: Path) -> str:
    """The number of the system call that the thread is in, or `running`. Only root and the owner may see it."""
    try:
        return thread.joinpath("syscall").read_text().split()[0]
    except (OSError, IndexError):
        return "?"


def end(process: subprocess.Popen) -> None:
    """Ends a stage with all that it started in its session, if it has not ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def end_all() -> None:
    for process in list(RUNNING):
        end(process)


if __name__ == "__main__":
    main()
