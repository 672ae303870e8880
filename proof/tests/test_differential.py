"""Histories never change; comparison, shrinking and the journal work as documented."""

import struct
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from random import Random

from proof import places
from proof.differential.__main__ import by_turns
from proof.differential.again import WHOLE, explanation
from proof.differential.compare import Difference, Outcome, compare
from proof.differential.explained import OLD_TIMEUUID_CLASS, RULES
from proof.differential.generator import history
from proof.differential.journal import Entry, Journal
from proof.differential.lanes import Numbered
from proof.differential.mistakes import spoil
from proof.differential.repeats import without_repeats
from proof.differential.shrink import shrink
from proof.differential.steps import History, Step
from proof.wire.responses import Error, Lost, Metadata, Prepared, Rows, SchemaChange, SetKeyspace, Void


class Generating(unittest.TestCase):
    def test_a_seed_gives_one_history(self):
        for number in range(10):
            self.assertEqual(history(5, number, 60), history(5, number, 60))
        self.assertNotEqual(history(5, 1, 60).steps, history(6, 1, 60).steps)

    def test_one_history_in_ten_has_tables_of_counters_and_all_kinds_of_writes_to_them(self):
        counting = [made for made in (history(5, number, 60) for number in range(200))
                    if any("CREATE TABLE" in step.cql and " counter" in step.cql for step in made.steps)]
        self.assertGreaterEqual(len(counting), 20)
        said = "\n".join(str(step) for made in counting for step in made.steps)
        for text in ("BEGIN COUNTER BATCH", "BATCH message of type 2", "DELETE FROM", " -= ", " counter static", "USING TTL", "INSERT INTO"):
            self.assertIn(text, said)

    def test_views_are_made_before_there_is_data_and_read_between_writes(self):
        made = history(5, 3, 100, has_views=True)
        said = [step.cql for step in made.steps]
        views = [cql.split()[3] for cql in said if cql.startswith("CREATE MATERIALIZED VIEW")]
        self.assertTrue(views)
        first_write = next(place for place, cql in enumerate(said) if cql.startswith(("INSERT", "UPDATE", "DELETE", "BEGIN")))
        self.assertLess(max(place for place, cql in enumerate(said) if cql.startswith("CREATE")), first_write)
        self.assertGreater(sum(cql == f"SELECT * FROM {view}" for cql in said for view in views), 2)
        self.assertFalse(any("VIEW" in step.cql for step in history(5, 3, 100).steps))

    def test_by_turns_a_history_without_indexes_is_in_our_engine_and_the_others_have_views(self):
        made = [by_turns(Numbered(5, number, 60)).make() for number in range(30)]
        stored = [one for one in made if one.memtable]
        self.assertTrue(5 < len(stored) < 16)
        self.assertFalse(any(" INDEX " in step.cql or " VIEW " in step.cql or step.cql.startswith("DESCRIBE") for one in stored for step in one.steps))
        others = [one for one in made if not one.memtable]
        self.assertTrue(any(" INDEX " in step.cql for one in others for step in one.steps))

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


class Servers:
    """Both servers' answers to a repeated question, which are kept."""

    def __init__(self, then: tuple[list, list]):
        self.then = then
        self.asked: list[Step] = []

    def __call__(self, step: Step) -> tuple[list, list]:
        self.asked.append(step)
        return self.then


def nobody(step: Step):
    raise AssertionError(f"nobody is to be asked {step}")


def refused(message: str, code: int = 0x2200) -> list:
    return [Error(code, message, b"")]


def typed(kind: str, *values: bytes | None, name: str = "k", warnings=(), more: bytes | None = None) -> Rows:
    return Rows(Metadata([("ks", "t", name, kind)], more, None, 1), [(value,) for value in values], warnings=list(warnings))


