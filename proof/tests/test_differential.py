"""Histories are the same for ever; comparison and shrinking do what they say."""

import unittest
from dataclasses import replace

from proof import places
from proof.differential.compare import Difference, Outcome, compare
from proof.differential.explained import PAGES, PAGES_OF_A_FILTER, RULES, explanation
from proof.differential.generator import history
from proof.differential.shrink import shrink
from proof.differential.steps import History, Step
from proof.wire.responses import Error, Metadata, Rows, Void


class Generating(unittest.TestCase):
    def test_a_seed_gives_one_history(self):
        for number in range(10):
            self.assertEqual(history(5, number, 60), history(5, number, 60))
        self.assertNotEqual(history(5, 1, 60).steps, history(6, 1, 60).steps)

    def test_a_history_survives_its_file(self):
        made = history(5, 3, 100)
        self.assertEqual(History.from_json(made.to_json()), made)


def rows(*values: bytes, warnings=(), more: bytes | None = None) -> Rows:
    return Rows(Metadata([("ks", "t", "k", "int")], more, None, 1), [(value,) for value in values], warnings=list(warnings))


class Comparing(unittest.TestCase):
    def test_equal(self):
        self.assertIsNone(compare([rows(b"1", b"2")], [rows(b"1", b"2")]))
        self.assertIsNone(compare([rows(b"1", more=b"theirs")], [rows(b"1", more=b"ours")]))

    def test_every_difference_is_seen(self):
        for other in (rows(b"2", b"1"), rows(b"1"), rows(b"1", b"2", warnings=["w"]), rows(b"1", b"2", more=b"x"), Void()):
            self.assertIsNotNone(compare([rows(b"1", b"2")], [other]))
        self.assertIsNotNone(compare([Error(1, "a", b"")], [Error(1, "b", b"")]))
        self.assertIsNotNone(compare([Error(1, "a", b"")], [Error(2, "a", b"")]))
        self.assertIsNotNone(compare([Error(1, "a", b"")], [Error(1, "a", b"x")]))
        self.assertIsNotNone(compare([rows(b"1")], [rows(b"1"), rows()]))


class Explaining(unittest.TestCase):
    def test_every_rule_has_its_row(self):
        rows = (places.ROOT / "docs" / "differences.md").read_text()
        for name in [rule.name for rule in RULES] + [PAGES, PAGES_OF_A_FILTER]:
            self.assertIn(f"\n| {name} |", rows)

    def test_a_plain_difference_is_not_explained(self):
        step = Step("cql", "SELECT k FROM t GROUP BY k")
        self.assertIsNone(explanation(step, [rows(b"1")], [rows(b"2")]))
        self.assertEqual(explanation(step, [rows(b"1", b"2")], [rows(b"1", more=b"x"), rows(b"2")]), PAGES)


    def test_only_the_last_bit_of_a_logarithm_is_explained(self):
        step = Step("cql", "SELECT log10(v) FROM t")
        pi = bytes.fromhex("3fdfd14db31ba3bb")
        for other, name in (("3fdfd14db31ba3ba", "last bit of a logarithm"), ("3fdfd14db31ba3b9", None), ("3fdfd14d", None)):
            self.assertEqual(explanation(step, [rows(pi)], [rows(bytes.fromhex(other))]), name)
        next_to_it = [rows(bytes.fromhex("3fdfd14db31ba3ba"))]
        self.assertIsNone(explanation(Step("cql", "SELECT v FROM t"), [rows(pi)], next_to_it))
        self.assertIsNone(explanation(step, [rows(pi, warnings=["w"])], next_to_it))


    def test_fields_are_taken_for_columns_only_where_they_are_fields(self):
        step = Step("cql", "SELECT mask_replace(u, {street: 1}) FROM t")
        refused = [Error(0x2200, "Undefined column name street in table ks.t", b"")]
        self.assertEqual(explanation(step, refused, [rows(b"1")]), "fields taken for columns")
        self.assertIsNone(explanation(step, refused, [Error(0x2200, "no", b"")]))
        self.assertIsNone(explanation(step, [Error(0x2200, "Undefined column name zip in table ks.t", b"")], [rows(b"1")]))


class PretendedPair:
    """Differs at the last step if steps 3 and 7 came before it."""

    def run(self, tried: History) -> Outcome:
        numbers = {step.cql for step in tried.steps[:-1]}
        differs = tried.steps[-1].cql == "9" and {"3", "7"} <= numbers
        last = len(tried.steps) - 1
        return Outcome(0, {}, [Difference(tried, last, "left", "right", False)] if differs else [])


class Shrinking(unittest.TestCase):
    def test_only_what_matters_is_left(self):
        made = History("h", "ks", 5, None, [Step("cql", str(n)) for n in range(10)])
        found = shrink(PretendedPair(), Difference(made, 9, "left", "right", False), 10)
        self.assertEqual([step.cql for step in found.history.steps], ["3", "7", "9"])
        self.assertEqual(replace(found.history, steps=[]), replace(made, steps=[]))
