"""The time of a refused login: with the name of no role, with a wrong password, and for a role without a password. All
three get the same answer, and its time should not show a client which of them it was.

usage: python -m bench.harness.login_times [ROUNDS]

It prints figures without judging them, because times depend on what else the machine does. The kinds take turns, each
login has an address of its own, so that no limit of failed logins is reached, and passwords are hashed each time.
"""

import random
import statistics
import sys
import time

from proof.oracle.espalier import Espalier
from proof.roles.__main__ import SUPERUSER, expect
from proof.wire import Connection, Error

KINDS = {"no such role": "nobody_{}", "wrong password": "has_{}", "no password": "none_{}"}
ROLES = 10


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    chosen = random.Random(1)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with Espalier.start(authenticator="PasswordAuthenticator", authorizer="CassandraAuthorizer", credentials_validity="0ms") as node:
        with Connection(node.host, node.port, 5, login=SUPERUSER) as admin:
            for number in range(ROLES):
                expect(admin, f"CREATE ROLE has_{number} WITH LOGIN = true AND PASSWORD = 'right'")
                expect(admin, f"CREATE ROLE none_{number} WITH LOGIN = true")
        for number in range(rounds):
            kinds = list(KINDS.items())
            chosen.shuffle(kinds)
            for kind, name in kinds:
                times[kind].append(refused(node, name.format(chosen.randrange(ROLES)), number))
    base = statistics.median(times["wrong password"])
    for kind, measured in times.items():
        cut = statistics.quantiles(measured, n=20)
        median = statistics.median(measured)
        # The standard error of the median.
        error = 1.2533 * statistics.stdev(measured) / len(measured) ** 0.5
        print(f"{kind:16} median {median * 1e3:8.3f} ms (+- {error * 1e3:.3f}), 5 % {cut[0] * 1e3:8.3f}, 95 % {cut[-1] * 1e3:8.3f}, "
              f"{100 * (median / base - 1):+.2f} % of a wrong password")


def refused(node, name: str, number: int) -> float:
    """Seconds from the login to its answer."""
    with Connection(node.host, node.port, 5, login=None, startup=False, source=f"127.0.{1 + number // 250}.{1 + number % 250}") as client:
        client.login = ("", "")
        client.log_in = lambda *_: None         # STARTUP alone
        client.startup()
        del client.log_in
        begun = time.perf_counter()
        answer = client.log_in(name, "wrong")
        seconds = time.perf_counter() - begun
    if not isinstance(answer, Error) or "and/or password are incorrect" not in answer.message:
        raise RuntimeError(f"{name}: {answer}")
    return seconds


if __name__ == "__main__":
    main()
