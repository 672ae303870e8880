"""The data of a node before and after are compared table by table."""

import unittest

from proof.survival import differences


class Differences(unittest.TestCase):
    def test_what_is_the_same_differs_in_nothing(self):
        self.assertEqual(differences({"a": [(b"1",)], "b": "refused"}, {"b": "refused", "a": [(b"1",)]}), [])

    def test_rows_that_are_gone_new_or_in_another_order_are_told(self):
        self.assertIn("gone [(b'2',)]", differences({"a": [(b"1",), (b"2",)]}, {"a": [(b"1",)]})[0])
        self.assertIn("new [(b'2',)]", differences({"a": []}, {"a": [(b"2",)]})[0])
        self.assertIn("in another order", differences({"a": [(b"1",), (b"2",)]}, {"a": [(b"2",), (b"1",)]})[0])

    def test_a_table_that_is_gone_or_refused_is_told(self):
        self.assertEqual(len(differences({"a": [(b"1",)], "b": []}, {"a": "Keyspace does not exist"})), 2)
        self.assertEqual(len(differences({"a": [(b"1",)]}, {})), 1)


if __name__ == "__main__":
    unittest.main()
