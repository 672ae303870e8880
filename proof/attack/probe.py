"""An honest client that reads and writes one row every 10 ms and knows how long it had to wait.

It is a process of its own, so that nothing that the attacker's Python does delays it. The main thread answers each line
of its input with what was measured since the line before; another thread asks the node.

usage: python -m proof.attack.probe HOST PORT
"""

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from proof import places
from proof.wire import Connection, ConnectionClosed, Error, QueryOptions

PERIOD_SECONDS = 0.010
READ = "SELECT v FROM attack.probe WHERE k = ?"
WRITE = "INSERT INTO attack.probe (k, v) VALUES (?, ?)"


@dataclass
class Measured:
    longest_ms: float       # of all waits, the one that has not ended included
    answers: int
    failures: list[str]     # errors instead of answers, the first few


class Probe:
    """The process, as the stage uses it."""

    def __init__(self, host: str, port: int):
        command = [sys.executable, "-m", "proof.attack.probe", host, str(port)]
        self.process = subprocess.Popen(command, cwd=places.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.measured()     # it is connected now

    def measured(self) -> Measured:
        """Returns what was measured since the last call."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return Measured(**json.loads(self.process.stdout.readline()))

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)


class Client:
    """The process's own side. One thread asks, another reports."""

    def __init__(self, host: str, port: int):
        self.connection = Connection(host, port)
        self.statements = [self.connection.prepare(cql) for cql in (READ, WRITE)]
        self.lock = threading.Lock()
        self.since: float | None = None         # when the request in flight was sent
        self.longest = 0.0
        self.answers = 0
        self.failures: list[str] = []

    def ask_for_good(self) -> None:
        number = 0
        while True:
            started = time.monotonic()
            number += 1
            try:
                self.ask(number)
            except (ConnectionClosed, OSError) as failure:
                with self.lock:
                    self.failures.append(f"connection: {failure!r}")
                return
            time.sleep(max(0.0, started + PERIOD_SECONDS - time.monotonic()))

    def ask(self, number: int) -> None:
        key = (number // 2 % 1000).to_bytes(4, "big")
        values = (key,) if number % 2 else (key, number.to_bytes(4, "big"))
        with self.lock:
            self.since = time.monotonic()
        answer = self.connection.execute(self.statements[1 - number % 2], QueryOptions(values))
        with self.lock:
            self.longest = max(self.longest, time.monotonic() - self.since)
            self.since = None
            self.answers += 1
            if isinstance(answer, Error) and len(self.failures) < 5:
                self.failures.append(answer.message)

    def report(self) -> Measured:
        with self.lock:
            waiting = 0.0 if self.since is None else time.monotonic() - self.since
            measured = Measured(1000 * max(self.longest, waiting), self.answers, self.failures)
            self.longest, self.answers, self.failures = 0.0, 0, []
            return measured


def main() -> None:
    client = Client(sys.argv[1], int(sys.argv[2]))
    threading.Thread(target=client.ask_for_good, daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps(client.report().__dict__), flush=True)


if __name__ == "__main__":
    main()
