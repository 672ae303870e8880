"""The checker of histories must find the faults that it is for, and must accept what has an order."""

import itertools
import unittest
from dataclasses import replace
from random import Random

from proof.linearizability import partition
from proof.linearizability.checker import Facts, Operation, check
from proof.linearizability.partition import Answer, Append, Batch, Delete, DeleteValue, Insert, Read, Set, SetStatic


def register(state, request, answer):
    """One register: ("read",) -> its value; ("set", new, expected) -> whether it applied."""
    kind, *values = request
    if kind == "read":
        return state if answer in (None, ("value", state)) else None
    new, expected = values
    applies = expected == state
    return None if answer not in (None, applies) else new if applies else state


def read(client, call, returned, value):
    return Operation(client, call, returned, ("read",), ("value", value))


def swap(client, call, returned, new, expected, applied):
    return Operation(client, call, returned, ("set", new, expected), applied)


def is_right(*operations) -> bool:
    return check(list(operations), "empty", register) is None


class Known(unittest.TestCase):
    def test_one_after_another(self):
        self.assertTrue(is_right(swap(1, 0, 1, "a", "empty", True), read(2, 2, 3, "a"), swap(1, 4, 5, "b", "a", True), read(2, 6, 7, "b")))

    def test_concurrent_operations_have_any_order(self):
        for seen in ("empty", "a"):
            self.assertTrue(is_right(swap(1, 0, 5, "a", "empty", True), read(2, 1, 4, seen)))

    def test_two_readers_need_one_order(self):
        write = swap(1, 0, 9, "a", "empty", True)
        self.assertTrue(is_right(write, read(2, 1, 2, "empty"), read(3, 3, 4, "a")))
        self.assertFalse(is_right(write, read(2, 1, 2, "a"), read(3, 3, 4, "empty")))

    def test_a_lost_update(self):
        self.assertFalse(is_right(swap(1, 0, 5, "a", "empty", True), swap(2, 1, 6, "b", "empty", True)))

    def test_a_lost_write(self):
        self.assertFalse(is_right(swap(1, 0, 1, "a", "empty", True), read(2, 2, 3, "empty")))

    def test_a_stale_read(self):
        writes = swap(1, 0, 1, "a", "empty", True), swap(1, 2, 3, "b", "a", True)
        self.assertTrue(is_right(*writes, read(2, 2, 5, "a")))
        self.assertFalse(is_right(*writes, read(2, 4, 5, "a")))

    def test_a_value_that_was_never_written(self):
        self.assertFalse(is_right(swap(1, 0, 1, "a", "empty", True), read(2, 2, 3, "z")))

    def test_a_refusal_without_a_reason(self):
        self.assertFalse(is_right(swap(1, 0, 1, "a", "empty", False)))
        self.assertTrue(is_right(swap(1, 0, 3, "a", "empty", False), swap(2, 1, 2, "b", "empty", True)))

    def test_a_write_that_was_refused_and_shows(self):
        self.assertFalse(is_right(swap(1, 0, 1, "a", "b", False), read(2, 2, 3, "a")))

    def test_a_write_that_applied_twice(self):
        self.assertFalse(is_right(swap(1, 0, 1, "a", "empty", True), swap(1, 2, 3, "empty", "a", True), read(2, 4, 5, "empty"),
                                  read(2, 6, 7, "a")))


