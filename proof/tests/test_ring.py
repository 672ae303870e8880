"""The proof of a ring must detect the faults that it is for."""

import unittest
from types import SimpleNamespace

from proof.ring.load import Writer, integer
from proof.ring.nodes import differences

ALL = "127.0.0.1,127.0.0.2,127.0.0.3"
EQUAL = {"7": (ALL, ["live", "row a", "row b"])}


def found(*dumps: dict) -> dict[str, str]:
    nodes = [SimpleNamespace(host=f"127.0.0.{number}", dump=lambda keyspace, table, dump=dump: dump)
             for number, dump in enumerate(dumps, 1)]
    return differences(SimpleNamespace(nodes=nodes), "k", "t")


class Replicas(unittest.TestCase):
    def test_equal_replicas_are_equal(self):
        self.assertEqual(found(EQUAL, EQUAL, EQUAL), {})

    def test_a_partition_that_a_replica_lacks_is_seen(self):
        for dumps in ((EQUAL, EQUAL, {}), ({}, EQUAL, EQUAL)):
            self.assertTrue(found(*dumps))

    def test_a_row_that_a_replica_lacks_or_has_differently_is_seen(self):
        self.assertTrue(found(EQUAL, {"7": (ALL, ["live", "row a"])}, EQUAL))
        self.assertTrue(found(EQUAL, EQUAL, {"7": (ALL, ["live", "row a", "row b", "row b"])}))
        self.assertTrue(found({"7": (ALL, ["deleted", "row a", "row b"])}, EQUAL, EQUAL))

    def test_what_a_node_that_is_no_replica_has_does_not_count(self):
        two = {"7": ("127.0.0.1,127.0.0.2", ["live"])}
        self.assertEqual(found(two, two, {}), {})
        self.assertEqual(found(two, two, {"7": ("127.0.0.1,127.0.0.2", ["old"])}), {})

    def test_nodes_that_disagree_about_the_replicas_are_seen(self):
        self.assertTrue(found(EQUAL, EQUAL, {"7": ("127.0.0.1,127.0.0.2", ["live", "row a", "row b"])}))


class RowsOfALoad(unittest.TestCase):
    def setUp(self):
        self.writer = Writer(SimpleNamespace(table="k.t"), 0)
        # Version 5 was acknowledged, 6 was sent then. Row 1 was deleted.
        self.writer.possible = {(3, 0): [5, 6], (3, 1): [None]}

    def wrong(self, rows: dict[int, int]) -> list[str]:
        return self.writer.wrong(3, [(integer(row), integer(version)) for row, version in rows.items()])

    def test_what_was_acknowledged_or_sent_later_may_be(self):
        self.assertEqual(self.wrong({0: 5}), [])
        self.assertEqual(self.wrong({0: 6}), [])

    def test_a_lost_write_is_seen(self):
        self.assertTrue(self.wrong({}))
        self.assertTrue(self.wrong({0: 4}))

    def test_a_deleted_row_that_comes_back_is_seen(self):
        self.assertTrue(self.wrong({0: 5, 1: 2}))

    def test_a_row_that_was_never_sent_is_seen(self):
        self.assertTrue(self.wrong({0: 5, 2: 1}))
