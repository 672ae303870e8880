"""Attacks that need nothing but a connection, against one node, beside an honest client.

For each attack: its answers are those that are expected and come within its time, the honest client waits at most
250 ms longer than under honest load, the node's memory stays under its budget plus 10 %, and the node lives. At the end
SIGTERM ends the node within 10 s while attacks are under way. With SECONDS attacks run in a random mixture, four at a
time, with a SIGTERM at a random moment of each minute.

usage: python -m proof.attack [--seconds SECONDS] [--seed SEED] [--only ROW ...]
"""

import argparse
import random
import threading
import time

# Each adds its attacks.
from proof.attack import (answers, connections, contention, large_rows, prepared, reads, scans,  # noqa: F401
                          second_look, statements)
from proof.attack.attacks import ATTACKS, Attack, describe, is_expected
from proof.attack.probe import Probe
from proof.attack.target import BUDGET_MIB, Target
from proof.drivers.checks import Checks

LONGER_MS_MAX = 250
MEMORY_FACTOR = 1.1
STOP_SECONDS_MAX = 10
HONEST_SECONDS = 3
MIXED_THREADS = 4
# Rows of the list whose faults are not fixed yet. Their attacks run only when they are asked for by name.
OPEN: set[str] = set()
MINUTE_SECONDS = 60


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--only", nargs="*", help="rows or names of attacks")
    arguments = parser.parse_args()
    chosen = [attack for attack in ATTACKS if is_chosen(attack, arguments.only)]
    for row in sorted(OPEN):
        print(f"row {row} is open, and its attacks are left out", flush=True)
    checks = Checks("attack")
    with checks.part("one after another"):
        one_after_another(checks, chosen)
    rng = random.Random(arguments.seed)
    with checks.part(f"a mixture, seed {arguments.seed}"):
        mixture(checks, chosen, rng, arguments.seconds)
    checks.end()


def is_chosen(attack: Attack, only: list[str] | None) -> bool:
    return bool({attack.row, attack.name} & set(only)) if only else attack.row not in OPEN


class Measuring:
    """A node, its honest client, and the limits of its memory and of the client's waits."""

    def __init__(self, checks: Checks):
        self.checks = checks
        self.target = Target.start()
        self.probe = Probe(self.target.host, self.target.port)
        self.target.honest_load(HONEST_SECONDS)
        self.base_ms = self.probe.measured().longest_ms
        self.bound_mib = MEMORY_FACTOR * (self.target.resident_mib() + sum(BUDGET_MIB.values()))
        print(f"honest load: the longest wait is {self.base_ms:.0f} ms; the memory's bound is {self.bound_mib:.0f} MiB", flush=True)

    def check(self, name: str) -> None:
        """Checks the client's waits and the node's memory since the last check."""
        measured, peak_mib = self.probe.measured(), self.target.peak_mib()
        self.target.forget_peak()
        bound_ms = self.base_ms + LONGER_MS_MAX
        print(f"{name}: the honest client waited {measured.longest_ms:.0f} ms at most, {peak_mib:.0f} MiB at most", flush=True)
        self.checks.true(f"{name}: the honest client waits no longer than {bound_ms:.0f} ms", measured.longest_ms <= bound_ms,
                         f"{measured.longest_ms:.0f} ms")
        self.checks.equal(f"{name}: the honest client's failures", measured.failures, [])
        self.checks.true(f"{name}: memory under {self.bound_mib:.0f} MiB", peak_mib <= self.bound_mib, f"{peak_mib:.0f} MiB")

    def run(self, attack: Attack) -> None:
        started = time.monotonic()
        received = attack.run(self.target)
        seconds = time.monotonic() - started
        name = f"{attack.row} {attack.name}"
        wrong = [describe(answer)[:300] for answer in received if not is_expected(attack, answer)]
        self.checks.equal(f"{name}: answers other than {attack.expected}", wrong, [])
        self.checks.true(f"{name}: answers", len(received) > 0, "none")
        self.checks.true(f"{name}: within {attack.seconds} s", seconds <= attack.seconds, f"{seconds:.1f} s")

    def stop(self, name: str) -> None:
        self.probe.stop()
        started = time.monotonic()
        status = self.target.node.terminate()
        seconds = time.monotonic() - started
        self.checks.equal(f"{name}: status on SIGTERM", status, 0)
        self.checks.true(f"{name}: SIGTERM ends the node within {STOP_SECONDS_MAX} s", seconds <= STOP_SECONDS_MAX, f"{seconds:.1f} s")
        self.target.node.stop()

    def abandon(self) -> None:
        """Ends a node that no longer serves its clients."""
        self.probe.process.kill()
        self.target.node.kill()
        self.target.node.stop()


def one_after_another(checks: Checks, chosen: list[Attack]) -> None:
    measuring = Measuring(checks)
    for attack in chosen:
        with checks.part(attack.name):
            measuring.target.forget_peak()
            measuring.probe.measured()
            measuring.run(attack)
            measuring.check(f"{attack.row} {attack.name}")
        serves = measuring.target.serves()
        checks.true(f"{attack.row} {attack.name}: the node serves new clients", serves, measuring.target.node.log_tail())
        if not serves:
            measuring.abandon()
            measuring = Measuring(checks)
    measuring.stop("after all attacks")


def mixture(checks: Checks, chosen: list[Attack], rng: random.Random, seconds: float) -> None:
    """Runs several attacks at a time. At least one node receives SIGTERM while they run."""
    end = time.monotonic() + seconds
    while True:
        measuring = Measuring(checks)
        stop = threading.Event()
        order = [rng.sample(chosen, len(chosen)) for _ in range(MIXED_THREADS)]
        threads = [threading.Thread(target=mixed, args=(measuring, attacks, stop), daemon=True) for attacks in order]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(1, MINUTE_SECONDS if seconds else 3))
        measuring.check("mixture")
        checks.true("mixture: the node lives", measuring.target.is_alive(), measuring.target.node.log_tail())
        stop.set()
        measuring.stop("mixture")
        for thread in threads:
            thread.join()
        if time.monotonic() >= end:
            return


def mixed(measuring: Measuring, attacks: list[Attack], stop: threading.Event) -> None:
    """Runs attacks one after another. Their answers are not checked here, where other attacks slow them down."""
    while not stop.is_set():
        for attack in attacks:
            if stop.is_set():
                return
            try:
                attack.run(measuring.target)
            except Exception:       # the node is being stopped, or refuses connections
                time.sleep(0.01)


if __name__ == "__main__":
    main()