class Unknown(unittest.TestCase):
    """An operation without an answer took effect before its end, or never."""

    def test_it_may_never_show(self):
        self.assertTrue(is_right(swap(1, 0, 1, "a", "empty", None), read(2, 2, 3, "empty")))

    def test_it_may_show(self):
        self.assertTrue(is_right(swap(1, 0, 1, "a", "empty", None), read(2, 2, 3, "a")))

    def test_it_shows_late_only_if_it_has_no_end(self):
        reads = read(2, 2, 3, "empty"), read(2, 4, 5, "a")
        self.assertTrue(is_right(swap(1, 0, None, "a", "empty", None), *reads))
        self.assertTrue(is_right(swap(1, 0, 4, "a", "empty", None), *reads))
        self.assertFalse(is_right(swap(1, 0, 1, "a", "empty", None), *reads))

    def test_it_does_not_show_before_its_call(self):
        self.assertFalse(is_right(read(2, 0, 1, "a"), swap(1, 2, None, "a", "empty", None)))

    def test_it_takes_effect_once(self):
        again = read(2, 2, 3, "a"), swap(2, 4, 5, "empty", "a", True), read(2, 6, 7, "empty")
        self.assertTrue(is_right(swap(1, 0, None, "a", "empty", None), *again))
        self.assertFalse(is_right(swap(1, 0, None, "a", "empty", None), *again, read(2, 8, 9, "a")))

    def test_what_showed_stays(self):
        self.assertFalse(is_right(swap(1, 0, None, "a", "empty", None), read(2, 2, 3, "a"), read(2, 4, 5, "empty")))

    def test_the_choice_between_several_is_undone(self):
        unknown = [swap(client, 0, None, value, expected, None)
                   for client, (value, expected) in enumerate((("a", "empty"), ("b", "empty"), ("c", "b"), ("d", "c")))]
        self.assertTrue(is_right(*unknown, read(9, 1, 2, "d")))
        self.assertTrue(is_right(*unknown, read(9, 1, 2, "a")))
        self.assertFalse(is_right(*unknown, read(9, 1, 2, "a"), read(9, 3, 4, "d")))


class OfAPartition(unittest.TestCase):
    """The model of what conditional writes do to a partition."""

    FULL = (7, ((1, (10, 11)), (2, ())))

    def after(self, request, *shown: dict, state=FULL, applied: bool = False):
        return partition.step(state, request, Answer(applied, tuple(tuple(row.items()) for row in shown)))

    def test_a_write_applies_if_its_condition_holds_and_only_then(self):
        self.assertEqual(self.after(Set(0, 3, 1), applied=True), (7, ((3, (10, 11)), (2, ()))))
        self.assertIsNone(self.after(Set(0, 3, 2), applied=True))
        self.assertIsNone(self.after(Set(0, 3, 1), {"v": 1}))
        self.assertEqual(self.after(Delete(0), applied=True), (7, (partition.ABSENT, (2, ()))))
        self.assertIsNone(self.after(Insert(0, 3), applied=True))
        self.assertEqual(self.after(Insert(0, 3), state=partition.EMPTY, applied=True), (None, ((3, ()), partition.ABSENT)))

    def test_a_refusal_shows_the_values_of_that_moment(self):
        self.assertEqual(self.after(Set(0, 3, 2), {"v": 1}), self.FULL)
        self.assertIsNone(self.after(Set(0, 3, 2), {"v": 2}))
        self.assertEqual(self.after(Insert(0, 3), {"c": 0, "s": None, "v": 1, "l": (10, 11)}), self.FULL)
        self.assertIsNone(self.after(Insert(0, 3), {"c": 0, "s": None, "v": 1, "l": (10,)}))
        self.assertIsNone(self.after(SetStatic(8, 6), {"s": 6}))

    def test_the_conditions_of_a_batch_see_the_state_before_it(self):
        batch = Batch((Set(0, 2, 1), Append(1, 5, 2), SetStatic(9, 7)))
        self.assertEqual(self.after(batch, applied=True), (9, ((2, (10, 11)), (2, (5,)))))
        self.assertIsNone(self.after(Batch((Set(0, 3, 1), Set(0, 4, 3))), applied=True))
        self.assertEqual(self.after(Batch((DeleteValue(0, 1), Insert(1, 3))), {"c": 0, "v": 1}, {"c": 1, "v": 2}), self.FULL)
        self.assertIsNone(self.after(Batch((DeleteValue(0, 1), Insert(1, 3))), {"c": 0, "v": 1}, {"c": 1, "v": 1}))

    def test_a_read_shows_all_rows_of_one_moment(self):
        rows = {"c": 0, "s": 7, "v": 1, "l": (10, 11)}, {"c": 1, "s": 7, "v": 2, "l": ()}
        self.assertEqual(self.after(Read(True), *rows), self.FULL)
        self.assertIsNone(self.after(Read(True), rows[0]))
        self.assertIsNone(self.after(Read(True), rows[0], rows[1] | {"v": 1}))
        self.assertEqual(self.after(Read(True), {"c": None, "s": 7, "v": None, "l": ()}, state=(7, partition.EMPTY[1])), (7, partition.EMPTY[1]))

    def test_without_an_answer_it_is_what_the_condition_says(self):
        self.assertEqual(partition.step(self.FULL, Set(0, 3, 1), None), (7, ((3, (10, 11)), (2, ()))))
        self.assertEqual(partition.step(self.FULL, Set(0, 3, 2), None), self.FULL)


