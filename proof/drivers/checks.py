"""Counts what a script finds right and wrong, and prints the last line every stage ends with."""

import sys
import traceback
from contextlib import contextmanager


NOT_PROVED = "NOT PROVED HERE"


class Checks:
    def __init__(self, prefix: str):
        self.prefix = prefix
        self.passed = 0
        self.failed = 0

    def equal(self, name: str, got, expected) -> None:
        self.true(name, got == expected, f"got {got!r}, expected {expected!r}")

    def true(self, name: str, right: bool, detail: str = "") -> None:
        if right:
            self.passed += 1
        else:
            self.failed += 1
            print(f"{self.prefix}: FAIL {name}: {detail}", flush=True)

    def raises(self, name: str, expected: type, text: str, action) -> None:
        """`action` must raise `expected` with `text` in its message."""
        try:
            result = action()
        except expected as raised:
            self.true(name, text in str(raised), f"{raised!r} does not say {text!r}")
        except Exception as raised:
            self.true(name, False, f"raised {raised!r} instead of {expected.__name__}")
        else:
            self.true(name, False, f"returned {result!r} instead of raising {expected.__name__}")

    def skipped(self, what: str, reason: str) -> None:
        """Says what cannot be proved on this machine; `make test` says it again at its end."""
        print(f"{NOT_PROVED}: {self.prefix}: {what}: {reason}", flush=True)

    @contextmanager
    def part(self, name: str):
        """An exception inside counts as one failure and ends only this part."""
        try:
            yield
        except Exception:
            self.true(name, False, traceback.format_exc())

    def end(self) -> None:
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        sys.exit(1 if self.failed else 0)