class Suspecting(unittest.TestCase):
    """The verdict from the answers alone."""

    def explains(self, name: str | None, cql: str, theirs: list, ours: list, values=(), ask=nobody, **other) -> None:
        self.assertEqual(explanation(ask, Step("cql", cql, list(values), **other), theirs, ours), name)

    def test_every_rule_has_its_section(self):
        rows = (places.ROOT / "docs" / "differences.md").read_text()
        for name in [rule.name for rule in RULES] + list(WHOLE):
            self.assertIn(f"\n## {name}\n", rows)

    def test_what_was_said_before_an_error_counts_too(self):
        failed, cql = Error(0, "java.lang.NullPointerException", b""), "INSERT INTO t (k) VALUES (1)"
        prepared = Void()
        self.explains("internal errors of Cassandra", cql, [prepared, failed], [prepared, Void()])
        self.explains(None, cql, [SetKeyspace("a"), failed], [SetKeyspace("b"), Void()])
        self.explains(None, cql, [SetKeyspace("a"), failed], [SetKeyspace("b"), Void(), Void()])

    def test_a_server_that_is_gone_is_never_explained(self):
        for theirs in (refused("java.lang.NullPointerException", 0), refused("", 0x2500), refused("Invalid value for the paging state", 10)):
            self.explains(None, "SELECT k FROM t GROUP BY k", theirs, [Lost("closed")], reuse=True)

    def test_a_failure_of_our_own_is_never_explained(self):
        self.explains(None, "INSERT", refused("java.lang.NullPointerException", 0), refused("oops", 0))

    def test_half_a_character_stands_at_the_end_of_a_context_only(self):
        cql, name = "SELECT k FROM t WHERE k = '𝄞𝄞' x", "error contexts cut within a character"
        line = "line 1:1 no viable alternative at "
        for theirs, ours in (("input 'x' (...?𝄞' [x])", "input 'x' (...𝄞' [x])"), ("input 'x' ([x] '𝄞?...)", "input 'x' ([x] '𝄞𝄞...)"),
                             ("input 'x' (...a ['?]...)", "input 'x' (...a [']...)"), ("character '?'", "character '𝄞'")):
            self.explains(name, cql, refused(line + theirs, 0x2000), refused(line + ours, 0x2000))
        for theirs, ours in (("input 'x' (...?𝄞' [x])", "input 'y' (...𝄞' [x])"), ("input 'x' (...a '?' [x])", "input 'x' (...a '𝄞' [x])"),
                             ("input 'x' (...a ? b [x])", "input 'x' (...a b [x])"), ("input 'x' (...?𝄞' [x])", "input 'x' (...' [x])")):
            self.explains(None, cql, refused(line + theirs, 0x2000), refused(line + ours, 0x2000))
        self.explains(None, cql, refused("(...?' [x])", 0x2000), refused("(...𝄞' [x])", 0x2200))
        self.explains(None, "SELECT ? x", refused("(...? [x])", 0x2000), refused("(... [x])", 0x2000))

    def test_only_the_last_bit_of_a_logarithm(self):
        name, cql, pi = "last bit of a logarithm", "SELECT log10(v), v FROM t", bytes.fromhex("3fdfd14db31ba3bb")
        next_to_it, column = bytes.fromhex("3fdfd14db31ba3ba"), "system.log10(v)"
        self.explains(name, cql, [typed("double", pi, name=column)], [typed("double", next_to_it, name=column)])
        for other in ("3fdfd14db31ba3b9", "3fdfd14d"):
            self.explains(None, cql, [typed("double", pi, name=column)], [typed("double", bytes.fromhex(other), name=column)],
                          ask=same_again([typed("double", pi, name=column)], [typed("double", bytes.fromhex(other), name=column)]))
        for theirs, ours, said in (([typed("double", pi, name="v")], [typed("double", next_to_it, name="v")], cql),
                                   ([typed("double", pi, name=column)], [typed("double", next_to_it, name=column)], "SELECT v FROM t"),
                                   ([typed("double", pi, name=column, warnings=["w"])], [typed("double", next_to_it, name=column)], cql)):
            self.explains(None, said, theirs, ours, ask=same_again(theirs, ours))

    def test_any_type_is_told_of_a_list_as_an_argument_only(self):
        int_, double = (refused(f"Unexpected receiver type '{ty}'; only list and vector are expected") for ty in ("int", "double"))
        for value in ("7 * [1]", "[1] * 7", "-[1]", "abs([1])", "7 + ([1])", "([1]) % 2"):
            cql = f"INSERT INTO t (k, d) VALUES (-1, {value})"
            self.explains("lists as arguments", cql, int_, double)
            self.explains(None, cql, int_, refused("no"))
        for value in ("[1]", "[-1, 2]", "([1])"):
            self.explains(None, f"INSERT INTO t (k, d) VALUES (-1, {value})", int_, double)

    def test_wrong_json_values_come_in_any_order_only_in_one_slot(self):
        def wrong(name):
            return refused(f"Error decoding JSON value for {name}: no")
        self.explains("the first of wrong JSON values", "INSERT", wrong("type"), wrong("value"))
        self.explains(None, "INSERT", wrong("type"), wrong("a"))
        self.explains(None, "INSERT", wrong("type"), refused("Error decoding JSON value for type: yes"))

    def test_a_field_of_a_tuple_that_is_null_is_no_key(self):
        cql, theirs = "SELECT k FROM t WHERE (k0, k1) > (?, 1) AND k0 < {}", refused("Invalid null value in condition for column k1")
        name = "tuples in ranges of several columns"
        self.explains(name, cql.format("('a', null)"), theirs, [rows()])
        self.explains(name, cql.format("?"), theirs, [rows()], values=["00", "0000000161ffffffff"])
        for bound, values in (("('a', 1)", ["00"]), ("?", ["00", None]), ("?", ["00", "00000001610000000100"])):
            self.explains(None, cql.format(bound), theirs, [rows()], values=values, ask=same_again(theirs, [rows()]))

    def test_of_slices_of_one_column_values_may_be_empty_and_no_others(self):
        def one(value):
            return bytes.fromhex("00000001" "00000001" "61") + len(value).to_bytes(4, "big") + value
        cql, name = "SELECT m[..'a'], m['b'] FROM t", "slices of one column"
        self.explains(name, cql, [rows(one(b""))], [rows(one(b"1"))])
        self.explains(name, cql, [rows(b"")], [rows(b"1")])
        for said, theirs, ours in ((cql, one(b"2"), one(b"1")), (cql, one(b""), one(b"1")[:8] + b"\x62" + one(b"1")[9:]), (cql, b"2", b"13"),
                                   (cql, None, one(b"1")), ("SELECT m[..'a'], n['b'] FROM t", one(b""), one(b"1"))):
            self.explains(None, said, [rows(theirs)], [rows(ours)], ask=same_again([rows(theirs)], [rows(ours)]))

    def test_a_strategy_adds_a_warning_and_changes_nothing_else(self):
        warning = "LeveledCompactionStrategy is carried out as UnifiedCompactionStrategy"
        name = "compaction strategies"
        self.explains(name, "ALTER", [SchemaChange("UPDATED", "TABLE", ("a",))], [SchemaChange("UPDATED", "TABLE", ("a",), warnings=[warning])])
        self.explains(None, "ALTER", [SchemaChange("UPDATED", "TABLE", ("a",))], [SchemaChange("UPDATED", "TABLE", ("b",), warnings=[warning])])
        self.explains(None, "ALTER", [SchemaChange("UPDATED", "TABLE", ("a",), warnings=["w"])],
                      [SchemaChange("UPDATED", "TABLE", ("a",), warnings=[warning])])

    def test_months_are_counted_otherwise_before_1582_only(self):
        name, floor = "months before 1582", "system.floor(d, 1mo, 1)"

        def day(value, column=floor):
            return [typed("date", bytes.fromhex(value), name=column)]
        for cql, theirs, ours, said in (
                ("SELECT floor(d, 1mo, 1) FROM t", "8015f37b", "80000017", name),       # 24 January 1970, of a 24 June
                ("SELECT floor(d, 1mo, 1) FROM t", "8015f37b", "80000016", None),
                ("SELECT floor(d, 1mo, '1600-01-24') FROM t", "8015f37b", "80000017", None),
                ("SELECT floor(d, 1mo, '1500-01-24') FROM t", "8015f37b", "80000017", name),
                ("SELECT floor(d, 1y, '1500-01-24') FROM t", "8015f37b", "80000017", name),
                ("SELECT floor(d, 7mo, '1500-01-24') FROM t", "8015f37b", "80000017", None),
                ("SELECT floor(d, 2w, 1) FROM t", "8015f37b", "80000017", None)):
            self.explains(said, cql, day(theirs), day(ours), ask=same_again(day(theirs), day(ours)))
        other = "SELECT floor(d, 1mo, 1), d FROM t"
        self.explains(None, other, day("8015f37b", "d"), day("80000017", "d"), ask=same_again(day("8015f37b"), day("80000017")))

    def test_sums_before_1582_are_whole_days_apart(self):
        cql, days = "SELECT t + 1mo FROM t", 86_400_000

        def time(millis):
            return [typed("timestamp", millis.to_bytes(8, "big", signed=True), name="t + 1mo")]
        old, last = -200_000 * days, (1 << 63) - 1
        for theirs, ours, name in ((old, old + days, "months before 1582"), (old, old + days + 1, None), (old, old + 40 * days, None),
                                   (0, days, None), (-(1 << 63), last - days + 1, "months before 1582")):
            self.explains(name, cql, time(theirs), time(ours), ask=same_again(time(theirs), time(ours)))


