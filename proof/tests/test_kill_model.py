"""The kill test's model must detect the faults that it is for."""

import unittest

from proof.kill.model import GrowingSet, Partition, Schema, Write
from proof.kill.steps import DELETED, Progress, Step


def partition(*acknowledged: Write, unanswered: tuple = ()) -> Partition:
    model = Partition("p")
    for write in acknowledged:
        model.sent(write)
        model.acknowledged(write.timestamp)
    for write in unanswered:
        model.sent(write)
    return model


ONE = Write(1, ((1, "a"), (2, "a")))
TWO = Write(2, ((1, "b"), (2, "b")))


class Rows(unittest.TestCase):
    def test_what_was_acknowledged_may_show(self):
        self.assertEqual(partition(ONE, TWO).check({1: "b", 2: "b"}), [])

    def test_a_lost_write_is_seen(self):
        self.assertTrue(partition(ONE, TWO).check({1: "a", 2: "a"}))
        self.assertTrue(partition(ONE).check({1: "a"}))

    def test_what_was_never_sent_is_seen(self):
        self.assertTrue(partition(ONE).check({1: "a", 2: "a", 3: "c"}))
        self.assertTrue(partition(ONE).check({1: "z", 2: "a"}))

    def test_an_unanswered_write_may_show_or_not(self):
        self.assertEqual(partition(ONE, unanswered=(TWO,)).check({1: "a", 2: "a"}), [])
        self.assertEqual(partition(ONE, unanswered=(TWO,)).check({1: "b", 2: "b"}), [])

    def test_half_of_an_unanswered_write_is_seen(self):
        self.assertTrue(partition(ONE, unanswered=(TWO,)).check({1: "b", 2: "a"}))

    def test_what_showed_once_has_to_stay(self):
        model = partition(ONE, unanswered=(TWO,))
        self.assertEqual(model.check({1: "b", 2: "b"}), [])
        self.assertTrue(model.check({1: "a", 2: "a"}))

    def test_a_deletion_that_is_lost_is_seen(self):
        delete = Write(3, ((1, None),))
        self.assertEqual(partition(ONE, delete).check({2: "a"}), [])
        self.assertTrue(partition(ONE, delete).check({1: "a", 2: "a"}))

    def test_what_a_drop_took_may_not_show_and_what_it_left_has_to(self):
        for seen, is_right in (({}, False), ({2: "b"}, True), ({1: "a", 2: "b"}, False)):
            model = partition(Write(1, ((1, "a"),)), Write(2, ((2, "b"),)))
            model.forget_until(1)
            self.assertEqual(model.check(seen) == [], is_right)

    def test_a_refused_write_may_not_show(self):
        model = partition(ONE, unanswered=(TWO,))
        model.refused(TWO.timestamp)
        self.assertTrue(model.check({1: "b", 2: "b"}))


class Sets(unittest.TestCase):
    def test_lost_and_invented_elements_are_seen(self):
        self.assertEqual(GrowingSet("s", {1, 2}, {3}).check({1, 2, 3}), [])
        self.assertEqual(GrowingSet("s", {1, 2}, {3}).check({1, 2}), [])
        self.assertTrue(GrowingSet("s", {1, 2}, {3}).check({1, 3}))
        self.assertTrue(GrowingSet("s", {1, 2}, {3}).check({1, 2, 4}))


class Names(unittest.TestCase):
    def test_lost_and_risen_tables_are_seen(self):
        self.assertEqual(Schema("table", {"a"}, "b").check({"a", "b"}), [])
        self.assertTrue(Schema("table", {"a"}).check(set()))
        self.assertTrue(Schema("table", {"a"}).check({"a", "b"}))


class Steps(unittest.TestCase):
    def progress(self, held: dict, changes: dict, applies: bool | None = None) -> Progress:
        progress = Progress("p", dict(held))
        progress.sent(Step("", changes, applies))
        return progress

    def test_a_step_without_answer_may_show_or_not_in_each_partition(self):
        a, b = ("counts", 1, 1), ("counts", 2, 1)
        for seen in ({a: 1}, {a: 2}, {a: 1, b: 1}, {a: 2, b: 1}):
            self.assertEqual(self.progress({a: 1}, {a: 2, b: 1}).check(seen), [])
        for seen in ({}, {a: 3}, {a: 1, b: 2}):
            self.assertTrue(self.progress({a: 1}, {a: 2, b: 1}).check(seen))

    def test_half_of_a_partition_is_seen(self):
        a, b = ("registry", 1, 1), ("registry", 1, 2)
        self.assertTrue(self.progress({}, {a: 1, b: 1}, True).check({a: 1}))
        self.assertEqual(self.progress({}, {a: 1, b: 1}, True).check({a: 1, b: 1}), [])

    def test_a_step_whose_conditions_do_not_hold_changes_nothing(self):
        a = ("registry", 1, 1)
        self.assertTrue(self.progress({a: 1}, {a: 2}, False).check({a: 2}))

    def test_a_deletion_of_a_deleted_counter_is_sent_again(self):
        a = ("counts", 1, 1)
        progress = self.progress({a: DELETED}, {a: None})
        self.assertEqual(progress.check({}), [])
        self.assertIsNotNone(progress.unanswered)
        progress.acknowledged()
        self.assertEqual(progress.truth, {})

    def test_what_showed_once_has_to_stay(self):
        a = ("pairs", 1, 1)
        progress = self.progress({a: 1}, {a: 2})
        self.assertEqual(progress.check({a: 2}), [])
        self.assertTrue(progress.check({a: 1}))
