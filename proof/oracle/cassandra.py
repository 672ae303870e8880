"""Apache Cassandra 5.0.8 as the oracle: started from its published jars, on loopback, in a directory of its own.

    with Cassandra.start() as node:
        connect(node.host, node.port)
        node.flush("ks")

From a shell, `python -m proof.oracle.cassandra` starts one, prints its port and obeys the commands of OracleNode.java
on standard input (words separated by blanks) until the input ends.
"""

import argparse
import atexit
import functools
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from proof import places

HERE = Path(__file__).resolve().parent
# A start takes 15 seconds on an idle machine, and minutes beside eight other processes that compute.
READY_TIMEOUT_SECONDS = 900
TOOL_TIMEOUT_SECONDS = 300
ARCHIVE = places.CASSANDRA / "classes.jsa"

ADD_EXPORTS = [
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql", "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach", "jdk.compiler/com.sun.tools.javac.file",
]
ADD_OPENS = [
    "java.base/java.lang", "java.base/java.lang.module", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.math", "java.base/java.net", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/java.util.jar",
    "java.base/jdk.internal.loader", "java.base/jdk.internal.math", "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect", "java.base/jdk.internal.util.jar",
    "java.base/jdk.internal.vm", "java.base/sun.nio.ch", "jdk.management/com.sun.management.internal",
    "jdk.compiler/com.sun.tools.javac",
]


def java_flags(heap_mb: int = 1024, more_classes: list[Path] = ()) -> list[str]:
    """What the JVM needs to run Cassandra 5.0 on Java 17; `more_classes` are jars and directories
    of classes beside Cassandra's."""
    library = places.CASSANDRA / "lib"
    class_path = ":".join(map(str, [places.CASSANDRA / "oracle.jar", *sorted(library.glob("*.jar")), *more_classes]))
    flags = [f"-Xms{heap_mb // 2}m", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xss1m",
             "-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true",
             f"-javaagent:{library / 'jamm-0.4.0.jar'}",
             "-cp", class_path]
    for package in ADD_EXPORTS:
        flags += ["--add-exports", package + "=ALL-UNNAMED"]
    for package in ADD_OPENS:
        flags += ["--add-opens", package + "=ALL-UNNAMED"]
    return flags


def archive_flags() -> list[str]:
    """The classes of Cassandra as the JVM has them in memory, which halves the work of a start. `proof/install.py`
    makes the archive. The JVM does without it if its class path begins with other classes."""
    return ["-XX:+UnlockDiagnosticVMOptions", "-XX:+AllowArchivingWithJavaAgent", "-Xlog:disable", "-Xlog:all=warning:stderr",
            f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []


def make_archive() -> None:
    """Starts a node, which loads most classes, and archives them at its end."""
    ARCHIVE.unlink(missing_ok=True)
    flags = Cassandra.jvm_flags
    Cassandra.jvm_flags = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+AllowArchivingWithJavaAgent", "-Xlog:disable", "-Xlog:all=error:stderr",
                           f"-XX:ArchiveClassesAtExit={ARCHIVE}")
    try:
        with Cassandra.start():
            pass
    finally:
        Cassandra.jvm_flags = flags


