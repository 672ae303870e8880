"""The memtable plugin: two memtables side by side in one JVM with -Xcheck:jni, then a node whose tables have our
memtables, one whose tables are in our engine, one with little memory and many writers, and one that is killed.

usage: python -m proof.plugin [--seed 1] [--seeds 3] [--updates 600] [--statements 250] [--kills 4]
       [--only memtables|node|storage|pressure|kill ...] [--jar FILE] [--library FILE] [--java FILE]
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from proof import places
from proof.oracle import cassandra
from proof.plugin import kill, node, pressure, storage

HERE = Path(__file__).resolve().parent
JAR = places.ROOT / "java" / "target" / "espalier-cassandra-0.1.0.jar"
STORED_SEEDS = 2
OLDEST_JAVA = "11"      # of those in which Cassandra 5.0 runs
TOTALS = re.compile(r"^(\d+) passed, (\d+) failed$")
# Cassandra's own native calls warn too; the trace below a warning says whose it is.
WARNING_OF_JNI = re.compile(r"^(?:WARNING|FATAL ERROR) in native method.*\n(?:\s+(?:at|-).*\n)*?\s+at espalier\.cassandra\.", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--statements", type=int, default=250)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--only", nargs="*", choices=("memtables", "node", "storage", "pressure", "kill"))
    parser.add_argument("--jar", type=lambda file: Path(file).resolve(), default=JAR)
    parser.add_argument("--library", type=lambda file: Path(file).resolve(), help="a native library in place of the one in the jar")
    parser.add_argument("--java", default="java", help="the Java, 11 or later, in which `memtables` run")
    options = parser.parse_args()
    proofs = {"memtables": lambda: compare_memtables(options),
              "node": lambda: node.prove(options.jar, options.seed, options.statements),
              "storage": lambda: storage.prove(options.jar, options.seed, options.statements, options.library),
              "pressure": lambda: pressure.prove(options.jar, options.seed, options.library),
              "kill": lambda: kill.prove(options.jar, options.seed, options.kills, options.library)}
    passed = failed = 0
    for name, prove in proofs.items():
        if not options.only or name in options.only:
            more_passed, more_failed = prove()
            passed, failed = passed + more_passed, failed + more_failed
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


def compare_memtables(options: argparse.Namespace) -> tuple[int, int]:
    """Runs ShortProofs.java and, for both modes, MemtableComparison.java. Returns how many cases passed and failed."""
    directory = places.run_directory("plugin")
    classes = directory / "classes"
    classes.mkdir()
    library = places.CASSANDRA / "lib"
    subprocess.run(["javac", "-nowarn", "--release", OLDEST_JAVA, "-d", classes, "-cp", f"{options.jar}:{library}/*",
                    *sorted(HERE.glob("java/espalier/*/*.java"))], check=True)
    native, storage_port, ssl = places.free_ports(3)
    cassandra.write_configuration(directory, native, storage_port, ssl, True)
    cassandra.add_plugin(directory)
    # The programs are short: what better code would save is less than what it costs.
    command = [options.java, "-Xcheck:jni", "-ea", "-XX:TieredStopAtLevel=1", *cassandra.java_flags(1024, [options.jar, classes]),
               f"-Dcassandra.config=file://{directory}/cassandra.yaml", f"-Dcassandra.storagedir={directory}",
               f"-Dlogback.configurationFile=file://{HERE.parent}/oracle/logback.xml"]
    if options.library:
        command.append(f"-Despalier.library={options.library}")
    comparison = ["espalier.proof.MemtableComparison", str(options.seed), str(options.seeds), str(options.updates)]
    # Tables of the engine, with fewer seeds: each has files.
    stored = [*comparison[:2], str(min(options.seeds, STORED_SEEDS)), comparison[3], str(directory / "espalier")]
    programs = (["espalier.cassandra.ShortProofs"], comparison, stored)
    results = [run_java([*command, *arguments], directory) for arguments in programs]
    return sum(passed for passed, _ in results), sum(failed for _, failed in results)


def run_java(command: list[str], directory: Path) -> tuple[int, int]:
    """Runs a program that prints "N passed, N failed" last. Returns how many cases passed and failed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=600, cwd=directory)
    print(done.stdout[-20_000:], flush=True)
    totals = [TOTALS.match(line) for line in done.stdout.splitlines()]
    totals = [found for found in totals if found]
    passed, failed = (int(totals[-1][1]), int(totals[-1][2])) if totals else (0, 1)
    if WARNING_OF_JNI.search(done.stdout):
        print("FAIL -Xcheck:jni warns", flush=True)
        failed += 1
    if done.returncode != 0 and failed == 0:
        failed = 1
    return passed, failed


if __name__ == "__main__":
    main()
