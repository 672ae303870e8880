"""Passwords in logs and in the output of stages are found."""

import tempfile
import unittest
from pathlib import Path

from proof import stages
from proof.oracle.espalier import SECRETS, Espalier, secret_in

HASH = "$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG"


class Secrets(unittest.TestCase):
    def test_a_password_or_a_hash_in_any_log_of_a_node_is_a_failure(self):
        for name in ("log", "data/audit/audit.log", "data/audit/audit-2026.log", "queries/full_query.log"):
            for secret in (*SECRETS, HASH):
                with self.subTest(name=name, secret=secret), tempfile.TemporaryDirectory() as directory:
                    log = Path(directory) / name
                    log.parent.mkdir(parents=True, exist_ok=True)
                    log.write_bytes(b"a line\n\xff" + secret.encode() + b"\n")
                    with self.assertRaisesRegex(RuntimeError, "has the password or hash"):
                        Espalier(Path(directory), 0, {}, keep=False).search_logs()

    def test_other_text_is_none(self):
        self.assertIsNone(secret_in("CREATE ROLE a WITH PASSWORD = '*******' -- $2a$10$short"))

    def test_a_stage_whose_output_has_a_password_fails(self):
        for text, failed in (("nothing", 0), (SECRETS[0], 1), (HASH, 1)):
            stage = stages.Stage("echo", ["printf", "%s\\n", text, "3 passed, 0 failed"])
            result = stages.run(stage, lambda _: None)
            self.assertEqual((result.passed, result.failed), (3, failed), text)
            self.assertEqual(bool(result.notes), bool(failed))
