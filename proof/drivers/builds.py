"""Builds the drivers' scripts that are not Python. Each function returns the command of a
script, without its arguments."""

import os
import subprocess
from pathlib import Path

from proof import places

HERE = Path(__file__).resolve().parent


def java() -> list[str]:
    target = places.CACHE / "java-driver"
    if not (target / "classes" / "DriverScript.class").exists() or newer(HERE / "java", target / "classes" / "DriverScript.class"):
        run("mvn", "--batch-mode", "--quiet", "-f", HERE / "java" / "pom.xml", "dependency:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={target / 'lib'}")
        (target / "classes").mkdir(parents=True, exist_ok=True)
        run("javac", "-nowarn", "-d", target / "classes", "-cp", f"{target / 'lib'}/*", *(HERE / "java").glob("*.java"))
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{target / 'classes'}:{target / 'lib'}/*", "DriverScript"]


def go() -> list[str]:
    binary = places.CACHE / "go-driver" / "script"
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false", "GOTOOLCHAIN": "local"}
    subprocess.run(["go", "build", "-o", str(binary), "."], cwd=HERE / "go", env=environment, check=True)
    return [str(binary)]


def rust() -> list[str]:
    target = places.CACHE / "rust-driver"
    run("cargo", "build", "--quiet", "--locked", "--manifest-path", HERE / "rust" / "Cargo.toml", "--target-dir", target)
    return [str(target / "debug" / "rust-driver-script")]


def newer(directory: Path, than: Path) -> bool:
    return any(file.stat().st_mtime > than.stat().st_mtime for file in directory.iterdir() if file.is_file())


def run(*command) -> None:
    subprocess.run([str(word) for word in command], check=True)
