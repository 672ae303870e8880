"""Fills Espalier, flushes, and gives its SSTables to Cassandra: import with extended verification, sstabledump,
sstablemetadata, sstableloader, same answers, and the same again once Cassandra has compacted them.

Two kinds of tables: those of workload.py, and those that random histories (proof/differential) leave behind, with
compressors and filters in turn (layouts.py); every other of these from a node whose row indexes have every row
(column_index_size 0). sstabledump and `espalier sstable dump` say the same of them. A snapshot is restored by
Cassandra, with the table that its schema.cql makes.

usage: python -m proof.tables [--seed 1] [--histories 12] [--self]
       (--self: Cassandra's tables, which proves this program)
"""

import argparse
import re
import shutil
import sys
import traceback
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random

from proof.differential.again import explanation
from proof.differential.compare import compact, compare, exchange
from proof.differential.generator import Generator
from proof.differential.reads import read
from proof.differential.steps import Step
from proof.oracle.cassandra import Cassandra, sstabledump, sstablemetadata
from proof.oracle.espalier import Espalier
from proof.tables import workload
from proof.tables.dumps import dump_difference
from proof.tables.layouts import laid_out
from proof.wire import Connection, Error

CREATE = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
HISTORY_STEPS = 150
READS_PER_HISTORY = 60
PAGE_SIZE = 1000
RESTORED = ("collections", "dropped")       # a type of its own, columns dropped and added again
STREAMED = "wide"       # static rows, row indexes, deletions of ranges
DESCRIBED = ("wide", "dropped", "collections")
METADATA = ("Partitioner", "Bloom Filter FP chance", "Minimum timestamp", "Maximum timestamp", "SSTable min local deletion time",
            "SSTable max local deletion time", "Compression ratio", "TTL min", "TTL max", "totalColumnsSet", "totalRows",
            "Estimated cardinality", "EncodingStats minTTL", "EncodingStats minLocalDeletionTime", "EncodingStats minTimestamp", "KeyType")


