"""Confirms intended differences by sending a read to both servers again, in another form: without pages, for example.
Espalier must repeat its answer, and Cassandra must confirm it.

Each rule of explained.py that the answers alone do not prove has its check here; some checks look at Cassandra's schema
instead. The rules of `WHOLE` exist only here. Only reads are sent again, so the data do not change.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from proof.differential.answers import comparable, rows_of
from proof.differential.explained import (COLLECTION_FUNCTIONS, DOCUMENTS, EQUAL_KEYS, FIELDS, GROWN_KEYS, INTERNAL_ERRORS, OPERATORS,
                                          PAGING_STATE, PREPARED_AFTER_ALTER, differing_columns, is_failure, renamed, suspicions)
from proof.differential.repeats import repeats_before_a_range, without_repeats
from proof.differential.steps import Step
from proof.wire.responses import Lost, Prepared, Response, Rows

Answers = list[Response]
Ask = Callable[[Step], tuple[Answers, Answers]]     # of Cassandra and of Espalier

GROUP_PAGES = "pages of GROUP BY"
PAGES_BEHIND_NOTHING = "pages behind IN ()"
PAGES_OF_A_FILTER = "pages of a filter"
REPEATED_VALUES = "repeated IN values before a range"
DELETED_KEYS = "keys of deleted elements"

LIMIT = re.compile(r"(?<!PARTITION )LIMIT (\d+)(?: |$)")
AGGREGATE = re.compile(r"\b(?:count|min|max|sum|avg)\(", re.IGNORECASE)


def explanation(ask: Ask, step: Step, left: Answers, right: Answers) -> str | None:
    """The rule that explains why Cassandra answered `left` and Espalier `right`, or None."""
    if any(isinstance(answer, Lost) for answer in (*left, *right)):
        return None
    suspected = suspicions(step, left, right)
    if suspected:
        return suspected[0] if all(PROOFS.get(name, answers_suffice)(ask, step, left, right) for name in suspected) else None
    if not is_read(step):
        return None
    return next((name for name, explains in WHOLE.items() if explains(ask, step, left, right)), None)


def is_read(step: Step) -> bool:
    return step.kind == "cql" and step.cql.lstrip().upper().startswith("SELECT")


def answers_suffice(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """The answers alone are proof."""
    return True


def agree(step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether both servers give the same answer, apart from differences that the answers alone prove to be
    intended."""
    names = suspicions(step, left, right)
    alike = [comparable(answer) for answer in left] == [comparable(answer) for answer in right]
    return alike or bool(names) and not set(names) & set(PROOFS)


def unpaged(step: Step) -> Step:
    """Returns the read without pages, to be prepared again."""
    return replace(step, page_size=None, reuse=False)


def repeats_answer(ours: Answers, before: Answers) -> bool:
    """Returns whether our answers repeat the earlier ones: the same rows, or the same error at the end."""
    return rows_of(ours) == rows_of(before) if are_rows(before) else ends(ours) == ends(before)


