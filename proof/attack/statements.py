"""Statements that are small and would cost much."""

from proof.attack.attacks import attack
from proof.attack.target import Target
from proof.wire import QueryOptions

REFUSED = r"Error 0x2[02]00 .*"
OVERLOADED = r"Error 0x1001 .*"


@attack("C2", seconds=2, expected=rf"Rows|{REFUSED}")
def nested_operators(target: Target) -> list:
    """Each operator once cost as much as twenty of the next one did."""
    return [target.query(f"SELECT i{'+1' * 60} FROM attack.t WHERE k = 1"),
            target.query(f"SELECT {'abs(' * 30}i{')' * 30} FROM attack.t WHERE k = 1")]


@attack("C2", seconds=2, expected=rf"Void|{REFUSED}")
def casts_and_operators(target: Target) -> list:
    return [target.query(f"UPDATE attack.t SET i = {'+'.join(['(int)1'] * 60)} WHERE k = 2")]


@attack("C3", seconds=2, expected=REFUSED)
def deep_expression(target: Target) -> list:
    """Levels and operators that are each within their limit, and together too deep for a stack."""
    x = "1"
    for _ in range(2):
        x = "abs(" + x + ")" + "*1" * 250 + "+1" * 250
    return [target.query(f"INSERT INTO attack.t (k, i) VALUES (2, {x})")]


@attack("C3", seconds=4, expected=rf"{REFUSED}|{OVERLOADED}")
def deep_brackets(target: Target) -> list:
    """Dropping the tree must not overflow the stack either."""
    return [target.query(f"SELECT {opening * 200_000}i{closing * 200_000} FROM attack.t WHERE k = 1")
            for opening, closing in (("(", ")"), ("[", "]"), ("{", "}"), ("abs(", ")"), ("-", ""), ("(int)", ""))]


@attack("H4", seconds=20, expected=rf"{REFUSED}|{OVERLOADED}")
def many_selectors(target: Target) -> list:
    """10 MB of CQL, four times at once."""
    return target.together([f"SELECT {'i,' * 5_000_000}i FROM attack.t WHERE k = 1"] * 4)


@attack("H4", seconds=10, expected=rf"Rows|{REFUSED}|{OVERLOADED}")
def as_many_selectors_as_are_allowed(target: Target) -> list:
    return target.together([f"SELECT {'i,' * 65_000}i FROM attack.t WHERE k = 1"] * 4)


@attack("second look", seconds=20, expected=rf"{REFUSED}|{OVERLOADED}")
def many_lists(target: Target) -> list:
    return target.together([f"SELECT {'[i],' * 2_000_000}i FROM attack.t WHERE k = 1"] * 2)


@attack("second look", seconds=10, expected=rf"Rows|Void|{REFUSED}|{OVERLOADED}")
def as_many_tokens_as_are_allowed(target: Target) -> list:
    return target.together([f"SELECT i FROM attack.t WHERE k IN ({'1,' * 250_000}1)",
                            f"INSERT INTO attack.t (k, l) VALUES (3, [{'1,' * 250_000}1])",
                            f"SELECT [{'i,' * 200_000}i] FROM attack.t WHERE k = 1"])


@attack("H5", seconds=4, expected=REFUSED)
def product_of_ins(target: Target) -> list:
    values = ",".join(map(str, range(200)))
    where = " AND ".join(f"{column} IN ({values})" for column in "abc")
    return [target.query(f"SELECT v FROM attack.cube WHERE {where}"), target.query(f"DELETE FROM attack.cube WHERE {where}"),
            target.query(f"UPDATE attack.cube SET v = 1 WHERE {where}")]


@attack("second look", seconds=20, expected=rf"Void|{REFUSED}|Error 0x1100 .*")
def writes_of_a_product_that_is_allowed(target: Target) -> list:
    values = ",".join(map(str, range(40)))
    where = " AND ".join(f"{column} IN ({values})" for column in "abc")
    return target.together([f"DELETE FROM attack.cube WHERE {where}"] * 2)