class Proof:
    def __init__(self, oracle: Cassandra, subject):
        self.oracle = oracle
        self.subject = subject
        self.connections = [Connection(oracle.host, oracle.port), Connection(subject.host, subject.port)]
        self.passed = 0
        self.failed = 0

    def check(self, name: str, right: bool, detail: str = "") -> None:
        self.passed, self.failed = self.passed + right, self.failed + (not right)
        if not right:
            print(f"FAIL {name}: {detail[:3000]}", flush=True)

    def attempt(self, name: str, action):
        """Runs `action`; an exception is one failure."""
        try:
            return action()
        except Exception as failure:
            self.check(name, False, f"{failure}\n{traceback.format_exc(limit=-2)}")
            return None

    def hand_over(self, keyspace: str, table: str, dump: bool) -> None:
        """Flushes a table, imports its SSTables into Cassandra, verifies and (if asked) dumps them."""
        name = f"{keyspace}.{table}"
        self.subject.flush(keyspace, table)
        files = self.subject.snapshot(keyspace, table)
        if not files:
            return
        copies = self.copy(keyspace, table, files)
        if dump:
            for data in sorted(copies.glob("*-Data.db")):
                self.attempt(f"sstabledump {name}", lambda data=data: self.dump(name, data))
        imported = self.attempt(f"import {name}", lambda: self.oracle.import_tables(keyspace, table, copies))
        self.check(f"import {name}", imported == len(files), f"{imported} of {len(files)} SSTables")
        verified = self.attempt(f"verify {name}", lambda: self.oracle.verify(keyspace, table) or True)
        self.check(f"verify {name}", verified is True)
        shutil.rmtree(copies)

    def dump(self, name: str, data: Path) -> None:
        """Cassandra's tool reads the file, and says of it what ours does."""
        if isinstance(self.subject, Espalier):
            difference = dump_difference(data)
            self.check(f"dump of {name}", difference is None, str(difference))
        else:
            self.check(f"sstabledump {name} has partitions", bool(sstabledump(data)))

    def copy(self, keyspace: str, table: str, files: list[Path]) -> Path:
        """The SSTables' components in a directory that is named as Cassandra wants it: KEYSPACE/TABLE."""
        target = self.oracle.directory / "handed_over" / keyspace / table
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for data in files:
            for component in data.parent.glob(data.name.replace("-Data.db", "-*")):
                shutil.copy(component, target / component.name)
        return target

    def tell_both(self, statements: Iterable[str]) -> None:
        for statement in statements:
            for connection in self.connections:
                workload.accepted(connection.query(statement))

    def compact(self, keyspace: str, table: str, steps: list[Step]) -> None:
        """Cassandra compacts the tables that it imported. The result is sound and gives the same answers."""
        name = f"{keyspace}.{table}"
        compacted = self.attempt(f"compact {name}", lambda: compact(self.oracle, keyspace, table) or True)
        verified = self.attempt(f"verify compacted {name}", lambda: self.oracle.verify(keyspace, table) or True)
        self.check(f"compacted {name}", compacted is True and verified is True)
        for step in steps:
            self.ask(step)

    def ask(self, step: Step) -> None:
        answers = exchange(self.connections, step)
        difference = compare(*answers)
        alike = difference is None or explanation(partial(exchange, self.connections), step, *answers)
        self.check(str(step), bool(alike), str(difference))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=12)
    parser.add_argument("--self", action="store_true")
    options = parser.parse_args()
    with Cassandra.start(auto_snapshot=True) as oracle, (Cassandra if options.self else Espalier).start() as subject:
        proof = Proof(oracle, subject)
        proof.attempt("workload", lambda: prove_workload(proof, options.seed))
        if not options.self:
            proof.attempt("metadata", lambda: prove_metadata(proof))
            for table in RESTORED:
                proof.attempt(f"restoring {table}", lambda table=table: prove_restoring(proof, table))
        proof.attempt("damage", lambda: prove_damage_is_seen(proof))
        proof.attempt("streaming", lambda: prove_streaming(proof))
        with Cassandra.start() if options.self else Espalier.start(column_index_size="0KiB") as finest_subject:
            finest = Proof(oracle, finest_subject)
            for number in range(options.histories):
                of = proof if number % 2 == 0 else finest
                of.attempt(f"history {number}", lambda of=of, number=number: prove_history(of, options.seed, number))
            for each in (proof, finest):
                if each.failed:
                    each.subject.keep = True
                    print(f"the data directory is kept: {each.subject.directory}")
    passed, failed = (sum(getattr(each, name) for each in (proof, finest)) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def prove_workload(proof: Proof, seed: int) -> None:
    create = [CREATE.format(workload.KEYSPACE), *workload.TYPES, *(table.create for table in workload.TABLES)]
    proof.tell_both(create)
    for table in workload.TABLES:
        table.writes(workload.Filler(proof.connections[1], Random(f"{seed}/{table.name}")))
        proof.tell_both(table.drops)
        proof.hand_over(workload.KEYSPACE, table.name, dump=True)
        for cql in table.reads:
            proof.ask(Step("cql", cql, page_size=PAGE_SIZE))
        if table.adds:
            proof.tell_both(table.adds)
            for cql in table.reads:
                proof.ask(Step("cql", cql, page_size=PAGE_SIZE))
        proof.compact(workload.KEYSPACE, table.name, [Step("cql", cql, page_size=PAGE_SIZE) for cql in table.reads])


def prove_metadata(proof: Proof) -> None:
    """`espalier sstable metadata` says of our SSTables what sstablemetadata says of them."""
    for table in DESCRIBED:
        for data in proof.subject.snapshot(workload.KEYSPACE, table):
            told = described(proof.subject.tool("sstable", "metadata", str(data)))
            expected = described(sstablemetadata(data))
            proof.check(f"metadata of {table}", told == expected, f"expected {expected}\ngot {told}")
            if table == STREAMED:
                difference = dump_difference(data, lines=True)
                proof.check(f"lines of {table}", difference is None, str(difference))


def described(text: str) -> dict[str, str]:
    """Returns the fields that METADATA names, without the dates. Cassandra's number is in brackets after the date, ours
    before it."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return {name: re.sub(r"^(no tombstones).*|.* \((-?\d+)\)$|^(\S+) \(.*\)$", r"\1\2\3", fields[name].strip()) for name in METADATA}


def prove_restoring(proof: Proof, name: str) -> None:
    """Cassandra makes the table of a snapshot's schema.cql and imports its SSTables; of that table it writes the same
    schema.cql, but for the order of columns that were dropped, which is one of hashes."""
    files = proof.subject.snapshot(workload.KEYSPACE, name)
    schema = files[0].with_name("schema.cql").read_text()
    statements = [statement for statement in schema.split(";\n") if statement]
    copies = proof.copy(workload.KEYSPACE, name, files)
    table = next(table for table in workload.TABLES if table.name == name)
    drops = [f"DROP TABLE {workload.KEYSPACE}.{name}"] + [f"DROP TYPE {cql.split()[5]}" for cql in statements if cql.startswith("CREATE TYPE")]
    for cql in [*drops, *statements]:
        workload.accepted(proof.connections[0].query(cql))
    proof.check(f"import of the snapshot of {name}", proof.oracle.import_tables(workload.KEYSPACE, name, copies) == len(files))
    for cql in table.reads:
        proof.ask(Step("cql", cql, page_size=PAGE_SIZE))
    workload.accepted(proof.connections[0].query(f"TRUNCATE {workload.KEYSPACE}.{name}"))
    theirs = proof.oracle.directory.glob(f"data/{workload.KEYSPACE}/{name}-*/snapshots/truncated-*/schema.cql")
    written = max(theirs, key=lambda file: file.stat().st_mtime_ns).read_text()
    proof.check(f"schema.cql of {name}", sorted(written.splitlines()) == sorted(schema.splitlines()), f"expected {written}\ngot {schema}")


def prove_streaming(proof: Proof) -> None:
    """Cassandra's loader opens our SSTables, cuts them by token ranges and streams them; what the
    node got is verified and read."""
    table = next(table for table in workload.TABLES if table.name == STREAMED)
    copies = proof.copy(workload.KEYSPACE, table.name, proof.subject.snapshot(workload.KEYSPACE, table.name))
    workload.accepted(proof.connections[0].query(f"TRUNCATE {workload.KEYSPACE}.{table.name}"))
    proof.check("nothing is left before streaming", not proof.oracle.sstables(workload.KEYSPACE, table.name))
    proof.oracle.stream_tables(copies)
    proof.check("SSTables were streamed", bool(proof.oracle.sstables(workload.KEYSPACE, table.name)))
    proof.oracle.verify(workload.KEYSPACE, table.name)
    for cql in table.reads:
        proof.ask(Step("cql", cql, page_size=PAGE_SIZE))


def prove_damage_is_seen(proof: Proof) -> None:
    """Checks the checker: Cassandra must refuse one of our tables with a flipped byte."""
    files = proof.subject.snapshot(workload.KEYSPACE, "lz4")
    copies = proof.copy(workload.KEYSPACE, "lz4", files[:1])
    data = next(copies.glob("*-Data.db"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    try:
        proof.oracle.import_tables(workload.KEYSPACE, "lz4", copies)
    except RuntimeError:
        proof.check("a damaged table is refused", True)
    else:
        proof.check("a damaged table is refused", False, "Cassandra imported it")


def prove_history(proof: Proof, seed: int, number: int) -> None:
    """Writes a random history into Espalier only; Cassandra gets its schema, and its SSTables."""
    rng = Random(f"{seed}/tables {number}")
    generator = Generator(rng, f"h{number}", 5)
    for connection in proof.connections:
        workload.accepted(connection.query(CREATE.format(generator.keyspace)))
        workload.accepted(connection.query(f"USE {generator.keyspace}"))
    tables = 0
    for step in generator.steps(HISTORY_STEPS):
        if step.kind == "flush":
            proof.subject.flush(generator.keyspace)
        elif step.cql.startswith(("CREATE", "ALTER")):
            answers = [connection.query(step.cql) for connection in proof.connections]
            proof.check(step.cql, isinstance(answers[0], Error) == isinstance(answers[1], Error), str(answers))
            if isinstance(answers[0], Error) and step.cql.startswith("CREATE TABLE"):
                return              # neither server has the table
            if step.cql.startswith("CREATE TABLE"):
                proof.tell_both([laid_out(step.cql.split()[2], number + tables)])
                tables += 1
        elif not step.cql.startswith(("SELECT", "DESCRIBE")):
            exchange(proof.connections[1:], step)
    for table in generator.tables:
        proof.hand_over(generator.keyspace, table.name, dump=number < 3)
        reads = [read(rng, table, generator.now) for _ in range(READS_PER_HISTORY)]
        steps = [Step("cql", f"SELECT * FROM {table.full_name}", page_size=PAGE_SIZE), *reads]
        for step in steps:
            proof.ask(step)
        proof.compact(generator.keyspace, table.name, steps)


if __name__ == "__main__":
    main()
