"""Sends every statement of cql-errors.json and compares the answers with the recorded ones.

Cassandra itself goes first, which proves the fixture and this program; then Espalier, in v4 and v5. Statements about
features that Espalier refuses (`unsupported.py`) may differ. Any other difference has to stand in known-failures.txt
with its reason, and what stands there has to differ: the list is exact.

With --recorded, Cassandra is not asked again if everything passed there and neither the fixture nor the oracle has
changed since (proof/oracle/record.py).

usage: python -m proof.errors [--only cassandra|espalier] [--recorded] [--write-known]
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from proof import places, survival
from proof.errors import cases, protocol_cases
from proof.errors.unsupported import unsupported_feature
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier
from proof.oracle.record import Record
from proof.wire import Connection, ConnectionClosed, Error, SchemaChange

HERE = Path(__file__).resolve().parent
KNOWN = HERE / "known-failures.txt"
VERSIONS = (4, 5)
CREATED_NAME = re.compile(r"^CREATE (?:TABLE|KEYSPACE|TYPE) \w+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["cassandra", "espalier"])
    parser.add_argument("--recorded", action="store_true", help="do not repeat what passed against Cassandra")
    parser.add_argument("--write-known", action="store_true", help="write today's failures to known-failures.txt")
    options = parser.parse_args()
    passed = failed = 0
    if options.only != "espalier":
        passed, failed = ask_cassandra(options.recorded)
    if options.only != "cassandra":
        # A mutation of a million cells takes half a second, and more than the usual 2 s on a busy machine. Cassandra
        # has as much.
        with Espalier.start(write_request_timeout="20000ms") as node:
            results = run_all(node, strict=False)
            results += survives(node)
        if options.write_known:
            write_known(results)
        passed, failed = add((passed, failed), judge("Espalier", results, read_known()))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def ask_cassandra(may_be_recorded: bool) -> tuple[int, int]:
    """Proves the fixture, unless this was done before: (passed, failed)."""
    record = Record("errors", (cases.FIXTURE, *(HERE / f"{name}.py" for name in ("__main__", "cases", "protocol_cases")),
                               places.ROOT / "proof" / "wire"))
    answers = record.answers() if may_be_recorded else None
    if answers is not None:
        print(f"Cassandra passed {answers['passed']} cases when they were recorded", flush=True)
        return 0, 0
    with Cassandra.start() as node:
        results = run_all(node, strict=True)
    passed, failed = judge("Cassandra", results, {})
    if not failed:
        record.keep({"passed": passed})
    return passed, failed


def add(left: tuple, right: tuple) -> tuple:
    return left[0] + right[0], left[1] + right[1]


def run_all(node, strict: bool) -> list[tuple]:
    """[(category, key, difference or None, unsupported feature or None)]; `strict` allows
    for no unsupported features."""
    setup, listed = cases.load()
    results = []
    for version in VERSIONS:
        with Connection(node.host, node.port, version) as admin:
            drop_leftovers(admin)
            for statement in setup:
                answer = admin.query(statement)
                if isinstance(answer, Error) and (strict or unsupported_feature("", [statement]) is None):
                    results.append(("setup", f"v{version} {statement}", answer.message, None))
        connection = None
        for case in listed:
            connection = connection or connect(node, version, setup[-1])
            feature = None if strict else unsupported_feature(case.category, case.statements)
            try:
                answer = case.send(connection)
                difference = case.difference(answer)
                if isinstance(answer, SchemaChange) and answer.change == "CREATED":
                    connection.query(f"DROP {answer.target} {'.'.join(answer.names)}")    # names recur
            except (ConnectionClosed, ValueError, OSError) as failure:
                difference = f"{type(failure).__name__}: {failure}"
            if difference and difference.startswith("Connection"):
                connection.close()
                connection = None
            if version == 5 and case.message and case.message.startswith("Request is too big") and difference:
                difference = None if "Request is too big" in difference else difference   # v5 counts other bytes
            results.append((case.category, f"v{version} {case.name}", difference, feature))
    results += protocol_cases.run(node)
    return results


def survives(node: Espalier) -> list[tuple]:
    """What all accepted statements make together is the same after a flush, a compaction, kill -9 and a start."""
    setup, listed = cases.load()
    accepted = [case for case in listed if case.code is None]
    with connect(node, VERSIONS[-1], setup[-1]) as connection:
        for number, case in enumerate(accepted):
            answer = case.send(connection)
            if isinstance(answer, Error) and "already exists" in answer.message:      # names recur
                connection.query(CREATED_NAME.sub(rf"\g<0>_{number}", case.statements[0]))
    lost = survival.check(node)
    failures = [("survival", f"what {len(accepted)} statements made: {text}", text, None) for text in lost]
    return failures or [("survival", f"what {len(accepted)} statements made", None, None)]


def connect(node, version: int, use: str) -> Connection:
    connection = Connection(node.host, node.port, version)
    connection.query(use)
    return connection


def drop_leftovers(connection: Connection) -> None:
    for keyspace in ("vec_err", "vec_e2", "vec_e3"):
        connection.query(f"DROP KEYSPACE IF EXISTS {keyspace}")


def judge(name: str, results: list[tuple], known: dict[str, str]) -> tuple[int, int]:
    """Prints every unexpected result and the table; (passed, failed)."""
    counts: dict[str, Counter] = {}
    for category, key, difference, feature in results:
        tally = counts.setdefault(category, Counter())
        if difference is None and key not in known:
            tally["pass"] += 1
        elif difference is not None and feature and refused(difference):
            tally["not yet"] += 1
        elif difference is not None and key in known:
            tally["known"] += 1
        else:
            tally["FAIL"] += 1
            print(f"{name}: {key}\n    {difference or 'passes now: take it off known-failures.txt'}")
    print(f"\n{name:38} {'pass':>6} {'known':>6} {'not yet':>8} {'FAIL':>6}")
    for category, tally in counts.items():
        print(f"{category:38} {tally['pass']:6} {tally['known']:6} {tally['not yet']:8} {tally['FAIL']:6}")
    total = sum(counts.values(), Counter())
    print(f"{'all':38} {total['pass']:6} {total['known']:6} {total['not yet']:8} {total['FAIL']:6}\n", flush=True)
    return total["pass"], total["FAIL"]


def refused(difference: str) -> bool:
    """What is not there yet has to be refused: neither accepted nor answered by a closed connection."""
    return not difference.startswith(("accepted", "Connection", "warnings"))


def one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def read_known() -> dict[str, str]:
    """Key -> reason. A line is "key<TAB>reason"; # starts a comment."""
    known = {}
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    for line in lines:
        if line and not line.startswith("#"):
            key, reason = line.split("\t", 1)
            known[key.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")] = reason
    return known


def write_known(results: list[tuple]) -> None:
    reasons = read_known()
    lines = ["# Statements that Espalier answers otherwise than Cassandra, with the reason. Exact: see __main__.py."]
    for _, key, difference, feature in results:
        if difference is not None and not feature:
            lines.append(f"{one_line(key)}\t{reasons.get(key) or one_line(difference)}")
    KNOWN.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
