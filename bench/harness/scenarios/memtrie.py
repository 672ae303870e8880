"""The trie in process beside its peers: ordered maps in Rust, Cassandra's own trie and skip list in
Java. Same keys, same questions."""

import shutil
from dataclasses import dataclass

from bench.harness import in_process, servers
from bench.harness.length import Length
from bench.harness.outcome import Bar, Outcome, Table, median, spread
from bench.harness.rounds import Progress
from bench.harness.session import Session
from proof import places
from proof.oracle import cassandra as oracle

PEERS = ("blart", "paper", "btree", "skiplist", "bplustree")
OURS, TRIE, SKIP_LIST = "memtrie", "Cassandra InMemoryTrie", "Cassandra skip list"
OUR_MEMTABLE, THEIR_MEMTABLE = "TrieMemtable", "Cassandra TrieMemtable"
BYTES = "bytes per key without the value"
PUT, READ, ROWS_PER_GIB = "memtable: put", "memtable: whole-row read", "memtable: rows per GiB"
PUT_TOGETHER, READ_CURSOR = f"{PUT}, 32 at a time", f"{READ}, cursor"
MILLION = 1_000_000


@dataclass(frozen=True)
class Plan:
    # Random keys, beside all peers.
    main: int
    # Keys without values.
    bare: tuple[int, ...]
    # Rows of partitions, ours; and what a part of the keys is enough for, beside some peers.
    rows: int
    small: int
    peers: tuple[str, ...]
    peers_of_kinds: tuple[str, ...]


