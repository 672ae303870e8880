"""Decides whether a history is linearizable: Wing and Gong's search with Lowe's memory, as in Porcupine.

A history has the calls and returns of operations on one object. It is linearizable if every operation can take effect
at one moment between its call and its return, so that a sequential object gives all the answers that were seen. The
calls and returns that have no place in the order yet are a linked list in the order of time. The next operation of the
order is one whose call comes before the first return of that list. Each choice takes an operation out of the list; when
none is left, the last choice is undone. A set of operations that led to a state before is not tried again.

An operation without an answer took effect at a moment between its call and its return, or never. Its return
is the moment from which it can no longer take effect, as the death of the process that had it; None means
that there is no such moment.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# A history without an order may have a great many orders to try.
CONFIGURATIONS_MAX = 3_000_000
SHOWN_BEFORE, SHOWN_AFTER = 12, 24


@dataclass(frozen=True)
class Operation:
    client: int
    call: int                           # a time in nanoseconds
    returned: int | None
    request: Any
    answer: Any = None                  # None: unknown

    def __str__(self) -> str:
        end = "never" if self.returned is None else f"{self.returned / 1e6:.3f}"
        return f"client {self.client} {self.call / 1e6:.3f}..{end} ms: {self.request} -> {self.answer or 'unknown'}"


# (state, request, answer) -> the state after it, or None if the object in that state does not give that answer. Without
# an answer: the state after it, whatever it answers.
Step = Callable[[Hashable, Any, Any], Hashable]


class Facts:
    """The facts that are true in a state of an object whose values are all different, and the facts that an answer
    requires. A fact that has ceased to be true never becomes true again, so an operation that requires it must come
    before. Without facts, more orders are tried."""

    def of(self, state: Hashable) -> frozenset:
        return frozenset()

    def needed(self, request: Any, answer: Any) -> Iterable[Hashable]:
        return ()


class Needs:
    """The number of operations that need each fact and have no place in the order yet."""

    def __init__(self, facts: Facts, operations: list[Operation]):
        self.facts = facts
        self.open: Counter[Hashable] = Counter()
        for operation in operations:
            self.add(operation, 1)

    def add(self, operation: Operation, count: int) -> None:
        if operation.answer is not None:
            for fact in self.facts.needed(operation.request, operation.answer):
                self.open[fact] += count

    def allow(self, operation: Operation, before: Hashable, after: Hashable) -> bool:
        """Returns whether no other operation needs a fact that ends with this one."""
        if before == after:
            return True
        own = Counter(self.facts.needed(operation.request, operation.answer)) if operation.answer is not None else {}
        return all(self.open[fact] == own.get(fact, 0) for fact in self.facts.of(before) - self.facts.of(after))


@dataclass
class Failure:
    reason: str
    length: int                         # of the longest order that was found
    order: list[Operation]              # the end of it
    state: Hashable                     # after it
    left: list[Operation]               # the operations of which none can be the next one

    def __str__(self) -> str:
        before = "\n".join(f"    {operation}" for operation in self.order)
        after = "\n".join(f"    {operation}" for operation in self.left)
        return (f"{self.reason}; the longest order has {self.length} operations:\n{before}\n"
                f"  state {self.state}\n  none of these fits:\n{after}")


class Entry:
    """The call or the return of an operation, in the linked list."""

    __slots__ = ("operation", "number", "is_call", "partner", "before", "after")

    def __init__(self, operation: Operation | None, number: int, is_call: bool):
        self.operation, self.number, self.is_call = operation, number, is_call
        self.partner = self.before = self.after = None

    def unlink(self) -> None:
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def relink(self) -> None:
        self.before.after = self
        if self.after is not None:
            self.after.before = self


@dataclass
class Choice:
    """One operation of the order, and what was there before it."""

    entry: Entry
    state: Hashable
    first: int
    later: int
    others: Iterator[tuple[Entry, Hashable]]


def linked(operations: list[Operation]) -> Entry:
    """The calls and returns in the order of time; of one time, the calls come first, so that they are concurrent."""
    events = []
    for number, operation in enumerate(sorted(operations, key=lambda operation: operation.call)):
        call, end = Entry(operation, number, True), Entry(operation, number, False)
        call.partner, end.partner = end, call
        at = float("inf") if operation.returned is None else operation.returned
        events += [(operation.call, 0, number, call), (at, 1, number, end)]
    events.sort(key=lambda event: event[:3])
    head = last = Entry(None, -1, False)
    for *_, entry in events:
        entry.before, last.after = last, entry
        last = entry
    return head


def candidates(head: Entry, state: Hashable, step: Step) -> Iterator[tuple[Entry, Hashable]]:
    """The operations that may be the next ones of the order, with the state after each; the most probable ones first.

    One that fits and does not change the state comes next without an alternative, because no order becomes possible
    by moving it to a later place."""
    known, unknown = [], []
    entry = head.after
    while entry is not None and entry.is_call:
        operation = entry.operation
        if operation.answer is None:
            unknown.append(entry)
        elif (after := step(state, operation.request, operation.answer)) is not None:
            if after == state:
                yield entry, after
                return
            known.append((entry, after))
        entry = entry.after
    yield from known
    for call in unknown:
        after = step(state, call.operation.request, None)
        if after != state:
            yield call, after
    if entry is not None and entry.operation.answer is None:
        yield entry.partner, state          # it never took effect


def with_number(first: int, later: int, number: int) -> tuple[int, int]:
    """Adds a number to a set, which has all numbers below `first`, and those above it whose bit is set in `later`."""
    later |= 1 << (number - first)
    while later & 1:
        first, later = first + 1, later >> 1
    return first, later


def check(operations: list[Operation], initial: Hashable, step: Step, facts: Facts = Facts()) -> Failure | None:
    """Returns None if the history is linearizable."""
    head, needs = linked(operations), Needs(facts, operations)
    tried: set[tuple] = set()
    order: list[Choice] = []
    longest = Failure("no order explains the answers", 0, [], initial, first_calls(head))
    state, first, later = initial, 0, 0
    others = candidates(head, state, step)
    while head.after is not None:
        for entry, after in others:
            numbers = with_number(first, later, entry.number)
            if (*numbers, after) not in tried and needs.allow(entry.operation, state, after):
                break
        else:
            if len(order) > longest.length:
                end = [choice.entry.operation for choice in order[-SHOWN_BEFORE:]]
                longest = Failure(longest.reason, len(order), end, state, first_calls(head))
            if not order:
                return longest
            last = order.pop()
            last.entry.partner.relink()
            last.entry.relink()
            needs.add(last.entry.operation, 1)
            state, first, later, others = last.state, last.first, last.later, last.others
            continue
        tried.add((*numbers, after))
        order.append(Choice(entry, state, first, later, others))
        entry.unlink()
        entry.partner.unlink()
        needs.add(entry.operation, -1)
        state, (first, later) = after, numbers
        others = candidates(head, state, step)
        if len(tried) > CONFIGURATIONS_MAX:
            longest.reason = f"undecided after {CONFIGURATIONS_MAX} configurations"
            return longest
    return None


def first_calls(head: Entry) -> list[Operation]:
    calls, entry = [], head.after
    while entry is not None and len(calls) < SHOWN_AFTER:
        if entry.is_call:
            calls.append(entry.operation)
        elif entry.operation.answer is not None:
            break
        entry = entry.after
    return calls
