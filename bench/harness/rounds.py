"""Interleaved rounds: A B, B A, A B, … so that a drift of the machine affects both in the same way."""

import sys
import time
from dataclasses import dataclass

from bench.harness import load
from bench.harness.outcome import Plot, Table, median, spread


# The machine is quiet if all processes together use less than this share of a core for this time.
QUIET_CORES, QUIET_LOOK_SECONDS = 0.15, 0.2


@dataclass
class System:
    """One side of a comparison."""

    name: str
    node: object
    keyspace: str


class Progress:
    """The line on the terminal that shows the progress."""

    def __init__(self, scenario: str, steps: int):
        self.scenario, self.steps, self.done, self.started = scenario, steps, 0, time.monotonic()

    def step(self, what: str) -> None:
        bar = "#" * (20 * self.done // max(self.steps, 1))
        line = f"{self.scenario} [{bar:20}] {self.done}/{self.steps} {time.monotonic() - self.started:4.0f} s  {what}"
        print(f"\r{line:100}" if sys.stderr.isatty() else line, end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
        self.done += 1

    def end(self) -> None:
        if sys.stderr.isatty():
            print(file=sys.stderr)


def interleaved(systems: list[System], rounds: int, one_run, progress: Progress, what: str) -> dict[str, list]:
    """Calls `one_run(system, round)` for every system in every round; the results by system, in the order of the
    rounds. With a single round there are no waits, because its figures do not matter."""
    results = {system.name: [] for system in systems}
    for round_number in range(rounds):
        for system in systems if round_number % 2 == 0 else reversed(systems):
            progress.step(f"{what}, round {round_number + 1}, {system.name}")
            if rounds > 1:
                until_quiet()
            results[system.name].append(one_run(system, round_number))
    return results


def until_quiet(seconds: float = 0.5) -> None:
    """Waits until servers have ended the work that a load has caused, such as compiling, merging and collecting
    garbage, so that it does not affect the next measurement. Gives up after this time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = load.busy_seconds()
        time.sleep(QUIET_LOOK_SECONDS)
        if load.busy_seconds() - before <= QUIET_CORES * QUIET_LOOK_SECONDS:
            return


COLUMNS = ["load", "system", "operations/s", "CPU µs/op", "kernel µs/op", "client µs/op", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "RSS MiB",
           "written B/op", "GC ms", "other cores", "stolen cores"]


def table(title: str, results: dict[str, dict[str, list[load.Run]]]) -> Table:
    """`results`: by load, by system. Medians, with the least and the greatest where it matters most."""
    rows = []
    for what, by_system in results.items():
        for system, runs in by_system.items():
            rows.append([what, system, spread([run.throughput for run in runs]), spread([run.cpu_micros for run in runs]),
                         median([run.kernel_micros for run in runs]), median([run.client_cpu_micros for run in runs]),
                         *(median([run.latency(which) for run in runs]) for which in ("p50", "p90", "p99", "p999")),
                         median([run.resident_mb for run in runs]), median([run.written_bytes_per_operation for run in runs]),
                         median([run.gc_seconds * 1000 for run in runs]), median([run.others_cores for run in runs]),
                         median([run.stolen_cores for run in runs])])
    return Table(title, COLUMNS, rows)


def cpu(runs: list[load.Run]) -> float:
    return median([run.cpu_micros for run in runs])


def throughput(runs: list[load.Run]) -> float:
    return median([run.throughput for run in runs])


def best(by_system: dict[str, list[load.Run]], prefix: str = "cassandra") -> str:
    """The system with the greatest throughput among those whose names begin with this. Others are compared with it."""
    return max((system for system in by_system if system.startswith(prefix)), key=lambda system: throughput(by_system[system]))


def whose(by_system: dict[str, list[load.Run]]) -> str:
    """The name of the `best` system in the name of a bar."""
    return "Cassandra's" if len(by_system) == 2 else f"the better Cassandra's ({best(by_system)})"


def percentile(runs: list[load.Run], which: str) -> float:
    return median([run.latency(which) for run in runs])


def middle(runs: list[load.Run]) -> load.Run:
    """The run with the median throughput, for the plots."""
    return sorted(runs, key=lambda run: run.throughput)[len(runs) // 2]


def throughput_plot(title: str, by_system: dict[str, list[load.Run]]) -> Plot:
    series = {}
    for system, runs in by_system.items():
        samples = middle(runs).report["samples"]
        series[system] = [(after["seconds"], (after["operations"] - before["operations"]) / max(after["seconds"] - before["seconds"], 1e-3))
                          for before, after in zip(samples, samples[1:]) if after["seconds"] - before["seconds"] > 0.1]
    return Plot(f"{title}: throughput over time", "seconds", "operations/s", series)


def memory_plot(title: str, by_system: dict[str, list[load.Run]]) -> Plot:
    series = {system: [(sample["seconds"], sample["server_resident_bytes"] / 2**20) for sample in middle(runs).report["samples"]]
              for system, runs in by_system.items()}
    return Plot(f"{title}: memory of the process", "seconds", "MiB resident", series)


def latency_plot(title: str, by_system: dict[str, list[load.Run]]) -> Plot:
    series = {system: [(1 / above, latency) for above, latency in middle(runs).curve()] for system, runs in by_system.items()}
    return Plot(f"{title}: latency", "one operation in N takes longer", "µs", series, x_logarithmic=True, y_logarithmic=True)