def is_confirmed_unpaged(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether both servers give our earlier answer when they are asked without pages. If that was an error,
    Cassandra may fail with an internal error instead."""
    theirs, ours = ask(unpaged(step))
    return repeats_answer(ours, right) and (agree(step, theirs, ours) or is_failure(theirs[-1]) and not are_rows(ours))


def is_confirmed_until_error(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether Cassandra confirms our rows without pages. If it fails with an internal error then, the pages
    that it gave at first must be the beginning of our rows."""
    if is_confirmed_unpaged(ask, step, left, right):
        return True
    theirs, ours = ask(unpaged(step))
    begun = rows_of(left)
    return is_failure(theirs[-1]) and repeats_answer(ours, right) and bool(begun) and rows_of(right)[:len(begun)] == begun


def is_confirmed_reprepared(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether we repeat our answer after both servers have prepared the statement again, and Cassandra gives
    the same one then, or one that a rule explains."""
    again = replace(step, reuse=False)
    theirs, ours = ask(again)
    if rows_of(ours) != rows_of(right) or ends(ours) != ends(right):
        return False
    return agree(again, theirs, ours) or explanation(ask, again, theirs, ours) is not None


def ends(answers: Answers) -> dict:
    """Returns the last answer, without the parts that depend on how the statement was sent."""
    return {key: value for key, value in comparable(answers[-1]).items() if key not in ("columns", "changed")}


def fails_again_too(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether Cassandra fails again, or confirms our answer, without pages or with them (some statements cannot
    have pages). A write is not sent again."""
    return not is_read(step) or any(fails_again(ask, again, right) for again in (unpaged(step), replace(step, reuse=False)))


def fails_again(ask: Ask, again: Step, right: Answers) -> bool:
    theirs, ours = ask(again)
    return repeats_answer(ours, right) and (is_failure(theirs[-1]) or agree(again, theirs, ours))


def are_rows(answers: Answers) -> bool:
    return all(isinstance(answer, Rows | Prepared) for answer in answers)


COLUMNS = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{}' AND table_name = '{}' AND {} ALLOW FILTERING"
TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE) (\w+)\.(\w+)\b")


def names_descending_key(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether the statement names a clustering column whose order is DESC."""
    said = " ".join([step.cql, *(cql for cql, _ in step.items)])
    return any(re.search(rf"\b{re.escape(name)}\b", said) for name in columns_that(ask, said, "clustering_order = 'desc'"))


def columns_that(ask: Ask, said: str, condition: str) -> set[str]:
    """Returns the columns of the named tables that meet a condition in Cassandra's schema."""
    asked = [ask(Step("cql", COLUMNS.format(*table, condition)))[0] for table in sorted(set(TABLE.findall(said)))]
    return {name.decode() for answers in asked for name, in rows_of(answers)}


def are_clustering_columns(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether only clustering columns differ."""
    keys = columns_that(ask, step.cql, "kind = 'clustering'")
    return all(name in keys for pair in zip(left, right) if isinstance(pair[0], Rows) for name in differing_columns(*pair))


def are_keys(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether only clustering columns, maps and sets differ."""
    keys = columns_that(ask, step.cql, "kind = 'clustering'")
    collections = {name for _, _, name, kind in columns_of(left) if kind.startswith(("map<", "set<"))}
    return all(name in keys | collections for pair in zip(left, right) if isinstance(pair[0], Rows) for name in differing_columns(*pair))


def documents_are_the_same_without_limit(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether all documents are the same without LIMIT, and ours are the first ones in the right order."""
    if "LIMIT" not in step.cql:
        return True
    found = LIMIT.search(step.cql)
    if found is None:
        return False
    theirs, ours = (rows_of(side) for side in ask(unpaged(replace(step, cql=LIMIT.sub("", step.cql)))))
    return sorted(theirs) == sorted(ours) and rows_of(right) == ours[:int(found[1])] and all(row in theirs for row in rows_of(left))


PROOFS = {
    PREPARED_AFTER_ALTER: is_confirmed_reprepared, PAGING_STATE: is_confirmed_until_error, INTERNAL_ERRORS: fails_again_too,
    OPERATORS: names_descending_key, COLLECTION_FUNCTIONS: names_descending_key, FIELDS: names_descending_key,
    EQUAL_KEYS: are_clustering_columns, GROWN_KEYS: are_keys, DOCUMENTS: documents_are_the_same_without_limit}


def pages_of_groups(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    return "GROUP BY" in step.cql and are_other_pages(ask, step, left, right)


def pages_behind_nothing(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    return " IN ()" in step.cql and are_other_pages(ask, step, left, right)


def are_other_pages(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    return are_the_same_rows(left, right) and is_confirmed_unpaged(ask, step, left, right)


def may_be_pages(step: Step, left: Answers, right: Answers) -> bool:
    """Returns whether the answers alone allow that the same rows are divided into other pages."""
    return ("GROUP BY" in step.cql or " IN ()" in step.cql) and are_the_same_rows(left, right)


def are_the_same_rows(left: Answers, right: Answers) -> bool:
    """Returns whether both servers gave the same rows and the same warnings, on pages of any size, of which the last
    may be empty. A timeuuid may have either name of its type."""
    if not are_rows(left) or not are_rows(right) or rows_of(left) != rows_of(right):
        return False
    theirs, ours = ([answer for answer in side if isinstance(answer, Rows)] for side in (left, right))
    warned = [{warning for answer in side for warning in answer.warnings} for side in (theirs, ours)]
    return warned[0] == warned[1] and renamed(repr(columns(theirs))) == renamed(repr(columns(ours)))


def columns(answers: list[Rows]) -> list[tuple] | None:
    return comparable(answers[0])["columns"] if answers else None


def pages_of_a_filter(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Checks a filtered read in which Cassandra leaves out rows, or does not count them in a sum. Without pages, or
    without a LIMIT too, both servers must give the same answer. It must begin with all of our rows, as many as were
    asked for."""
    if "ALLOW FILTERING" not in step.cql or not are_rows(left) or not are_rows(right):
        return False
    return is_whole(ask, unpaged(step), left, right, None) or any(
        is_whole(ask, unpaged(replace(step, cql=LIMIT.sub("", step.cql))), left, right, int(limit)) for limit in LIMIT.findall(step.cql))


def is_whole(ask: Ask, whole: Step, left: Answers, right: Answers, limit: int | None) -> bool:
    theirs, ours = ask(whole)
    if not are_rows(ours) or not agree(whole, theirs, ours) or rows_of(right) != rows_of(ours)[:limit]:
        return False
    rest = iter(rows_of(ours))
    return AGGREGATE.search(whole.cql) is not None or all(row in rest for row in rows_of(left))


def repeated_values_before_a_range(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Checks a read whose IN has a value twice before a range of several columns, for which Cassandra reads other
    ranges. With each value once, Cassandra must give our rows."""
    if not are_rows(left) or not are_rows(right) or not repeats_before_a_range(step):
        return False
    once = unpaged(without_repeats(step))
    theirs, ours = ask(once)
    return are_rows(ours) and agree(once, theirs, ours) and rows_of(theirs) == rows_of(right)


CONTAINS = re.compile(r"(\"[^\"]+\"|\w+) CONTAINS (KEY )?((?:\w+\()?'(?:[^']|'')*'\)?|\?|[^\s?:()']+)")
SELECTION = re.compile(r"SELECT (?!JSON |DISTINCT )(.*?) FROM ", re.DOTALL)


def keys_of_deleted_elements(ask: Ask, step: Step, left: Answers, right: Answers) -> bool:
    """Checks a read with CONTAINS, for which Cassandra returns rows although their map or set does not have the
    element. Its other rows must be ours."""
    found, selection = CONTAINS.findall(step.cql), SELECTION.match(step.cql)
    if len(found) != 1 or selection is None or step.named or "GROUP BY" in step.cql or AGGREGATE.search(selection[1]):
        return False
    if not are_rows(left) or not are_rows(right):
        return False
    (name, of_map, key), limit = found[0], LIMIT.search(step.cql)
    before = step.cql[:CONTAINS.search(step.cql).end()].count("?") - 1
    values = [step.values[before], *step.values] if key == "?" else step.values
    shown = ", ".join(f'"{column}"' for _, _, column, _ in columns_of(right)) if selection[1] == "*" else selection[1]
    cql = LIMIT.sub("", step.cql).replace(selection[0], f"SELECT {name}[{key}], {name}, {shown} FROM ", 1)
    asked = ask(unpaged(replace(step, cql=cql, values=values, skip_metadata=False)))
    if not of_map and not is_set(asked[0]):
        return False
    theirs, ours = map(rows_of, asked)
    kept = [row[2:] for row in theirs if row[0] is not None]
    if len(kept) == len(theirs) or kept != [row[2:] for row in ours]:
        return False
    return rows_of(right) == kept[:int(limit[1]) if limit else None]


def is_set(answers: Answers) -> bool:
    """Returns whether the second column is a set. The first column then shows whether the element is in it."""
    columns = columns_of(answers)
    return len(columns) > 1 and columns[1][3].startswith("set<")


def columns_of(answers: Answers) -> list[tuple]:
    """Returns the columns of the rows, or else those of the prepared statement."""
    said = [answer.metadata if isinstance(answer, Rows) else answer.result for answer in answers if isinstance(answer, Rows | Prepared)]
    return next((metadata.columns for metadata in reversed(said) if metadata.columns), [])


WHOLE = {GROUP_PAGES: pages_of_groups, PAGES_BEHIND_NOTHING: pages_behind_nothing, PAGES_OF_A_FILTER: pages_of_a_filter,
         REPEATED_VALUES: repeated_values_before_a_range, DELETED_KEYS: keys_of_deleted_elements}
