"""The programs of `bench/src/bin`, which measure without a server. All that are needed are built
before anything is measured."""

import json
import subprocess
from pathlib import Path

from proof import places

TARGET = places.CACHE / "bench-process"
TIMEOUT_SECONDS = 900


def build(programs: list[str]) -> None:
    if programs:
        wanted = [word for program in programs for word in ("--bin", f"bench-{program}")]
        subprocess.run(["cargo", "build", "--release", "--quiet", "--locked", "-p", "bench", *wanted, "--target-dir", str(TARGET)],
                       cwd=places.ROOT, check=True)


def binary(program: str) -> Path:
    return TARGET / "release" / f"bench-{program}"


def figures(command: list) -> list[dict]:
    """Runs a program, and returns what it prints: an object of JSON on a line."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
