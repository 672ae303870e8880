"""A comparison of `espalier sstable dump` with sstabledump for the same file."""

from pathlib import Path

from proof.oracle.cassandra import parsed, sstabledump
from proof.oracle.espalier import Espalier


def without_expired(dumped):
    """Returns a dump without what depends on the time at which it was made."""
    if isinstance(dumped, dict):
        return {name: without_expired(value) for name, value in dumped.items() if name != "expired"}
    return [without_expired(value) for value in dumped] if isinstance(dumped, list) else dumped


def dump_difference(data: Path, lines: bool = False) -> str | None:
    """Returns the first partition whose dumps differ. With `lines`, each partition is on a line of its own."""
    theirs = without_expired(sstabledump(data, lines))
    ours = without_expired(parsed(Espalier.tool("sstable", "dump", *(["-l"] if lines else []), str(data)), lines))
    if theirs == ours:
        return None
    differing = next((pair for pair in zip(theirs, ours) if pair[0] != pair[1]), (len(theirs), len(ours)))
    return f"sstabledump says {differing[0]}\nespalier says {differing[1]}"