@attack("H8", seconds=10, expected=rf"Void|{REFUSED}|{OVERLOADED}")
def many_elements_one_by_one(target: Target) -> list:
    elements = ",".join(f"m[{key}]=1" for key in range(60_000))
    return [target.query(f"UPDATE attack.t SET {elements} WHERE k = 4")]


@attack("H9", seconds=20, expected=rf"SchemaChange|Void|{REFUSED}")
def table_of_many_columns(target: Target) -> list:
    """Other schema changes go on beside it."""
    columns = ",".join(f"c{number} int" for number in range(40_000))
    return target.together([f"CREATE TABLE attack.broad (k int PRIMARY KEY, {columns})", "DROP TABLE IF EXISTS attack.narrow",
                            "CREATE TABLE IF NOT EXISTS attack.narrow (k int PRIMARY KEY)"])


@attack("H10", seconds=6, expected=rf"Rows|Void|{REFUSED}|Error 0x1400 .*")
def numbers_of_many_digits(target: Target) -> list:
    return target.together(["SELECT exp(1e-2147483647) FROM attack.t WHERE k = 1",
                            "SELECT exp((decimal)1e2147483647) FROM attack.t WHERE k = 1",
                            "SELECT (decimal)1e2147483647 + 1 FROM attack.t WHERE k = 1",
                            "SELECT (decimal)1e2147483647 % 3 FROM attack.t WHERE k = 1",
                            f"INSERT INTO attack.n (k, v) VALUES (1, {'7' * 10_000_000})"])


@attack("H11", seconds=10, expected=rf"Rows|Void|{REFUSED}|Error 0x1400 .*")
def calculations_with_large_values(target: Target) -> list:
    with target.connect() as connection:
        number = connection.prepare("INSERT INTO attack.n (k, v, d) VALUES (2, ?, ?)")
        value = b"\x07" * 10_000_000
        answers = [connection.execute(number, QueryOptions((value, b"\0\0\0\0" + value[:4_000_000])))]
        for selector in ("CAST(v AS text)", "CAST(v AS double)", "v + 1", "v * v", "d + 1", "d * d", "toJson(v)"):
            answers.append(connection.query(f"SELECT {selector} FROM attack.n WHERE k = 2"))
    return answers


@attack("second look", seconds=10, expected=rf"Rows|Void|{REFUSED}|Error 0x1400 .*")
def product_of_large_numbers(target: Target) -> list:
    with target.connect() as connection:
        number = connection.prepare("INSERT INTO attack.n (k, v) VALUES (3, ?)")
        answers = [connection.execute(number, QueryOptions((b"\x07" * 200_000,)))]
        answers.append(connection.query(f"SELECT {'*'.join(['v'] * 40)} FROM attack.n WHERE k = 3"))
        number = connection.query("INSERT INTO attack.n (k, v) VALUES (4, " + "7" * 90_000 + ")")
        answers.append(connection.query(f"SELECT {'*'.join(['v'] * 40)} FROM attack.n WHERE k = 4"))
    return answers


@attack("UDT", seconds=10, expected=rf"SchemaChange|{REFUSED}")
def nested_types(target: Target) -> list:
    """Ten fields of the type before, eight levels deep: a hundred million leaves if they were copied."""
    answers = [target.query("CREATE TYPE IF NOT EXISTS attack.level0 (f int)")]
    for level in range(1, 9):
        fields = ",".join(f"f{number} frozen<level{level - 1}>" for number in range(10))
        answers.append(target.query(f"CREATE TYPE IF NOT EXISTS attack.level{level} ({fields})"))
    answers.append(target.query("CREATE TABLE IF NOT EXISTS attack.nested (k int PRIMARY KEY, v frozen<level8>)"))
    return answers


@attack("random text", seconds=10, expected=rf"{REFUSED}|{OVERLOADED}")
def texts_that_never_end(target: Target) -> list:
    size = 4_000_000
    return target.together(["'" * size, "/*" * (size // 2), "$$" + "$" * size, "0x" + "a" * size, '"' * (size + 1), " " * size,
                            "SELECT " + "1" * size, "INSERT INTO attack.t JSON '" + '[' * size + "'",
                            "INSERT INTO attack.t JSON '" + '{"k":' * (size // 5) + "'"])
