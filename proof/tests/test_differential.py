"""Histories are the same for ever; comparison, shrinking and the journal do what they say."""

import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

from proof import places
from proof.differential.compare import Difference, Outcome, compare
from proof.differential.explained import OLD_TIMEUUID_CLASS, PAGES, PAGES_BEHIND_NOTHING, PAGES_OF_A_FILTER, RULES, explanation
from proof.differential.generator import history
from proof.differential.journal import Entry, Journal
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
        for name in [rule.name for rule in RULES] + [PAGES, PAGES_BEHIND_NOTHING, PAGES_OF_A_FILTER]:
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


    def test_groups_of_timeuuids_have_pages_too(self):
        step = Step("cql", "SELECT min(k) FROM t GROUP BY k")
        theirs, ours = rows(b"1"), rows(b"1")
        theirs.metadata.columns = [("ks", "t", "system.min(k)", OLD_TIMEUUID_CLASS)]
        ours.metadata.columns = [("ks", "t", "system.min(k)", "timeuuid")]
        end = replace(theirs, rows=[])
        self.assertEqual(explanation(step, [theirs, end], [ours]), PAGES)
        ours.metadata.columns = [("ks", "t", "system.min(k)", "uuid")]
        self.assertIsNone(explanation(step, [theirs, end], [ours]))

    def test_any_type_is_told_of_a_list_as_an_argument_only(self):
        int_, double = (Error(0x2200, f"Unexpected receiver type '{ty}'; only list and vector are expected", b"") for ty in ("int", "double"))
        for value in ("7 * [1]", "[1] * 7", "-[1]", "abs([1])", "7 + ([1])", "([1]) % 2"):
            step = Step("cql", f"INSERT INTO t (k, d) VALUES (-1, {value})")
            self.assertEqual(explanation(step, [int_], [double]), "lists as arguments")
            self.assertIsNone(explanation(step, [int_], [Error(0x2200, "no", b"")]))
        for value in ("[1]", "[-1, 2]", "([1])"):
            self.assertIsNone(explanation(Step("cql", f"INSERT INTO t (k, d) VALUES (-1, {value})"), [int_], [double]))

    def test_ranges_are_others_only_behind_a_value_that_is_there_twice(self):
        cql = "SELECT * FROM t WHERE p = 1 AND k0 IN ({}) AND (k1, k2) >= (1, 2) AND (k1) <= (7)"
        some, more = [rows(b"1")], [rows(b"1", b"2")]
        name = "values twice before a range"
        self.assertEqual(explanation(Step("cql", cql.format("0, 0")), some, more), name)
        self.assertEqual(explanation(Step("cql", cql.format("?, ?"), ["00", "00"]), some, more), name)
        self.assertIsNone(explanation(Step("cql", cql.format("?, ?"), ["00", "01"]), some, more))
        self.assertIsNone(explanation(Step("cql", cql.format("0, 1")), some, more))
        self.assertEqual(explanation(Step("cql", cql.format("from_json('0'), 0")), more, some), name)
        self.assertIsNone(explanation(Step("cql", "SELECT * FROM t WHERE p = 1 AND k0 IN (0, 0) AND k1 > 2"), some, more))

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


class Journals(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = Path(directory.name) / "journals" / "seed-7.jsonl"

    def test_a_run_goes_on_behind_what_ended(self):
        written = Journal.begin(self.file)
        written.add(Entry(7, 0, 100, {"pages of GROUP BY": 2}, 0))
        written.add(Entry(7, 3, 50, {}, 0))
        resumed = Journal.resume(self.file)
        self.assertEqual(resumed.ended, {(7, 0), (7, 3)})
        self.assertEqual(resumed.statements, 152)
        self.assertEqual(resumed.summary(), ["seeds 7 to 7: 2 histories, 152 statements; 0 differences unexplained, 2 explained:",
                                             "       2  pages of GROUP BY"])
        self.assertEqual(Journal.begin(self.file).ended, set())

    def test_a_seed_that_differed_is_run_again(self):
        written = Journal.begin(self.file)
        for entry in (Entry(7, 0, 10, {}, 0), Entry(8, 0, 10, {}, 0), Entry(8, 1, 9, {}, 1), Entry(9, 0, 10, {}, 0)):
            written.add(entry)
        self.assertEqual(Journal.resume(self.file).ended, {(7, 0), (9, 0)})
        self.assertEqual(Journal.resume(self.file).statements, 20)

    def test_a_line_that_was_cut_short_does_not_count(self):
        written = Journal.begin(self.file)
        written.add(Entry(7, 0, 10, {}, 0))
        written.add(Entry(7, 1, 10, {}, 0))
        self.file.write_text(self.file.read_text()[:-5])
        resumed = Journal.resume(self.file)
        resumed.add(Entry(7, 2, 10, {}, 0))
        self.assertEqual(Journal.resume(self.file).ended, {(7, 0), (7, 2)})
