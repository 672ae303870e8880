"""What Cassandra answered to questions that have not changed since.

Some stages send a fixed list of questions to Cassandra and to Espalier. Only our own answers can change from one run to
the next, so Cassandra's are kept, with a digest of all that they follow from: the questions, and Cassandra's version
and configuration. The next run asks Cassandra again if any of this has changed.

Records are in `proof/oracle/record`, as part of the tree: a change of the questions commits the new record too. Those
of many answers are compressed. The files that Cassandra writes for the stage `upgrade` are kept in `.cache/oracle`.
"""

import hashlib
import json
import lzma
from dataclasses import dataclass
from pathlib import Path

from proof import places

HERE = Path(__file__).resolve().parent
IN_TREE = HERE / "record"
# The version and the configuration of Cassandra, and the clients.
ORACLE = (HERE / "cassandra.py", HERE / "cassandra.yaml", HERE / "pom.xml", HERE / "java", places.ROOT / "proof" / "requirements.txt")
IGNORED = {"__pycache__", "target", "build"}


@dataclass
class Record:
    """The answers to the questions of `sources`, which are files and directories."""

    name: str
    sources: tuple[Path, ...]
    is_large: bool = False

    @property
    def file(self) -> Path:
        return IN_TREE / (f"{self.name}.json.xz" if self.is_large else f"{self.name}.json")

    def answers(self):
        """What was kept, or None if Cassandra has to be asked again."""
        try:
            content = self.file.read_bytes()
            kept = json.loads(lzma.decompress(content) if self.is_large else content)
        except (OSError, ValueError, lzma.LZMAError):
            return None
        return kept["answers"] if kept["digest"] == self.digest() else None

    def keep(self, answers) -> None:
        """Keeps answers that can be written as JSON."""
        IN_TREE.mkdir(parents=True, exist_ok=True)
        content = (json.dumps({"digest": self.digest(), "answers": answers}, indent=1, sort_keys=True) + "\n").encode()
        self.file.write_bytes(lzma.compress(content, preset=9) if self.is_large else content)
        print(f"{self.file.relative_to(places.ROOT)} is new: commit it, so that other runs need not ask Cassandra again", flush=True)

    def digest(self) -> str:
        digest = hashlib.sha256()
        for file in sorted(file for source in (*ORACLE, *self.sources) for file in files_of(source)):
            digest.update(f"{file.relative_to(places.ROOT)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()


def files_of(source: Path) -> list[Path]:
    """A file itself, or all files of a directory but those that a build has made."""
    if source.is_file():
        return [source]
    return [file for file in source.rglob("*") if file.is_file() and not IGNORED.intersection(file.relative_to(source).parts)]