class AgainstAllOrders(unittest.TestCase):
    """Short random histories, half of them with one answer changed, get the verdict that all orders give."""

    def verdicts(self, is_unique: bool, facts: Facts) -> None:
        verdicts = {True: 0, False: 0}
        for seed in range(1500):
            operations = random_history(Random(seed), is_unique)
            expected = has_order(operations)
            verdicts[expected] += 1
            self.assertEqual(check(operations, 0, register, facts) is None, expected, (seed, operations))
        self.assertGreater(min(verdicts.values()), 350)

    def test_random_histories(self):
        self.verdicts(False, Facts())

    def test_random_histories_of_different_values(self):
        self.verdicts(True, Facts())
        self.verdicts(True, OfARegister())

    def test_a_long_history_is_decided(self):
        operations = real_history(Random(1), 5_000, 8)
        self.assertIsNone(check(operations, 0, register))
        at = next(at for at in range(4_000, 5_000) if operations[at].answer and operations[at].request == ("read",))
        operations[at] = replace(operations[at], answer=("value", -1))
        self.assertIsNotNone(check(operations, 0, register))


class OfARegister(Facts):
    def of(self, state):
        return frozenset([state])

    def needed(self, request, answer):
        return [answer[1]] if request == ("read",) else [request[2]] if answer else []


def random_history(rng: Random, is_unique: bool) -> list[Operation]:
    operations = real_history(rng, rng.randint(2, 5), 3, unknown=0.25, is_unique=is_unique)
    if rng.random() < 0.6:
        at = rng.randrange(len(operations))
        answers = [("value", rng.choice((0, 10, 20, 30)) if is_unique else rng.randint(0, 3))] if operations[at].request == ("read",) else [True, False]
        operations[at] = replace(operations[at], answer=rng.choice(answers))
        if operations[at].returned is None:
            operations[at] = replace(operations[at], returned=operations[at].call + 1)
    return operations


def real_history(rng: Random, count: int, clients: int, unknown: float = 0.001, is_unique: bool = False) -> list[Operation]:
    """A history of a real register, with few values so that orders are ambiguous, or
    with a new value for each write."""
    free, state, operations = [0] * clients, 0, []
    for moment in range(10, 10 * (count + 1), 10):
        client = min(range(clients), key=lambda client: free[client])
        call, returned = max(free[client], moment - rng.randint(1, 10 * clients)) + 1, moment + rng.randint(0, 10 * clients)
        if call > moment:
            call = moment
        request = ("read",) if rng.random() < 0.4 else ("set", moment if is_unique else rng.randint(0, 3),
                                                                rng.choice((state, rng.randint(0, 3))))
        answer = ("value", state) if request == ("read",) else request[2] == state
        if rng.random() < unknown:
            answer, returned = None, rng.choice((returned, None))
            if rng.random() < 0.5:
                state = register(state, request, None)
        else:
            state = register(state, request, answer)
        free[client] = moment + 10 * clients if returned is None else returned + 1
        operations.append(Operation(client, call, returned, request, answer))
    return operations


def has_order(operations: list[Operation]) -> bool:
    """Tries every subset of the unknown operations and every order."""
    known = [operation for operation in operations if operation.answer is not None]
    unknown = [operation for operation in operations if operation.answer is None]
    return any(is_order(order) for size in range(len(unknown) + 1) for some in itertools.combinations(unknown, size)
               for order in itertools.permutations([*known, *some]))


def is_order(order: tuple[Operation, ...]) -> bool:
    if any(later.returned is not None and later.returned < earlier.call for earlier, later in itertools.combinations(order, 2)):
        return False
    state = 0
    for operation in order:
        state = register(state, operation.request, operation.answer)
        if state is None:
            return False
    return True