PLANS = {
    Length.FULL: Plan(10 * MILLION, (MILLION, 3 * MILLION, 10 * MILLION), 10 * MILLION, MILLION, PEERS, ("btree", "blart")),
    Length.SHORT: Plan(MILLION, (MILLION,), MILLION // 4, MILLION // 4, PEERS, ("btree", "blart")),
    Length.SMOKE: Plan(MILLION // 10, (MILLION // 10,), MILLION // 20, MILLION // 20, ("paper", "btree", "skiplist"), ("btree",)),
}


def run(session: Session) -> Outcome:
    plan = PLANS[session.length]
    servers.compile_java()
    directory = places.run_directory("bench-memtrie")
    figures = {}
    try:
        servers.configure(directory)
        jobs = jobs_of(plan, directory)
        progress = Progress("memtrie", len(jobs))
        for keys, count, name, command in jobs:
            progress.step(f"{name}, {count:,} {keys}")
            for figure in in_process.figures(command):
                figures.setdefault((keys, count, figure["figure"], figure["peer"]), []).append(figure["value"])
        progress.end()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    outcome = Outcome("memtrie", settings={
        "keys": "random: partition keys of 16 random bytes, translated (Murmur3 token, byte-comparable) in every operation; bare: these without "
                "the two bytes that all end in, 26 bytes; rows: of 10,000 partitions; contents of 8 bytes",
        "figures": "ns of the thread's processor time, one thread; a process for each map. A thousand operations share a pin, a guard or a lock. "
                   "A million gets of a kind, over all keys",
        "memtables": "partitions of one row with a value of 100 bytes, one shard, updates made beforehand; offheap_objects in Cassandra's. Ours is read as a SELECT "
                     "by the whole primary key reads it, the row's bytes copied, and through a cursor; Cassandra's by rowIterator, which copies to the heap. "
                     "Next live row: a partition of as many rows. Appends: one new element each, to collections that grow by a fifth at most",
        "rounds": "ours and the dependent load twice, before and after the peers; the others once. The dependent load is over as many bytes as the "
                  "trie of the random keys holds, on huge pages as the trie is",
        "java": "-Xmx6g, G1, all tiers of the compiler, warmed up"})
    return judge(outcome, figures, plan)


def jobs_of(plan: Plan, directory) -> list[tuple]:
    """The runs, in order: keys, count, name, command. Ours is before and after the peers with which it is compared."""
    def rust(count: int, name: str, keys: str = "random") -> tuple:
        return keys, count, name, [in_process.binary("memtrie"), count, name] + ([keys] if name not in ("loads", "beside") else [])

    main, small = plan.main, plan.small
    memtables = [("rows of 100 B", small, "ours", [in_process.binary("memtable"), small])]
    jobs = [rust(main, "loads"), rust(main, OURS)]
    jobs += [("random", main, f"Cassandra's {kind}", java("TrieBench", main, kind)) for kind in ("trie", "skiplist")]
    jobs += [rust(main, name) for name in plan.peers] + [rust(main, OURS), rust(main, "loads")]
    jobs += [rust(count, OURS, "bare") for count in plan.bare]
    # As many keys as the peers have, and more for the trie alone.
    jobs += [rust(count, OURS, "rows") for count in dict.fromkeys((small, plan.rows))] + [rust(small, name, "rows") for name in plan.peers_of_kinds]
    jobs += [rust(small, name, keys) for keys in ("urls", "sequential") for name in (OURS, *plan.peers_of_kinds)]
    jobs += [rust(small, "beside"), *memtables]
    jobs += [("rows of 100 B", small, f"Cassandra's {kind} memtable", java("MemtableBench", small, kind, directory)) for kind in ("trie", "skiplist")]
    return [*jobs, *memtables]


def java(program: str, count: int, kind: str, directory=None) -> list[str]:
    flags = [flag for flag in oracle.java_flags(6144) if flag not in servers.SERIAL_FLAGS]
    flags[flags.index("-cp") + 1] += f":{servers.CLASSES}"
    if directory is not None:
        flags += [f"-Dcassandra.config=file://{directory}/cassandra.yaml", f"-Dcassandra.storagedir={directory}", f"-Dcassandra.logdir={directory}"]
    return ["java", "-XX:+UseG1GC", *flags, f"-Dlogback.configurationFile=file://{oracle.HERE}/logback.xml", program, str(count), kind]


def judge(outcome: Outcome, figures: dict, plan: Plan) -> Outcome:
    for keys, count in dict.fromkeys((keys, count) for keys, count, _, _ in figures):
        rows = [[figure, peer, spread(values)] for (k, c, figure, peer), values in sorted(figures.items()) if (k, c) == (keys, count)]
        outcome.tables.append(Table(f"{count:,} keys, {keys}: ns per operation, bytes per key; medians (least–greatest)",
                                    ["figure", "map", "median"], rows))

    def value(figure: str, peer: str = OURS) -> float:
        return median(figures["random", plan.main, figure, peer])

    def bar(name: str, value: float, wanted: str, limit: float):
        outcome.bars.append(Bar(name, value, wanted, limit))

    for figure in ("get, hit", "get, miss"):
        bar(f"{figure} ÷ Cassandra's trie", value(figure) / value(figure, TRIE), "<=", 1 / 5)
        bar(f"{figure} ÷ Cassandra's skip list", value(figure) / value(figure, SKIP_LIST), "<=", 1 / 25)
        if "blart" in plan.peers:
            bar(f"{figure} ÷ blart", value(figure) / value(figure, "blart"), "<=", 1)
    bar("get of 64 ÷ Cassandra's trie, one by one", value("get, 64 at a time") / value("get, hit", TRIE), "<=", 1 / 15)
    bar("insert of 32 ÷ Cassandra's trie, one by one",
        value("insert, 32 at a time, touched memory") / value("insert, cold memory", TRIE), "<=", 1 / 9)
    bar("get, dependent, in dependent loads", value("get, dependent") / value("dependent load", "this machine"), "<=", 3.2)
    touched, cold = value("insert, touched memory"), "insert, cold memory"
    bar("insert, touched memory ÷ Cassandra's trie", touched / value(cold, TRIE), "<=", 1 / 4)
    bar("insert, touched memory ÷ Cassandra's skip list", touched / value(cold, SKIP_LIST), "<=", 1 / 20)
    if "blart" in plan.peers:
        bar("insert, touched memory ÷ blart", touched / value(cold, "blart"), "<=", 1)
    for keys, count, figure, _ in figures:
        if keys == "bare" and figure == BYTES:
            limit = 50 if MILLION < count < 10 * MILLION else 36
            bar(f"{BYTES}, {count:,} keys of 26 bytes, committed", median(figures[keys, count, BYTES, OURS]), "<=", limit)
    for figure in ("scan forward", "scan reverse"):
        bar(f"{figure}, M entries/s", 1000 / value(f"{figure}, keys not rebuilt"), ">=", 35)
        bar(f"{figure}, keys rebuilt, M entries/s", 1000 / value(figure), ">=", 20)
    beside = {figure: median(values) for (_, _, figure, _), values in figures.items() if figure.startswith("get beside")}
    bar("get beside its own writer ÷ beside another's", beside["get beside its own writer"] / beside["get beside a writer of another trie"], "<=", 1.15)
    memtable = {(figure, peer): median(values) for (_, _, figure, peer), values in figures.items() if figure.startswith("memtable: ")}
    for figure, wanted, limit in ((PUT, "<=", 1 / 6), (READ, "<=", 1 / 5), (ROWS_PER_GIB, ">=", 2.5)):
        bar(f"{figure} ÷ Cassandra's TrieMemtable", memtable[figure, OUR_MEMTABLE] / memtable[figure, THEIR_MEMTABLE], wanted, limit)
    for figure, of_theirs in ((PUT_TOGETHER, PUT), (READ_CURSOR, READ)):
        ratio = memtable[figure, OUR_MEMTABLE] / memtable[of_theirs, THEIR_MEMTABLE]
        outcome.notes.append(f"{figure} ÷ {of_theirs.removeprefix('memtable: ')} of Cassandra's TrieMemtable: {ratio:.3f}.")
    next_live = {figure: median(values) for (_, _, figure, _), values in figures.items() if figure.startswith("next live row, ")}
    for how in ("by rows", "by ranges", "by both"):
        bar(f"next live row, 99.7 % deleted {how} ÷ undeleted", next_live[f"next live row, {how}"] / next_live["next live row, undeleted"], "<=", 1.5)
    appends = {figure: median(values) for (_, _, figure, _), values in figures.items() if figure.startswith("append to ")}
    for kind in ("list", "set", "map"):
        bar(f"append to a {kind} of 65,000 ÷ of 100", appends[f"append to a {kind} of 65000"] / appends[f"append to a {kind} of 100"], "<=", 3)
    outcome.notes.append("Scans without rebuilding keys hand out every content in the order of the keys (Tail::contents); the peers' scans have the keys at hand.")
    return outcome