def same_again(theirs: list, ours: list):
    return lambda step: (theirs, ours)


class Mistakes(unittest.TestCase):
    def test_no_map_is_written_with_a_key_twice(self):
        step = Step("cql", "UPDATE t SET m = {1: 2, 2: 1} WHERE k = 0")
        spoiled = {spoil(Random(seed), step).cql for seed in range(2_000)}
        self.assertTrue("UPDATE t SET m = {1: 2, k0: 1} WHERE k = 0" in spoiled)
        self.assertFalse("UPDATE t SET m = {1: 2, 1: 1} WHERE k = 0" in spoiled)


class AskingAgain(unittest.TestCase):
    """Differences that both servers must confirm when they are asked again."""

    def explains(self, name: str | None, step: Step, theirs: list, ours: list, *again: list) -> None:
        """Checks the explanation. `again` has Cassandra's and our answers to the repeated question."""
        self.assertEqual(explanation(lambda asked: again, step, theirs, ours), name)

    def test_groups_are_on_other_pages(self):
        step = Step("cql", "SELECT k FROM t GROUP BY k", page_size=1)
        theirs, ours, whole = [rows(b"1", b"2")], [rows(b"1", more=b"x"), rows(b"2")], [rows(b"1", b"2")]
        self.explains("pages of GROUP BY", step, theirs, ours, whole, whole)
        self.explains(None, step, theirs, ours, [rows(b"1", b"2", b"3")], whole)
        self.explains(None, step, theirs, ours, [rows(b"1", b"2", b"3")], [rows(b"1", b"2", b"3")])
        self.explains(None, step, theirs, [rows(b"1", more=b"x"), rows(b"3")], whole, whole)
        self.explains(None, step, theirs, [rows(b"1", more=b"x", warnings=["w"]), rows(b"2")], whole, whole)
        self.explains(None, Step("cql", "SELECT k FROM t", page_size=1), theirs, ours, theirs, ours)

    def test_groups_of_timeuuids_have_pages_too(self):
        step = Step("cql", "SELECT min(k) FROM t GROUP BY k", page_size=1)
        theirs, ours = (typed(kind, b"1", name="system.min(k)") for kind in (OLD_TIMEUUID_CLASS, "timeuuid"))
        end = replace(theirs, rows=[])
        self.explains("pages of GROUP BY", step, [theirs, end], [ours], [theirs], [ours])
        wrong = typed("uuid", b"1", name="system.min(k)")
        self.explains(None, step, [theirs, end], [wrong], [theirs], [wrong])

    def test_a_paging_state_is_refused_and_the_rows_are_right(self):
        step = Step("cql", "SELECT k FROM t GROUP BY k", page_size=1)
        theirs, ours = [rows(b"1", more=b"x"), *refused("Invalid value for the paging state", 10)], [rows(b"1", more=b"x"), rows(b"2")]
        self.explains("paging state of GROUP BY", step, theirs, ours, [rows(b"1", b"2")], [rows(b"1", b"2")])
        self.explains(None, step, theirs, ours, [rows(b"1", b"3")], [rows(b"1", b"3")])
        self.explains(None, step, theirs, ours, [rows(b"1", b"3")], [rows(b"1", b"2")])

    def test_a_paging_state_is_refused_where_the_read_fails_inside_without_pages(self):
        name, step = "paging state of GROUP BY", Step("cql", "SELECT k FROM t GROUP BY k", page_size=1)
        theirs, ours = [rows(b"1", more=b"x"), *refused("Invalid value for the paging state", 10)], [rows(b"1", more=b"x"), rows(b"2")]
        failed = refused("java.lang.ArithmeticException", 0)
        self.explains(name, step, theirs, ours, failed, [rows(b"1", b"2")])
        self.explains(None, step, theirs, ours, failed, [rows(b"1", b"3")])
        self.explains(None, step, theirs, [rows(b"3", more=b"x"), rows(b"2")], failed, [rows(b"3", b"2")])
        self.explains(None, step, theirs[1:], ours, failed, [rows(b"1", b"2")])

    def test_pages_of_groups_name_functions_as_they_like(self):
        step = Step("cql", "SELECT JSON to_json(k) FROM t GROUP BY k", page_size=1)
        theirs, ours = rows(b'{"system.tojson(k)": "1"}', more=b"x"), rows(b'{"system.to_json(k)": "1"}')
        self.explains("pages of GROUP BY", step, [theirs, rows()], [ours], [rows(b'{"system.tojson(k)": "1"}')], [ours])

    def test_a_read_that_fails_inside_is_asked_without_pages(self):
        step = Step("cql", "SELECT k FROM t", page_size=1)
        theirs, ours = refused("java.lang.IllegalStateException", 0), [rows(b"1")]
        self.explains("internal errors of Cassandra", step, theirs, ours, theirs, ours)
        self.explains("internal errors of Cassandra", step, theirs, ours, ours, ours)
        self.explains(None, step, theirs, ours, [rows(b"2")], ours)
        self.explains(None, step, theirs, ours, theirs, [rows(b"2")])

    def test_a_read_that_fails_inside_where_we_have_no_pages_is_asked_with_them(self):
        step, no_pages = Step("cql", "SELECT k FROM t", page_size=1), refused("Cannot page queries")
        theirs = refused("java.lang.ClassCastException", 0)
        for said, name in ((no_pages, "internal errors of Cassandra"), (refused("no"), None)):
            def ask(asked, said=said):
                return (theirs, said) if asked.page_size else (theirs, [rows(b"1")])
            self.assertEqual(explanation(ask, step, theirs, no_pages), name)

    def test_a_statement_that_lives_on_says_what_it_says_when_prepared_again(self):
        step = Step("cql", "SELECT k FROM t", prepared=True, reuse=True)
        theirs, ours = refused("", 0x2500), [rows(b"1")]
        self.explains("prepared statements after ALTER TABLE", step, theirs, ours, [Void(), rows(b"1")], [Void(), rows(b"1")])
        self.explains(None, step, theirs, ours, [Void(), rows(b"2")], [Void(), rows(b"1")])
        self.explains(None, step, theirs, ours, [Void(), rows(b"2")], [Void(), rows(b"2")])
        self.explains(None, step, theirs, refused("no"), [Void(), rows(b"1")], [Void(), rows(b"1")])
        self.explains("prepared statements after ALTER TABLE", step, theirs, refused("no"), refused("no"), refused("no"))

    def test_a_filter_gives_all_rows_at_once(self):
        step = Step("cql", "SELECT k FROM t WHERE s = 1 LIMIT 2 ALLOW FILTERING", page_size=1)
        whole = [rows(b"1", b"2", b"3")]

        def ask(asked):
            return (whole, whole) if "LIMIT" not in asked.cql else ([rows(b"3")], [rows(b"1", b"2")])
        for ours, name in ((rows(b"1", b"2"), "pages of a filter"), (rows(b"1"), None), (rows(), None), (rows(b"2", b"3"), None)):
            self.assertEqual(explanation(ask, step, [rows(b"3")], [ours]), name)

    def test_documents_are_the_same_without_a_limit(self):
        step = Step("cql", "SELECT JSON * FROM t WHERE p IN (1, 2) ORDER BY k LIMIT 1")
        whole = [rows(b"a", b"b")]
        self.explains("JSON * in order", step, [rows(b"b")], [rows(b"a")], [rows(b"b", b"a")], whole)
        self.explains(None, step, [rows(b"a")], [rows(b"b")], whole, whole)
        self.explains(None, step, [rows(b"b")], [rows(b"a")], [rows(b"b", b"c")], whole)
        self.explains(None, step, [rows(b"c")], [rows(b"a")], whole, whole)

    def test_ranges_are_others_only_behind_a_value_that_is_there_twice(self):
        cql = "SELECT * FROM t WHERE p = 1 AND k0 IN ({}) AND (k1, k2) >= (1, 2) AND (k1) <= (7)"
        some, more, name = [rows(b"1")], [rows(b"1", b"2")], "repeated IN values before a range"
        for items, values in (("0, 0", []), ("?, ?", ["00", "00"]), ("from_json('0'), 0", [])):
            step = Step("cql", cql.format(items), values)
            self.explains(name, step, some, more, more, more)
            self.explains(None, step, some, more, some, more)
            self.explains(None, step, more, some, more, more)
        self.explains(None, Step("cql", cql.format("?, ?"), ["00", "01"]), some, more, some, more)
        self.explains(None, Step("cql", "SELECT * FROM t WHERE p = 1 AND k0 IN (0, 0) AND k1 > 2"), some, more, some, more)

    def test_each_value_is_asked_for_once(self):
        asked = without_repeats(Step("cql", "SELECT * FROM t WHERE p IN (?, 1, ?) AND k IN ('a', from_json('\"a\"')) AND (j) IN ?",
                                     ["00", "00", "00000002" "0000000161" "0000000161"]))
        self.assertEqual(asked.cql, "SELECT * FROM t WHERE p IN (?, 1) AND k IN ('a') AND (j) IN ?")
        self.assertEqual(asked.values, ["00", "00000001" "0000000161"])

    def test_rows_for_a_key_that_is_not_shown(self):
        def three(kind, *cells):
            return [Rows(Metadata([("ks", "t", "m[?]", "int"), ("ks", "t", "m", kind), ("ks", "t", "k", "int")]), list(cells))]
        without, with_key, theirs, ours = (None, b"m", b"1"), (b"x", b"m", b"2"), [rows(b"1", b"2")], [rows(b"2")]
        for kind, operator in (("map<int, int>", "CONTAINS KEY"), ("set<int>", "CONTAINS")):
            step = Step("cql", f"SELECT k FROM t WHERE m {operator} ? ALLOW FILTERING", ["00"], prepared=True)
            again = Servers(then=(three(kind, without, with_key), three(kind, with_key)))
            self.assertEqual(explanation(again, step, theirs, ours), "keys of deleted elements")
            self.assertEqual(again.asked[-1].cql, f"SELECT m[?], m, k FROM t WHERE m {operator} ? ALLOW FILTERING")
            self.assertEqual(again.asked[-1].values, ["00", "00"])
            for then in ((three(kind, (b"y", b"m", b"1"), with_key), three(kind, with_key)),
                         (three(kind, without, with_key), three(kind, (b"x", b"m", b"3")))):
                self.assertIsNone(explanation(Servers(then=then), step, theirs, ours))
            self.assertIsNone(explanation(again, step, theirs, [rows(b"1")]))

    def test_a_value_of_a_map_is_no_key(self):
        def three(*cells):
            columns = [("ks", "t", "m[1]", "int"), ("ks", "t", "m", "map<int, int>"), ("ks", "t", "k", "int")]
            return [Rows(Metadata(columns), list(cells))]
        step, again = Step("cql", "SELECT k FROM t WHERE m CONTAINS 1 ALLOW FILTERING"), Servers(then=(three((None, b"m", b"1")), three()))
        self.assertIsNone(explanation(again, step, [rows(b"1")], [rows()]))

    def test_all_columns_are_those_of_the_statement_where_its_rows_say_none(self):
        step = Step("cql", "SELECT * FROM t WHERE m CONTAINS KEY 1 ALLOW FILTERING", prepared=True, skip_metadata=True)
        prepared = Prepared(b"id", None, [], [], Metadata([("ks", "t", "k", "int"), ("ks", "t", "m", "map<int, int>")]))
        some, none = [prepared, Rows(Metadata(None), [(b"1", None)])], [prepared, Rows(Metadata(None), [])]
        again = Servers(then=([Rows(Metadata([]), [(None, None, b"1", None)])], [Rows(Metadata([]), [])]))
        self.assertEqual(explanation(again, step, some, none), "keys of deleted elements")
        self.assertEqual(again.asked[-1].cql, 'SELECT m[1], m, "k", "m" FROM t WHERE m CONTAINS KEY 1 ALLOW FILTERING')

    def test_operators_are_ambiguous_beside_descending_keys_only(self):
        theirs = refused("Ambiguous '*' operation with args 1 and 5: use type hint to disambiguate, example '(int) ?'")
        step = Step("cql", "SELECT k FROM ks.t WHERE k0 = 1*5")
        self.explains("operators on DESC clustering columns", step, theirs, [rows()], [rows(b"k0")], [])
        self.explains(None, step, theirs, [rows()], [rows(b"k1")], [])
        self.explains(None, step, theirs, [rows()], [rows()], [])

    def test_fields_are_taken_for_columns_only_where_they_are_fields_of_descending_keys(self):
        step, theirs = Step("cql", "SELECT mask_replace(u, {street: 1}) FROM ks.t"), refused("Undefined column name street in table ks.t")
        self.explains("user-type fields and column names", step, theirs, [rows(b"1")], [rows(b"u")], [])
        self.explains(None, step, theirs, [rows(b"1")], [rows(b"v")], [])
        self.explains(None, step, theirs, refused("no"), [rows(b"u")], [])
        self.explains(None, step, refused("Undefined column name zip in table ks.t"), [rows(b"1")], [rows(b"u")], [])

    def test_collection_functions_are_refused_of_descending_keys_only(self):
        theirs = refused("Function system.collection_min requires a set or list argument, but found argument k0 of type frozen<list<int>>")
        step = Step("cql", "SELECT collection_min(k0) FROM ks.t")
        self.explains("collection functions of descending keys", step, theirs, [rows()], [rows(b"k0")], [])
        self.explains(None, step, theirs, [rows()], [rows(b"k1")], [])
        self.explains(None, step, theirs, refused("no"), [rows(b"k0")], [])

    def test_pages_behind_nothing_have_the_same_rows(self):
        step, ends, goes_on = Step("cql", "SELECT s FROM t WHERE k IN ()", page_size=1), rows(b"1"), rows(b"1", more=b"x")
        self.explains("pages behind IN ()", step, [ends], [goes_on, rows()], [ends], [ends])
        self.explains(None, step, [ends], [goes_on, rows(b"2")], [rows(b"1", b"2")], [rows(b"1", b"2")])
        self.explains(None, step, [ends], [goes_on, rows()], [rows(b"1", b"2")], [ends])
        self.explains(None, Step("cql", "SELECT s FROM t WHERE k IN (1)", page_size=1), [ends], [goes_on, rows()], [ends], [ends])

    def test_a_timeuuid_differs_in_the_name_of_its_type_only(self):
        step = Step("cql", "SELECT min(k) FROM t")
        theirs, ours = [typed(OLD_TIMEUUID_CLASS, b"1")], [typed("timeuuid", b"1")]
        self.explains("min and max of a timeuuid", step, theirs, ours)
        for other in (typed("uuid", b"1"), typed("timeuuid", b"2"), typed("timeuuid", b"1", name="x"), typed("timeuuid", b"1", warnings=["w"])):
            self.explains(None, step, theirs, [other])

    def test_a_boolean_key_may_be_any_byte_that_is_true(self):
        step = Step("cql", "SELECT k FROM ks.t")

        def one(byte, kind="boolean"):
            return [typed(kind, byte)]
        self.explains("equal boolean keys", step, one(b"a"), one(b"\1"), [rows(b"k")], [])
        self.explains(None, step, one(b"a"), one(b"\1"), [rows(b"p")], [])
        for theirs, ours in ((one(b"a"), one(b"\0")), (one(b"a"), one(None)), (one(b"a"), one(b"")), (one(b"a", "tinyint"), one(b"\1", "tinyint")),
                             ([typed("boolean", b"a", b"\1")], [typed("boolean", b"\1")])):
            self.explains(None, step, theirs, ours, [rows(b"k")], [])

    def test_a_key_of_a_type_that_grew_may_lack_trailing_nulls(self):
        name, step, kind = "equal keys of a type that grew", Step("cql", "SELECT k FROM ks.t"), "ks.u(a int, b int)"
        null, one = b"\xff" * 4, b"\0\0\0\4\0\0\0\1"
        self.explains(name, step, [typed(kind, one)], [typed(kind, one + null)], [rows(b"k")], [])
        self.explains(None, step, [typed(kind, one)], [typed(kind, one + null)], [rows(b"p")], [])

        def listed(value):
            return struct.pack(">ii", 1, len(value)) + value
        self.explains(name, step, [typed(f"set<{kind}>", listed(one))], [typed(f"set<{kind}>", listed(one + null))], [rows()], [])
        for theirs, ours in ((one, one + one), (one, null + one), (one, None), (one, b"")):
            self.explains(None, step, [typed(kind, theirs)], [typed(kind, ours)], [rows(b"k")], [])
        self.explains(None, step, [typed("tuple<int, int>", one)], [typed("tuple<int, int>", one + null)], [rows(b"k")], [])

    def test_both_refuse_hexadecimal_tuples_each_for_its_reason(self):
        name, ours = "hexadecimal tuples", refused("Not enough bytes to read size of 0th component")
        for theirs in ([Void()], refused("Cannot execute this query")):
            self.explains(name, Step("cql", "SELECT k FROM t WHERE k = 0xff"), theirs, ours)
        self.explains(None, Step("cql", "SELECT k FROM t WHERE k = 1"), refused("no"), ours)
        self.explains(None, Step("cql", "SELECT k FROM t WHERE k = 0xff"), [Void()], refused("no"))

    def test_a_paging_state_is_refused_before_an_error(self):
        step = Step("cql", "SELECT log(k) FROM t GROUP BY k", page_size=1)
        theirs, ours = [rows(b"1", more=b"x"), *refused("Invalid value for the paging state", 10)], [rows(b"1", more=b"x"), *refused("no log")]
        failed = refused("java.lang.ArithmeticException", 0)
        self.explains("paging state of GROUP BY", step, theirs, ours, failed, refused("no log"))
        self.explains(None, step, theirs, ours, failed, refused("another"))
        self.explains(None, step, theirs, ours, refused("another"), refused("no log"))


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
