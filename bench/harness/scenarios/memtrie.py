"""The trie in process beside its peers: ordered maps in Rust, Cassandra's own trie and skip list in Java. Same keys, same questions."""

import json
import subprocess

from bench.harness import servers
from bench.harness.outcome import Bar, Outcome, Table, median, spread
from bench.harness.rounds import Progress
from proof import places
from proof.oracle import cassandra as oracle

TARGET = places.CACHE / "bench-process"
RUST = ("memtrie", "paper", "btree", "skiplist", "blart", "loads")
JAVA = ("trie", "skiplist")
OURS, TRIE, SKIP_LIST = "memtrie", "Cassandra InMemoryTrie", "Cassandra skip list"
TIMEOUT_SECONDS = 900


def run(quick: bool) -> Outcome:
    count, rounds = (1_000_000, 3) if quick else (10_000_000, 5)
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "bench", "--bin", "bench-memtrie", "--target-dir", str(TARGET)],
                   cwd=places.ROOT, check=True)
    servers.compile_java()
    commands = [(name, [str(TARGET / "release" / "bench-memtrie"), str(count), name]) for name in RUST]
    commands += [(f"Cassandra's {kind}", java(count, kind)) for kind in JAVA]
    progress, figures = Progress("memtrie", len(commands) * rounds), {}
    for round_number in range(rounds):
        for name, command in commands if round_number % 2 == 0 else reversed(commands):
            progress.step(name)
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
            if done.returncode != 0:
                raise RuntimeError(f"{name}: {done.stderr.strip()}")
            for line in done.stdout.splitlines():
                figure = json.loads(line)
                figures.setdefault((figure["figure"], figure["peer"]), []).append(figure["value"])
    progress.end()
    outcome = Outcome("memtrie", settings={
        "keys": f"{count:,} partition keys of 16 random bytes, translated (Murmur3 token, byte-comparable) in every operation; contents of 8 bytes",
        "figures": "ns of the thread's processor time, one thread; a process for each map and round", "rounds": f"{rounds}, interleaved",
        "java": "-Xmx6g, G1, all tiers of the compiler, warmed up"})
    return judge(outcome, figures)


def java(count: int, kind: str) -> list[str]:
    flags = [flag for flag in oracle.java_flags(6144) if flag not in servers.SERIAL_FLAGS]
    flags[flags.index("-cp") + 1] += f":{servers.CLASSES}"
    return ["java", "-XX:+UseG1GC", *flags, f"-Dlogback.configurationFile=file://{oracle.HERE}/logback.xml", "TrieBench", str(count), kind]


def judge(outcome: Outcome, figures: dict) -> Outcome:
    rows = [[figure, peer, spread(values)] for (figure, peer), values in sorted(figures.items())]
    outcome.tables.append(Table("ns per operation, bytes per key; medians (least–greatest)", ["figure", "map", "median"], rows))

    def value(figure: str, peer: str = OURS) -> float:
        return median(figures[figure, peer])

    for figure in ("get, hit", "get, miss"):
        outcome.bars.append(Bar(f"{figure} ÷ Cassandra's trie", value(figure) / value(figure, TRIE), "<=", 1 / 5))
        outcome.bars.append(Bar(f"{figure} ÷ Cassandra's skip list", value(figure) / value(figure, SKIP_LIST), "<=", 1 / 25))
        outcome.bars.append(Bar(f"{figure} ÷ blart", value(figure) / value(figure, "blart"), "<=", 1))
    outcome.bars.append(Bar("get of 64 ÷ Cassandra's trie, one by one", value("get, 64 at a time") / value("get, hit", TRIE), "<=", 1 / 15))
    outcome.bars.append(Bar("insert of 32 ÷ Cassandra's trie, one by one",
                            value("insert, 32 at a time, touched memory") / value("insert, cold memory", TRIE), "<=", 1 / 9))
    outcome.bars.append(Bar("get, dependent, in dependent loads", value("get, dependent") / value("dependent load", "this machine"), "<=", 3.2))
    touched, cold = value("insert, touched memory"), "insert, cold memory"
    outcome.bars.append(Bar("insert, touched memory ÷ Cassandra's trie", touched / value(cold, TRIE), "<=", 1 / 4))
    outcome.bars.append(Bar("insert, touched memory ÷ Cassandra's skip list", touched / value(cold, SKIP_LIST), "<=", 1 / 20))
    outcome.bars.append(Bar("insert, touched memory ÷ blart", touched / value(cold, "blart"), "<=", 1))
    outcome.bars.append(Bar("bytes per key without the value", value("bytes per key without the value"), "<=", 36))
    for figure in ("scan forward", "scan reverse"):
        outcome.bars.append(Bar(f"{figure}, keys rebuilt, M entries/s", 1000 / value(figure), ">=", 20))
    return outcome
