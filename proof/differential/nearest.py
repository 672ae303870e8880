"""A table of vectors in histories with indexes: changes of its rows, and searches for the nearest ones.

Its rows are so few that both databases find exactly the nearest. Vectors at the same distance come in any order, so a
search selects similarities.
"""

from random import Random

from proof.differential.steps import Step

PARTITIONS, ROWS, GROUPS = 4, 8, 3
DIMENSION = 3
SIMILARITIES = ("euclidean", "cosine", "dot_product")
# Of the steps of a history with such a table.
SHARE = 0.07


class NearestTable:
    def __init__(self, rng: Random, keyspace: str):
        self.rng = rng
        self.name = f"{keyspace}.nearest"
        self.similarity = rng.choice(SIMILARITIES)
        self.clock = 1_700_000_000_000_000

    def create(self) -> list[Step]:
        # Cassandra warns of vectors again when a table that has an index of vectors gets another index.
        return [Step("cql", statement) for statement in (
            f"CREATE TABLE {self.name} (p int, c int, v vector<float, {DIMENSION}>, g int, w text, PRIMARY KEY (p, c))",
            f"CREATE INDEX ON {self.name} (g) USING 'sai'",
            f"CREATE INDEX ON {self.name} (v) USING 'sai' WITH OPTIONS = {{'similarity_function': '{self.similarity}'}}")]

    def step(self) -> Step:
        return Step("cql", self.search() if self.rng.random() < 0.5 else self.change())

    def vector(self) -> str:
        """Returns a vector that is not zero, and rarely the same one twice."""
        return str([round(self.rng.uniform(0.05, 1) * self.rng.choice((-1, 1)), 2) for _ in range(DIMENSION)])

    def change(self) -> str:
        rng, roll = self.rng, self.rng.random()
        self.clock += 1
        place = f"p = {rng.randrange(PARTITIONS)} AND c = {rng.randrange(ROWS)}"
        if roll < 0.1:
            return f"DELETE {rng.choice(('', 'g'))} FROM {self.name} USING TIMESTAMP {self.clock} WHERE {place}"
        if roll < 0.14:
            return f"DELETE FROM {self.name} USING TIMESTAMP {self.clock} WHERE p = {rng.randrange(PARTITIONS)} AND c > {rng.randrange(ROWS)}"
        given = rng.sample((f"v = {self.vector()}", f"v = {self.vector()}", f"g = {rng.randrange(GROUPS)}", "w = 'w'"), rng.randint(1, 3))
        chosen = {each.split()[0]: each for each in given}
        return f"UPDATE {self.name} USING TIMESTAMP {self.clock} SET {', '.join(chosen.values())} WHERE {place}"

    def search(self) -> str:
        rng, wanted = self.rng, self.vector()
        where = rng.choice(("", "", f"WHERE g = {rng.randrange(GROUPS)} ", f"WHERE p = {rng.randrange(PARTITIONS)} "))
        return (f"SELECT similarity_{self.similarity}(v, {wanted}) FROM {self.name} {where}ORDER BY v ANN OF {wanted} "
                f"LIMIT {rng.choice((1, 3, 5, 10, 100))}")
