"""Kills the unmodified binary or cuts its power, at any write or sync of its files, and checks it after each restart.

Its whole data directory lies on a disk in memory (`proof/volume`) that keeps what is not synced apart. When the power
goes, each such write is kept, dropped or torn, and each such change of names kept or dropped; a new process is started
on what is left. Half of the ends are kills, which leave all of that as it is in the page cache: the next process runs
on with it, until the power goes. The load and the check are those of `proof/kill`, in every fourth case with 64
writers. A third of the ends hits the start after an end. In a third of the cases writes of the log are short meanwhile,
in another third one is done half and fails: then the node refuses writes, as its policy says, until the power goes.

A case that fails keeps the volume as the last start found it (`found`) and as it is now (`volume`), the records of both
logs, which part of the log each SSTable of the schema covers, the node's log, what every load has had acknowledged, and
what three checks say: the one that failed, another one on the same node, and one on a node that starts from a copy of
`found`. The directory is named.

usage: python -m proof.powercut [--cases 200] [--seed 1] [--periodic]

--periodic proves this program: in a mode that acknowledges first, losses must be found, and each
is kept with all of the above.
"""

import argparse
import errno
import shutil
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from random import Random

from proof import places
from proof.kill.__main__ import run
from proof.kill.indexed import IndexedWriter
from proof.kill.load import KEYSPACE, SchemaChanger, Writer, create_schema
from proof.kill.steps import Stepper
from proof.oracle.espalier import Espalier, environment
from proof.volume import Disk, Fault, Mount, in_own_namespace
from proof.wire import Connection

WRITERS = 4
STEPPERS = 2
# In one of this many cases, several clients write, so that their writes share the log's frames.
CROWD, CROWD_EVERY = 64, 4
CASES_PER_NODE = 20
LOG = "commitlog/commitlog.log"
# Errors name files without their directories.
LOG_NAME = "commitlog.log"
POLICIES = ("stop_commit", "stop", "die", "ignore")
# In a case that meets short writes. The kernel continues a short write, and that write may be short too.
SHORT_WRITES, SHORT_IN_A_ROW_MAX = 15, 3
# Small, so that segments are used anew and memtables flushed. The disk is slow if the machine is busy.
SETTINGS = {"commitlog_segment_size": "1MiB", "commitlog_total_space": "6MiB", "memtable_offheap_space": "8MiB",
            "memtable_cleanup_threshold": "0.2", "write_request_timeout": "600s", "counter_write_request_timeout": "600s",
            "cas_contention_timeout": "600s"}
