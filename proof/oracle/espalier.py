"""An Espalier of the proof's own: the binary under test in a directory of its own, with the oracle's interface.

    with Espalier.start() as node:
        connect(node.host, node.port)
        node.flush("ks")
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from proof import places

READY_TIMEOUT_SECONDS = 60
# The passwords of the proofs that nothing else contains. No log of any node may have them, nor a hash of any password.
SECRETS = ("a_secret_that_is_nowhere", "a_key_that_opens_the_store")
SECRET_PATTERN = re.compile("|".join((*SECRETS, r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")))
STOP_TIMEOUT_SECONDS = 60


def environment(**settings: str) -> dict[str, str]:
    """This process's environment with `settings` for the server and none of ours: ESPALIER_BIN is no option of its."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")} | settings


def secret_in(text: str) -> str | None:
    """A password of the proofs in a log, or the hash of any password."""
    found = SECRET_PATTERN.search(text)
    return found[0] if found else None


class Espalier:
    """A running node. `host`, `port`, `data`; end it with `stop()` (or leave the `with` block)."""

    name = "espalier"
    host = "127.0.0.1"

    flags: tuple[str, ...] = ()         # of `espalier serve`, besides directory and port
    under: tuple[str, ...] = ()         # a program that runs it
    ready_timeout_seconds = READY_TIMEOUT_SECONDS

    def __init__(self, directory: Path, port: int, environment: dict[str, str], keep: bool):
        self.directory = directory
        self.data = directory / "data"
        self.port = port
        self.environment = environment
        self.keep = keep
        self.process = None

    @classmethod
    def start(cls, keep: bool = False, in_memory: bool = False, **settings: str) -> "Espalier":
        """Starts a node in a fresh directory; `settings` are keys of espalier.yaml (commitlog_sync="batch")."""
        node = cls.prepare(keep, in_memory, **settings)
        node.launch()
        return node

    @classmethod
    def prepare(cls, keep: bool = False, in_memory: bool = False, **settings: str) -> "Espalier":
        """As `start`, but the process is not launched yet."""
        settings = {"drop_compact_storage_enabled": "true"} | settings       # as in the oracle's configuration
        environment = {f"ESPALIER_{key.upper()}": value for key, value in settings.items()}
        return cls(places.run_directory("espalier", in_memory), places.free_ports(1)[0], environment, keep)

    def launch(self) -> None:
        """Starts the process on the node's directory and port, and returns once it takes connections."""
        binary = places.espalier_binary()
        if not binary.exists():
            raise RuntimeError(f"{binary} does not exist: build it with `cargo build --release`")
        command = [*self.under, str(binary), "serve", "--data", str(self.data), "--listen", self.host, "--port", str(self.port),
                   *self.flags]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=environment(**self.environment), start_new_session=True)
        deadline = time.monotonic() + self.ready_timeout_seconds
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                raise RuntimeError(f"Espalier did not start (status {self.process.returncode}):\n{self.log_tail()}")
            time.sleep(0.01)

    def answers(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def log_tail(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-4000:]

    def steer(self, *arguments: str) -> str:
        """Runs `espalier VERB ...` on the running node and returns its output."""
        return self.tool(arguments[0], "--data", str(self.data), *arguments[1:])

    @staticmethod
    def tool(*arguments: str) -> str:
        """Runs `espalier ...`, a command that ends, and returns its output."""
        command = [str(places.espalier_binary()), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
        if done.returncode != 0:
            raise RuntimeError(f"espalier {' '.join(arguments)}: status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def enable_audit_log(self, options: dict[str, str]) -> None:
        flags = ((f"--{name.replace('_', '-')}", value) for name, value in options.items())
        self.steer("enableauditlog", *(word for flag in flags for word in flag))

    def disable_audit_log(self) -> None:
        self.steer("disableauditlog")

    def audit_options(self) -> dict[str, str]:
        lines = (line.split(maxsplit=1) for line in self.steer("getauditlog").splitlines())
        return {words[0]: words[1] if len(words) > 1 else "" for words in lines}

    def restart_with_audit_log(self, options: dict[str, str]) -> None:
        written = ", ".join(f"{name}: {value}" for name, value in options.items())
        self.environment["ESPALIER_AUDIT_LOGGING_OPTIONS"] = f"{{logger: FileAuditLogger, roll_cycle: DAILY, {written}}}"
        self.restart()

    def restart_with(self, settings: str) -> None:
        """Starts the node again with these lines in its configuration, in place of those of an earlier call."""
        configuration = self.directory / "espalier.yaml"
        configuration.write_text(settings)
        self.flags = (*(flag for flag in self.flags if flag not in ("--config", str(configuration))), "--config", str(configuration))
        self.restart()

    def read_places(self) -> None:
        """Lists of places that were written directly hold from now on."""
        self.steer("invalidatenetworkpermissionscache")

    def flush(self, *keyspace_and_table: str) -> None:
        self.steer("flush", *keyspace_and_table)

    def compact(self, *keyspace_and_table: str) -> None:
        self.steer("compact", *keyspace_and_table)

    def sstables(self, keyspace: str, table: str) -> list[Path]:
        """Data.db files in the table's directory."""
        return sorted((self.data / "data" / keyspace).glob(f"{table}-*/da-*-bti-Data.db"))

    def snapshot(self, keyspace: str, table: str) -> list[Path]:
        """Data.db files of a table as they are now; unlike `sstables`, no compaction takes them away."""
        tag = f"proof{time.monotonic_ns()}"
        self.steer("snapshot", "--tag", tag, keyspace, table)
        return sorted((self.data / "data" / keyspace).glob(f"{table}-*/snapshots/{tag}/da-*-bti-Data.db"))

    @property
    def audit_log(self) -> Path:
        return self.data / "audit" / "audit.log"

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> int:
        """SIGTERM: drains; the exit status."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"Espalier did not stop within {STOP_TIMEOUT_SECONDS} s:\n{self.log_tail()}") from None

    def restart(self) -> None:
        """SIGTERM, then a new process on the same directory."""
        status = self.terminate()
        if status != 0:
            raise RuntimeError(f"Espalier ended with status {status} on SIGTERM:\n{self.log_tail()}")
        self.launch()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            status = self.terminate()
            if status != 0:
                raise RuntimeError(f"Espalier ended with status {status} on SIGTERM:\n{self.log_tail()}")
        self.search_logs()
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def search_logs(self) -> None:
        """Raises if a log of the node has a password or a hash of one: its own, the
        audit log, or the full query log."""
        for log in (self.directory / "log", *self.directory.rglob("audit*.log"), *self.directory.rglob("full_query*.log")):
            if log.is_file() and (found := secret_in(log.read_text(errors="replace"))):
                self.keep = True
                raise RuntimeError(f"{log} has the password or hash {found[:12]}...")

    def __enter__(self) -> "Espalier":
        return self

    def __exit__(self, failure, *_) -> None:
        if failure not in (None, SystemExit, KeyboardInterrupt):
            self.keep = True
            print(f"Espalier's directory is kept: {self.directory}\n{self.log_tail()}", flush=True)
        self.stop()