class Cassandra:
    """A running node. `host`, `port`, `directory`; end it with `stop()` (or leave the `with` block)."""

    name = "cassandra"
    host = "127.0.0.1"
    jvm_flags: tuple[str, ...] = ()     # besides those of `java_flags`

    def __init__(self, directory: Path, port: int, heap_mb: int, keep: bool, properties: dict[str, str],
                 long_run: bool = False, plugin: Path | None = None, library: Path | None = None):
        self.directory = directory
        self.port = port
        self.heap_mb = heap_mb
        self.keep = keep
        self.properties = properties
        self.long_run = long_run
        self.plugin = plugin
        if library is not None:
            self.properties = {**self.properties, "espalier.library": str(library)}
        self.process = None
        self.lock = multiprocessing.Lock()      # a process may be forked, and then both may give commands

    @classmethod
    def start(cls, views_and_functions: bool = True, heap_mb: int = 1024, keep: bool = False,
              log_level: str = "WARN", durable: bool = False, sstable_format: str = "da", data: Path | None = None,
              long_run: bool = False, ephemeral: bool = False, auto_snapshot: bool = False,
              roles: bool = False, plugin: Path | None = None, memtable: str = "trie", sasi: bool = False,
              library: Path | None = None, settings: dict[str, str] | None = None,
              engine: dict[str, str] | None = None) -> "Cassandra":
        """Starts a node in a fresh directory and returns once it serves clients.

        `durable`: the log is synced before a write is acknowledged, and system tables are flushed as in production.
        `sstable_format`: the version of SSTables that it writes: da (BTI), oa or nb (big). `data`: a
        data directory to start from.
        `long_run`: its code is compiled as well as the JVM can, which pays after some ten thousand statements.
        `ephemeral`: nothing of it is to outlive the process: no commit log, files in memory, no
        JMX. Many schemas cost less so.
        `sasi`: SASI indexes may be made.
        `auto_snapshot`: it keeps a snapshot of what is truncated or dropped.
        `plugin`: the jar of our memtables and of our engine. `memtable`: the configuration that tables have by default.
        `library`: its native library, in place of the one in the jar.
        `engine`: parameters of our engine. `settings`: lines of its configuration, in place of those of the oracle.
        `roles`: clients log in (the first as cassandra/cassandra), and have the permissions of their roles; `audit_log`
        has the entries of the audit log.
        """
        directory = places.run_directory("cassandra", in_memory=ephemeral)
        if data is not None:
            shutil.copytree(data, directory / "data")
        native, storage, ssl = places.free_ports(3)
        write_configuration(directory, native, storage, ssl, views_and_functions, durable, sstable_format, ephemeral,
                            auto_snapshot, roles, sasi)
        if plugin is not None:
            add_plugin(directory, memtable, engine or {})
        set_lines(directory / "cassandra.yaml", settings or {})
        properties = {
            # Espalier has no such limit.
            "cassandra.role_password_update_min_interval_in_ms": "0",
            "cassandra.config": f"file://{directory}/cassandra.yaml",
            "logback.configurationFile": f"file://{HERE}/logback.xml",
            "cassandra.oracle.log_level": log_level,
            "cassandra.oracle.audit_log": str(directory / "audit.log"),
            "cassandra.storagedir": str(directory),
            "cassandra.logdir": str(directory),
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "10",
            "cassandra-foreground": "yes",                              # else it closes standard error
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.unsafesystem": str(not durable).lower(),     # true: DDL does not wait for system tables
            "cassandra.disable_tcactive_openssl": "true",
            "org.apache.cassandra.disable_mbean_registration": str(ephemeral).lower(),
        }
        node = cls(directory, native, heap_mb, keep, properties, long_run, plugin, library)
        node.launch()
        return node

    def launch(self) -> None:
        """Starts the process on the node's directory and ports, and returns once it serves clients."""
        command = ["java", *([] if self.long_run else ["-XX:TieredStopAtLevel=1"]), *archive_flags(),
                   *java_flags(self.heap_mb, [self.plugin] if self.plugin else []), *self.jvm_flags]
        command += [f"-D{name}={value}" for name, value in self.properties.items()]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(command + ["OracleNode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, cwd=self.directory, start_new_session=True)
        watchdog = threading.Timer(READY_TIMEOUT_SECONDS, self.process.kill)
        watchdog.start()
        try:
            self.expect_ok("start")
        finally:
            watchdog.cancel()

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def expect_ok(self, what: str) -> str:
        while True:
            line = self.process.stdout.readline().decode()
            if not line:
                log = (self.directory / "log").read_text(errors="replace")
                raise RuntimeError(f"Cassandra ended during {what}:\n{log[-4000:]}")
            if line.startswith("ok"):
                return line[3:].strip("\n")
            if line.startswith("error"):
                raise RuntimeError(f"Cassandra refused {what}: {line[6:].strip()}")

    def command(self, *words: str) -> str:
        """One line of OracleNode.java's little language."""
        with self.lock:
            self.process.stdin.write(("\t".join(words) + "\n").encode())
            self.process.stdin.flush()
            return self.expect_ok(" ".join(words))

    def enable_audit_log(self, options: dict[str, str]) -> None:
        """As `nodetool enableauditlog`, with options of the filter."""
        self.command("enable_audit_log", *(f"{name}={value}" for name, value in options.items()))

    def disable_audit_log(self) -> None:
        self.command("disable_audit_log")

    def audit_options(self) -> dict[str, str]:
        """What `nodetool getauditlog` says of the filter."""
        return dict(option.split("=", 1) for option in self.command("audit_options").split("\t"))

    def restart_with_audit_log(self, options: dict[str, str]) -> None:
        """Ends the node, and starts it with these options in its configuration."""
        self.command("drain")
        self.end()
        configuration = self.directory / "cassandra.yaml"
        written = ", ".join(f"{name}: {value}" for name, value in options.items())
        line = f"audit_logging_options: {{logger: [{{class_name: FileAuditLogger}}], {written}}}"
        configuration.write_text(re.sub(r"(?m)^audit_logging_options:.*$", lambda _: line, configuration.read_text()))
        self.launch()

    def restart_with(self, settings: str) -> None:
        """Ends the node, and starts it with these lines in its configuration, in place of those of an earlier call."""
        self.command("drain")
        self.end()
        configuration = self.directory / "cassandra.yaml"
        mark = "# added before a restart\n"
        configuration.write_text(configuration.read_text().split(mark)[0] + mark + settings)
        self.launch()

    def read_places(self) -> None:
        """Lists of places that were written directly hold at once: nothing is cached."""

    def flush(self, *keyspace_and_table: str) -> None:
        self.command("flush", *keyspace_and_table)

    def compact(self, *keyspace_and_table: str) -> None:
        self.command("compact", *keyspace_and_table)

    def import_tables(self, keyspace: str, table: str, directory: Path) -> int:
        """Imports every SSTable in `directory`, verifying each; the number of live SSTables afterwards."""
        return int(self.command("import", keyspace, table, str(directory)))

    def verify(self, keyspace: str, table: str) -> None:
        """Extended verification of every live SSTable of a table; raises when Cassandra finds fault."""
        self.command("verify", keyspace, table)

    def stream_tables(self, directory: Path) -> None:
        """Has Cassandra's sstableloader stream every SSTable of `directory` (.../KEYSPACE/TABLE) to
        this node; raises when it fails."""
        storage = re.search(r"^storage_port: (\d+)$", (self.directory / "cassandra.yaml").read_text(), re.MULTILINE).group(1)
        done = tool("org.apache.cassandra.tools.BulkLoader", "-d", self.host, "-p", str(self.port), "-sp", storage, "-ssp", storage,
                    str(directory))
        if done.returncode != 0:
            raise RuntimeError(f"sstableloader {directory}: {(done.stdout + done.stderr)[-2000:]}")

    def sstables(self, keyspace: str, table: str) -> list[Path]:
        """Data.db files of the live SSTables."""
        return [Path(name) for name in self.command("sstables", keyspace, table).split("\t") if name]

    def snapshot(self, keyspace: str, table: str) -> list[Path]:
        """Like `sstables`: the oracle compacts nothing on its own with so little data."""
        return self.sstables(keyspace, table)

    def end(self) -> None:
        """Ends the process; the directory stays."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.kill(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def stop(self) -> None:
        self.end()
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "Cassandra":
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def write_configuration(directory: Path, native: int, storage: int, ssl: int, views_and_functions: bool,
                        durable: bool = False, sstable_format: str = "da", ephemeral: bool = False,
                        auto_snapshot: bool = False, roles: bool = False, sasi: bool = False) -> None:
    text = (HERE / "cassandra.yaml").read_text()
    if roles:
        text += "\nauthenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\nrole_manager: CassandraRoleManager\n"
        # A change holds at once, as it does here.
        text += "".join(f"{cache}_validity: 0ms\n" for cache in ("roles", "permissions", "credentials"))
        text += "audit_logging_options: {enabled: true, logger: [{class_name: FileAuditLogger}]}\n"
    if sasi:
        text += "\nsasi_indexes_enabled: true\n"
    if auto_snapshot:
        text = text.replace("auto_snapshot: false", "auto_snapshot: true")
    if ephemeral:
        text = text.replace("inherits: trie", "class_name: espalier.oracle.UnloggedMemtable")
    if sstable_format != "da":
        text = text.replace("selected_format: bti", "selected_format: big")
        text = re.sub(r"storage_compatibility_mode:.*\n", "", text)
        text += f"\nstorage_compatibility_mode: {'CASSANDRA_4' if sstable_format == 'nb' else 'NONE'}\n"
    if durable:
        text = text.replace("commitlog_sync: periodic", "commitlog_sync: batch").replace("commitlog_sync_period: 10000ms\n", "")
    values = {"DIRECTORY": directory, "NATIVE_PORT": native, "STORAGE_PORT": storage, "SSL_STORAGE_PORT": ssl,
              "VIEWS_AND_FUNCTIONS": str(views_and_functions).lower()}
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    (directory / "cassandra.yaml").write_text(text)


def set_lines(configuration: Path, settings: dict[str, str]) -> None:
    """Sets lines at the top level of a configuration, which need not be there yet."""
    text = configuration.read_text()
    for name, value in settings.items():
        text = re.sub(rf"(?m)^{name}:.*\n", "", text) + f"{name}: {value}\n"
    configuration.write_text(text)


def add_plugin(directory: Path, memtable: str = "trie", engine: dict[str, str] | None = None) -> None:
    """Adds the configurations `espalier` of memtables, `espalier_storage` of the engine, and `espalier_left`
    of memtables for tables that leave the engine; then those that are refused: `espalier_elsewhere` of a
    second engine, and `espalier_relative`. Tables have the configuration `memtable` by default. `engine`:
    more parameters of the engine."""
    configuration = directory / "cassandra.yaml"
    engine = {"directory": directory / "espalier", "commitlog_sync": "batch", **(engine or {})}
    added = {"espalier": {"mode": "memtable"}, "espalier_storage": {"mode": "storage", **engine}, "espalier_left": {"mode": "memtable", **engine},
             "espalier_elsewhere": {"mode": "storage", **engine, "directory": directory / "elsewhere"},
             "espalier_relative": {"mode": "storage", "directory": "relative"}}
    lines = ""
    for name, parameters in added.items():
        lines += f"    {name}:\n      class_name: EspalierMemtable\n      parameters:\n"
        lines += "".join(f"        {parameter}: {value}\n" for parameter, value in parameters.items())
    text = configuration.read_text().replace("    default:\n", lines + "    default:\n")
    configuration.write_text(text.replace("inherits: trie", f"inherits: {memtable}"))


def tool(main_class: str, *arguments: str) -> subprocess.CompletedProcess:
    """Runs one of Cassandra's standalone tools (`org.apache.cassandra.tools.*`) in a JVM of its own."""
    directory = places.run_directory("tool")
    try:
        return subprocess.run([*tool_command(directory), main_class, *arguments], capture_output=True, text=True, timeout=TOOL_TIMEOUT_SECONDS)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def tool_command(directory: Path) -> list[str]:
    """A JVM for a tool, which has its configuration in a directory."""
    native, storage, ssl = places.free_ports(3)
    write_configuration(directory, native, storage, ssl, True)
    return ["java", "-XX:TieredStopAtLevel=1", *archive_flags(), *java_flags(512), f"-Dcassandra.config=file://{directory}/cassandra.yaml",
            f"-Dlogback.configurationFile=file://{HERE}/logback.xml", f"-Dcassandra.storagedir={directory}"]


class Tools:
    """A JVM that runs standalone tools one after another: those that only read files. It ends with this process."""

    def __init__(self):
        self.directory = places.run_directory("tools")
        command = [*tool_command(self.directory), "-Djava.security.manager=allow"]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen([*command, "Tools"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.lock = threading.Lock()
        atexit.register(self.stop)

    def run(self, main_class: str, *arguments: str) -> subprocess.CompletedProcess:
        command = [main_class, *arguments]
        watchdog = threading.Timer(TOOL_TIMEOUT_SECONDS, self.process.kill)
        watchdog.start()
        try:
            with self.lock:
                self.process.stdin.write(("\t".join(command) + "\n").encode())
                self.process.stdin.flush()
                sizes = self.process.stdout.readline().split()
                if len(sizes) != 3:
                    raise RuntimeError(f"the JVM of tools ended during {' '.join(command)}:\n{(self.directory / 'log').read_text()[-4000:]}")
                status, *lengths = map(int, sizes)
                output, errors = (self.process.stdout.read(length).decode(errors="replace") for length in lengths)
        finally:
            watchdog.cancel()
        return subprocess.CompletedProcess(command, status, output, errors)

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


@functools.cache
def tools() -> Tools:
    """The JVM for the tools of this process, from the first use on."""
    return Tools()


def sstabledump(data_file: Path, lines: bool = False) -> list:
    """What `sstabledump` prints for a Data.db file, parsed; `lines`: in its layout of a partition per line."""
    done = tools().run("org.apache.cassandra.tools.SSTableExport", *(["-l"] if lines else []), str(data_file))
    if done.returncode != 0:
        raise RuntimeError(f"sstabledump {data_file}: {done.stderr[-2000:]}")
    return parsed(done.stdout, lines)


def parsed(dump: str, lines: bool) -> list:
    return [json.loads(line) for line in dump.splitlines() if line] if lines else json.loads(dump)


def sstablemetadata(data_file: Path) -> str:
    """What `sstablemetadata` prints for a Data.db file."""
    done = tools().run("org.apache.cassandra.tools.SSTableMetadataViewer", str(data_file))
    if done.returncode != 0:
        raise RuntimeError(f"sstablemetadata {data_file}: {done.stderr[-2000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-views", action="store_true", help="views and functions disabled, as by default in Cassandra")
    parser.add_argument("--heap-mb", type=int, default=1024)
    parser.add_argument("--keep", action="store_true", help="keep the data directory")
    parser.add_argument("--roles", action="store_true", help="clients log in, the first as cassandra/cassandra")
    options = parser.parse_args()
    with Cassandra.start(not options.no_views, options.heap_mb, options.keep, roles=options.roles) as node:
        print(f"{node.host}:{node.port} {node.directory}", flush=True)
        for line in sys.stdin:
            if line.split():
                try:
                    print("ok", node.command(*line.split()), flush=True)
                except RuntimeError as refused:
                    print(refused, flush=True)


if __name__ == "__main__":
    main()
