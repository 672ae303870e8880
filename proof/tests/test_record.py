"""Answers of Cassandra are used again as long as nothing has changed that they follow from, and no longer."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from proof import places, stages
from proof.oracle import record
from proof.oracle.record import Record


class Records(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        self.questions = self.root / "questions"
        self.questions.mkdir()
        self.oracle = self.root / "oracle.yaml"
        for file in (self.questions / "a.py", self.questions / "b.py", self.oracle):
            file.write_text("one")
        for target, name, value in ((places, "ROOT", self.root), (record, "ORACLE", (self.oracle,)),
                                    (record, "IN_TREE", self.root / "kept")):
            patched = mock.patch.object(target, name, value)
            patched.start()
            self.addCleanup(patched.stop)
        self.record = Record("stage", (self.questions,))

    def test_answers_are_used_again_while_nothing_has_changed(self):
        self.assertIsNone(self.record.answers())
        self.record.keep({"passed": 3})
        self.assertEqual(self.record.answers(), {"passed": 3})
        (self.questions / "__pycache__").mkdir()
        (self.questions / "__pycache__" / "a.pyc").write_text("compiled")
        self.assertEqual(self.record.answers(), {"passed": 3})

    def test_any_change_of_the_questions_or_of_the_oracle_ends_that(self):
        changes = {"a question": lambda: (self.questions / "b.py").write_text("two"),
                   "a new file": lambda: (self.questions / "c.py").write_text(""),
                   "another name": lambda: (self.questions / "a.py").rename(self.questions / "aa.py"),
                   "the oracle": lambda: self.oracle.write_text("two")}
        for name, change in changes.items():
            with self.subTest(name):
                self.record.keep({"passed": 3})
                change()
                self.assertIsNone(self.record.answers())

    def test_a_record_that_was_cut_short_is_none(self):
        for is_large in (False, True):
            with self.subTest(is_large=is_large):
                kept = Record("stage", (self.questions,), is_large)
                kept.keep({"passed": 3})
                self.assertEqual(kept.answers(), {"passed": 3})
                kept.file.write_bytes(kept.file.read_bytes()[:-9])
                self.assertIsNone(kept.answers())


class Stages(unittest.TestCase):
    def test_the_cpu_time_of_a_stage_is_that_of_all_its_processes(self):
        work = "import subprocess, sys, time\nwhile time.process_time() < 0.2: pass\n"
        parent = work + f"subprocess.run([sys.executable, '-c', {work!r}])\nprint('1 passed, 0 failed')"
        result = stages.run(stages.Stage("work", [stages.PYTHON, "-c", parent]), lambda _: None)
        self.assertEqual((result.passed, result.failed), (1, 0))
        self.assertGreaterEqual(result.cpu_seconds, 0.4)

    def test_a_stage_that_fails_has_its_status(self):
        result = stages.run(stages.Stage("false", ["false"], "single"), lambda _: None)
        self.assertEqual((result.passed, result.failed), (0, 1))

    def test_a_warning_fails_a_build(self):
        for text, failed in (("warning: unused variable", 1), ("a warning in the middle", 0)):
            result = stages.run(stages.Stage("build", ["echo", text], "single", environment={"NAME": "value"}), lambda _: None)
            self.assertEqual((result.passed, result.failed), (1 - failed, failed))

    def test_failures_are_printed_again_at_the_end(self):
        lines = ["node: ok FAIL is no failure here", "node: FAIL serves: got 1", "FAIL all.loaded: 3 rows",
                 "it::reads --- FAILED", "FAIL: test_x (a.B.test_x)", "node: FAIL damage: Traceback (most recent call last):",
                 "  File x", "KeyError: 1", "0 passed, 5 failed"]
        result = stages.run(stages.Stage("echo", ["printf", "%s\\n", *lines]), lambda _: None)
        self.assertEqual(result.notes, [f"echo: {line}" for line in [*lines[1:6], lines[7]]])
        many = stages.Stage("echo", ["printf", "FAIL %s\\n", *map(str, range(99)), "end"])
        self.assertEqual(len(stages.run(many, lambda _: None).notes), stages.FAILURES_SHOWN_MAX)