OPERATIONS_MAX = {"batch": 3000, "group": 1500, "each": 5000, "periodic": 1000}
DURABLE = ("batch", "each", "group")
LONGEST_SECONDS = 2
# Long runs have the lowest priority on a busy machine. A process that ends is noticed at once.
TIMEOUT_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--periodic", action="store_true")
    options = parser.parse_args()
    cannot_mount = in_own_namespace("proof.powercut")
    if cannot_mount:
        sys.exit(f"powercut: {cannot_mount}")
    Connection.timeout_seconds = TIMEOUT_SECONDS
    ran = failed = cuts = deaths = failures = short = acknowledged = 0
    for first in range(0, options.cases, CASES_PER_NODE):
        machine = Machine(options.seed, first // CASES_PER_NODE, "periodic" if options.periodic else None)
        try:
            for case in range(first, min(first + CASES_PER_NODE, options.cases)):
                wrong = machine.case_or_failure()
                ran += 1
                failed += bool(wrong)
                for line in wrong[:20]:
                    print(f"case {case}: {line}", flush=True)
                if wrong:
                    machine.keep_evidence()
                    break
        finally:
            machine.end()
        cuts += machine.cuts
        deaths += machine.deaths
        failures += machine.failures
        short += machine.short_writes
        acknowledged += sum(load.acknowledged for load in machine.loads)
    print(f"seed {options.seed}: {cuts} power cuts, {deaths} kills, {failures} failed and {short} short writes of the log, "
          f"{acknowledged} writes and schema steps acknowledged")
    print(f"{ran - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


class Machine:
    """A node's life through many power cuts."""

    def __init__(self, seed: int, number: int, sync: str | None):
        self.rng = Random(f"{seed}/machine {number}")
        self.sync = sync or self.rng.choice(DURABLE)
        self.disk = Disk()
        self.directory = places.run_directory("powercut")
        settings = {**SETTINGS, "commitlog_sync": self.sync, "commitlog_sync_group_window": "2ms",
                    "commit_failure_policy": self.rng.choice(POLICIES)}
        self.node = Espalier(self.directory, places.free_ports(1)[0],
                             {f"ESPALIER_{key.upper()}": value for key, value in settings.items()}, True)
        self.node.ready_timeout_seconds = TIMEOUT_SECONDS
        self.loads = [SchemaChanger(seed), IndexedWriter(seed, KEYSPACE)] + [Stepper(number, seed, KEYSPACE) for number in range(STEPPERS)]
        self.loads += [Writer(number, seed) for number in range(CROWD)]
        self.cases = self.cuts = self.deaths = self.failures = self.short_writes = 0
        self.keep = False
        self.records: list[str] = []
        self.found: dict[str, bytes] = {}       # files by path, as the last start found them
        self.put_in()
        self.node.launch()
        with Connection(self.node.host, self.node.port) as connection:
            create_schema(connection, in_memory=True, has_indexes=True)

    def case_or_failure(self) -> list[str]:
        """Runs `case`. Any other failure is a fault too, for example a node that does not answer in time, and keeps all
        evidence."""
        try:
            return self.case()
        except Exception:
            return [f"{self.sync}: {traceback.format_exc()}{self.node.log_tail()}"]

    def case(self) -> list[str]:
        """Loads until the power is cut, restarts on the remaining data, checks, and returns the faults."""
        self.cases += 1
        loads = self.loads[:2 + STEPPERS + (CROWD if self.cases % CROWD_EVERY == 0 else WRITERS)]
        stop, refused = threading.Event(), []
        faults, failure = self.inject()
        for writer in loads[1:]:
            writer.is_refusal_final = failure is None
        threads = [threading.Thread(target=run, args=(load, self.node, stop, refused)) for load in loads]
        self.mount.cut_power_after(self.rng.randrange(OPERATIONS_MAX[self.sync]))
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + LONGEST_SECONDS
        while not self.mount.power_cut.wait(0.01) and time.monotonic() < deadline and any(thread.is_alive() for thread in threads):
            pass
        self.mount.cut_power()
        stop.set()
        self.end_life()
        for thread in threads:
            thread.join()
        self.short_writes += sum(fault.met.is_set() for fault in faults if fault.error is None)
        if failure is not None and failure.met.is_set():
            self.failures += 1
            # Later refusals give the reason.
            refused = [line for line in refused if LOG_NAME not in line]
        while self.rng.random() < 0.33:
            if not self.start_is_cut(self.rng.randrange(400)):
                break
        try:
            if self.node.process.poll() is not None:
                self.node.launch()
            with Connection(self.node.host, self.node.port) as connection:
                wrong = refused + [line for load in self.loads for line in load.check(connection)]
                self.note(f"checked, {len(wrong)} wrong")
                (self.directory / "first-check").write_text("\n".join(wrong) + "\n")
                return wrong
        except Exception as failed:
            return [*refused, f"{self.sync}: {failed!r}\n{self.node.log_tail()}"]

    def inject(self) -> tuple[list[Fault], Fault | None]:
        """Chooses the faults of the log's writes before the power is cut. Returns them, and the one among them that
        fails a write, if there is one."""
        within = OPERATIONS_MAX[self.sync] // 10
        if self.wrong == "short writes":
            skips = [skip for _ in range(SHORT_WRITES)
                     for skip in [self.rng.randrange(within)] * self.rng.randint(1, SHORT_IN_A_ROW_MAX)]
            return [self.mount.fail_in_half(LOG, None, skip) for skip in skips], None
        if self.wrong == "a failed write":
            failure = self.mount.fail_in_half(LOG, errno.EIO, self.rng.randrange(within))
            return [failure], failure
        return [], None

    def start_is_cut(self, operations: int) -> bool:
        """Starts the node and cuts the power meanwhile; false if the start took fewer operations, and the node runs."""
        self.mount.cut_power_after(operations)
        started = threading.Thread(target=self.try_launch)
        started.start()
        while started.is_alive() and not self.mount.power_cut.is_set():
            started.join(0.005)
        if not self.mount.power_cut.is_set():
            with self.mount.lock:
                self.mount.cut_at = None
                if not self.mount.power_cut.is_set():
                    return False
        self.end_life()
        started.join()
        return True

    def try_launch(self) -> None:
        try:
            self.node.launch()
        except RuntimeError:
            pass                        # the power went

    def end_life(self) -> None:
        """Ends the process. A power cut may also lose data that it had not made durable."""
        is_cut = self.rng.random() < 0.5
        self.cuts += is_cut
        self.deaths += not is_cut
        self.note(f"{'power cut' if is_cut else 'kill'} in case {self.cases}")
        self.node.process.kill()
        self.mount.close()
        self.node.process.wait()
        self.disk = self.disk.after_power_cut(self.rng) if is_cut else self.disk.after_process_death()
        self.found = self.disk.files()
        self.put_in()

    def note(self, what: str) -> None:
        """Records what happened, and which writes of each load had been acknowledged by then."""
        counts = " ".join(str(load.acknowledged) for load in self.loads)
        self.records.append(f"{what}: acknowledged {counts}")

    def keep_evidence(self) -> None:
        """Keeps the volume as the last start found it and as it is now, and the history, for the analysis."""
        self.keep = True
        with self.mount.lock:
            now = self.disk.files()     # the node runs on, so that files come and go
        (self.directory / "acknowledged").write_text("\n".join(self.records) + "\n")
        for name, files in (("found", self.found), ("volume", now)):
            volume = self.directory / name
            write_files(volume, files)
            (self.directory / f"{name}-records").write_text(records_of(volume))
            (self.directory / f"{name}-coverage").write_text(coverage_of(volume))
        (self.directory / "second-check").write_text(self.look_again(self.node))
        copy = Espalier(self.directory / "again", places.free_ports(1)[0], dict(self.node.environment), True)
        copy.ready_timeout_seconds = TIMEOUT_SECONDS
        write_files(copy.data, self.found)
        try:
            copy.launch()
            (self.directory / "third-check").write_text(self.look_again(copy))
        except Exception as failed:
            (self.directory / "third-check").write_text(f"{failed!r}\n")
        finally:
            if copy.process is not None and copy.process.poll() is None:
                copy.kill()

    def look_again(self, node: Espalier) -> str:
        try:
            with Connection(node.host, node.port) as connection:
                return "".join(f"{line}\n" for load in self.loads for line in load.check(connection))
        except Exception as failed:
            return f"{failed!r}\n"

    def put_in(self) -> None:
        """Mounts the disk, with or without a fault that happens under load."""
        self.wrong = self.rng.choice(("nothing", "short writes", "a failed write"))
        self.mount = Mount(self.disk, self.node.data, short_writes=self.wrong == "short writes")

    def end(self) -> None:
        self.mount.release()
        if self.node.process.poll() is None:
            self.node.kill()
        self.mount.close()
        if self.keep:
            print(f"the node's volume, its log and the lists of all checks are kept: {self.directory}")
            return
        shutil.rmtree(self.directory, ignore_errors=True)


def write_files(directory: Path, files: dict[str, bytes]) -> None:
    """Writes files, whose paths are relative to the directory."""
    for path, content in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def records_of(directory: Path) -> str:
    """Returns the records of the log in a data directory, in the order in which a start reads them. For a record that
    cannot be read, it returns the reason."""
    return output_of("log", "dump", "--data", str(directory))


def coverage_of(directory: Path) -> str:
    """Returns what is known of each SSTable of the schema: among other things, which part of the log it covers."""
    tables = sorted(directory.glob("data/system*/*/*-Data.db"))
    return "".join(f"{table.relative_to(directory)}\n{output_of('sstable', 'metadata', str(table))}\n" for table in tables)


def output_of(*arguments: str) -> str:
    command = [str(places.espalier_binary()), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    except subprocess.TimeoutExpired as late:
        return f"{late}\n"
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
