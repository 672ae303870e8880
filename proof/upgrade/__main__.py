"""Live Cassandra writes and drains, `espalier upgrade-from` adopts, the answers are the same; we write, count and
compact, `espalier export` makes a directory, Cassandra starts from it, the answers are the same and it counts on. With
the SSTable formats of a stock 5.0 node (nb), of one without compatibility (oa), and BTI (da); tables with everything in
them, and those that random histories leave behind. Of Cassandra's files `espalier sstable` verifies all, dumps what
sstabledump does, and imports those of the tables that we can make. Tables have indexes too: plain ones, SAI with
changed text, SASI, and one of vectors. Roles that were adopted log in with their passwords, and have what they had.

usage: python -m proof.upgrade [--formats nb oa da] [--seed 1] [--histories 8] [--recorded]
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from proof import places
from proof.differential.again import may_be_pages
from proof.differential.compare import compare
from proof.differential.explained import INTERNAL_ERRORS, suspicions
from proof.oracle.cassandra import Cassandra
from proof.oracle.espalier import Espalier, environment
from proof.roles.__main__ import first_connection
from proof.tables.dumps import dump_difference
from proof.upgrade import roles
from proof.upgrade.written import BASE, COMPACT, SCHEMA, History, Written, accepted, ask, counts
from proof.wire import Connection


class Proof:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name: str, right: bool, detail: str = "") -> None:
        self.passed, self.failed = self.passed + right, self.failed + (not right)
        if not right:
            print(f"FAIL {name}: {detail[:2000]}", flush=True)


def same(proof: Proof, name: str, expected: dict, histories: list[History], node) -> None:
    """Checks that `node` answers as Cassandra did."""
    got = ask(node)
    for cql, rows in expected.items():
        proof.check(f"{name}: {cql}", rows == got[cql], f"expected {rows}\ngot {got[cql]}")
    for history in histories:
        for step, left, right in zip(history.reads, history.expected, history.ask(node)):
            difference = compare(left, right)
            # Cassandra may fail internally on its own tables, when it reads cells that are newer than the drop of their
            # column.
            fails_inside = difference and isinstance(node, Cassandra) and suspicions(step, right, left) == [INTERNAL_ERRORS]
            same = difference is None or fails_inside or suspicions(step, left, right) or may_be_pages(step, left, right)
            proof.check(f"{name}, {history.keyspace}: {step}", bool(same), str(difference))


def espalier(*arguments) -> subprocess.CompletedProcess:
    command = [str(places.espalier_binary()), *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())


def prove(proof: Proof, sstable_format: str, options: argparse.Namespace) -> None:
    written = Written.by_cassandra(sstable_format, options.seed, options.histories, options.recorded)
    try:
        kinds = {name.name.split("-")[0] for name in written.directory.glob("data/[uh]*/*/*-Data.db")}
        proof.check(f"{sstable_format} was written", kinds == {sstable_format}, str(kinds))
        look_into(proof, written.directory, sstable_format)
        import_all(proof, written.directory, sstable_format, written.expected)
        target = written.directory.with_name("back")
        expected = adopt_and_export(proof, written, sstable_format, target)
        start_from_export(proof, written, sstable_format, target, expected)
    finally:
        shutil.rmtree(written.directory.parent)


def adopt_and_export(proof: Proof, written: Written, sstable_format: str, target: Path) -> dict:
    """We adopt what Cassandra has written, answer as it does, count on, compact, and
    export. Returns the last answers."""
    subject = Espalier.prepare(dynamic_data_masking_enabled="true", sasi_indexes_enabled="true")
    try:
        refuse(proof, subject, written)
        adopted = espalier("upgrade-from", "--data", subject.data, written.directory)
        proof.check(f"upgrade-from {sstable_format}", adopted.returncode == 0, adopted.stdout + adopted.stderr)
        again = espalier("upgrade-from", "--data", subject.data, written.directory)
        proof.check("a keyspace that is there is not adopted again", "is there already" in again.stderr, again.stderr)
        subject.launch()
        same(proof, f"adopted from {sstable_format}", written.expected, written.histories, subject)
        accepted(Connection(subject.host, subject.port).query(
            f"INSERT INTO up.kv (k, v) VALUES (7000, 'written by Espalier') USING TIMESTAMP {BASE}"))
        count_on(proof, "we count on", subject)
        for keyspace in ("up", *(history.keyspace for history in written.histories)):
            subject.compact(keyspace)
        count_on(proof, "we count on after a compaction", subject)
        expected = ask(subject)
        same(proof, "compacted", expected, written.histories, subject)
        if sstable_format != "da":          # of a stopped node; else of the running one
            subject.terminate()
        exported = espalier("export", "--data", subject.data, "--to", target)
        proof.check("export", exported.returncode == 0, exported.stdout + exported.stderr)
        return expected
    finally:
        subject.stop()


def start_from_export(proof: Proof, written: Written, sstable_format: str, target: Path, expected: dict) -> None:
    """Cassandra starts from what we exported, gives the same answers, counts on, and finds no fault."""
    with Cassandra.start(durable=True, data=target / "data", sasi=True) as oracle:
        same(proof, f"Cassandra from what was {sstable_format}", expected, written.histories, oracle)
        count_on(proof, "Cassandra counts on", oracle)
        tables = [("up", table) for table in ("kv", "wide", "plain", "counts", "texts", "Odd_Names", *COMPACT)]
        tables += [(history.keyspace, table) for history in written.histories for table in history.tables]
        for keyspace, table in tables:
            try:
                oracle.verify(keyspace, table)
                proof.check(f"verify {keyspace}.{table}", True)
            except RuntimeError as failure:
                proof.check(f"verify {keyspace}.{table}", False, str(failure))


def look_into(proof: Proof, directory: Path, sstable_format: str) -> None:
    """Our tools on Cassandra's files, of a table of every kind."""
    for table in directory.glob("data/[uh]*/*-*"):
        if not any(table.glob("*-Data.db")):
            continue
        verified = espalier("sstable", "verify", "--extended", table)
        proof.check(f"sstable verify {sstable_format} {table.name}", verified.returncode == 0, verified.stdout + verified.stderr)
    for name in ("kv", "wide"):
        for data in sorted(directory.glob(f"data/up/{name}-*/*-Data.db"))[:1]:
            difference = dump_difference(data)
            proof.check(f"sstable dump {data.name}", difference is None, str(difference))


def counts_in(cql: str) -> bool:
    """Returns whether a statement is about a table of counters."""
    return "up.counts" in cql or "up.tallies" in cql


def import_all(proof: Proof, directory: Path, sstable_format: str, expected: dict) -> None:
    """A node of ours with the same schema takes over Cassandra's SSTables, of two tables while it runs, of
    the others while it does not."""
    with Espalier.start(dynamic_data_masking_enabled="true", sasi_indexes_enabled="true") as node:
        with Connection(node.host, node.port) as connection:
            for cql in [*(cql for cql in SCHEMA if not counts_in(cql)), "ALTER TABLE up.wide DROP w"]:
                accepted(connection.query(cql))
        for number, table in enumerate(("kv", "wide", "masked", "plain", "Odd_Names", "fixed", "pairs", "keys", "triples", "texts")):
            if number == 2:
                node.terminate()
            source = next(directory.glob(f"data/up/{table}-*"))
            imported = espalier("sstable", "import", "--data", node.data, "up", table, source)
            count = len(list(source.glob("*-Data.db")))
            proof.check(f"import of {table} as {sstable_format}", imported.stdout == f"{count} SSTables imported\n", imported.stdout + imported.stderr)
        node.launch()
        got = ask(node)
        for cql, rows in expected.items():
            if not counts_in(cql) and "system_schema" not in cql:
                proof.check(f"imported as {sstable_format}: {cql}", rows == got[cql], f"expected {rows}\ngot {got[cql]}")


def count_on(proof: Proof, name: str, node) -> None:
    """Adds to counters that were not deleted: each has what it had before and what was added,
    all others have what they had."""
    numbers = [c for c in range(0, 60, 4) if c % 5 != 3]
    with Connection(node.host, node.port) as connection:
        expected = totals(connection)
        for cql in counts(numbers):
            accepted(connection.query(cql))
        for c in numbers:
            for column, amount in ((("s", c % 5, None), 1), (("n", c % 5, c), c + 1), (("m", c % 5, c), -c)):
                expected[column] += amount
        got = totals(connection)
    proof.check(name, got == expected, f"expected {expected}\ngot {got}")


def totals(connection: Connection) -> dict[tuple, int | None]:
    """The counters of `up.counts` by column, partition and row."""
    found = {}
    for p, c, *counters in accepted(connection.query("SELECT p, c, s, n, m FROM up.counts")).rows:
        p, c, s, n, m = (value and int.from_bytes(value, "big", signed=True) for value in (p, c, *counters))
        found |= {("s", p, None): s, ("n", p, c): n, ("m", p, c): m}
    return found


def refuse(proof: Proof, subject: Espalier, written: Written) -> None:
    """A refused adoption leaves nothing behind: the next one, into the same node, finds it empty."""
    refused = espalier("upgrade-from", "--data", subject.data, written.undrained)
    proof.check("an undrained node is refused", refused.returncode != 0 and "nodetool drain" in refused.stderr, refused.stderr)
    table = next(written.directory.glob("data/up/wide-*"))
    unfinished = table / "nb_txn_compaction_0c35a4f0-0000-11ef-8000-000000000000.log"
    unfinished.write_text("")
    refused = espalier("upgrade-from", "--data", subject.data, written.directory)
    proof.check("a compaction cut short is refused", refused.returncode != 0 and unfinished.name in refused.stderr, refused.stderr)
    unfinished.unlink()
    data = next(table.glob("*-Data.db"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shutil.move(data, data.with_suffix(".kept"))
    data.write_bytes(content)
    refused = espalier("upgrade-from", "--data", subject.data, written.directory)
    proof.check("a damaged table is refused", refused.returncode != 0 and data.name in refused.stderr, refused.stderr)
    shutil.move(data.with_suffix(".kept"), data)
    left = [str(path) for path in subject.data.glob("data/[uh]*/*/*")]
    proof.check("what was refused is removed", not left, str(left))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", default=["nb", "oa", "da"], choices=["nb", "oa", "da"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=8)
    parser.add_argument("--recorded", action="store_true", help="take what Cassandra wrote in an earlier run, if nothing has changed")
    options = parser.parse_args()
    proof = Proof()
    for sstable_format in options.formats:
        prove(proof, sstable_format, options)
    roles.prove(proof.check, first_connection)
    print(f"{proof.passed} passed, {proof.failed} failed")
    sys.exit(1 if proof.failed else 0)


if __name__ == "__main__":
    main()
