"""Statements about roles while the node is killed: what was acknowledged is there after the next start.

Each client takes roles through their stages, one statement after another, and notes the last stage that was
acknowledged and the one that was asked for. Every role must then be in one of the two.
"""

import random
import threading
import time

from proof.wire import Connection, Error
from proof.wire.connection import ConnectionClosed

ROUNDS = 6
CLIENTS = 4
HASH = "$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG"
# A statement, and what the role has after it: whether it is there, has a permission, and has another role.
STAGES = [
    (f"CREATE ROLE {{role}} WITH LOGIN = true AND HASHED PASSWORD = '{HASH}'", {(True, False, False)}),
    ("GRANT SELECT ON ks.t TO {role}", {(True, True, False)}),
    ("GRANT target TO {role}", {(True, True, True)}),
    ("REVOKE SELECT ON ks.t FROM {role}", {(True, False, True)}),
    ("DROP ROLE {role}", {(False, False, False)}),
]
NOTHING = {(False, False, False)}


class Client(threading.Thread):
    """Sends statements until the node is killed."""

    def __init__(self, node, connect, number: int, seed: int):
        super().__init__(daemon=True)
        self.node, self.connect = node, connect
        self.random, self.name_prefix = random.Random(seed), f"killed_{seed}_{number}"
        self.possible: dict[str, set] = {}
        self.refused: list[str] = []

    def run(self) -> None:
        try:
            with self.connect(self.node) as admin:
                while not self.refused:
                    self.one_role(admin, f"{self.name_prefix}_{len(self.possible)}")
        except (OSError, ConnectionClosed):
            pass        # the node was killed

    def one_role(self, admin: Connection, role: str) -> None:
        before = NOTHING
        for statement, after in STAGES[:self.random.randint(1, len(STAGES))]:
            self.possible[role] = before | after
            answer = admin.query(statement.format(role=role))
            if isinstance(answer, Error):
                self.refused.append(f"{statement} {answer.message}")
                return
            self.possible[role] = before = after


def found(admin: Connection) -> tuple[dict, set, set]:
    """The roles and whether they have another one, the holders of permissions, and those
    in the index of permissions."""
    def rows(statement: str) -> list[tuple]:
        return admin.query(statement).rows

    roles = {name: member_of is not None for name, member_of in rows("SELECT role, member_of FROM system_auth.roles")}
    held = set(rows("SELECT role, resource FROM system_auth.role_permissions"))
    indexed = {(role, resource) for resource, role in rows("SELECT resource, role FROM system_auth.resource_role_permissons_index")}
    return roles, held, indexed


def acknowledged_statements_survive(node, connect) -> None:
    for number in range(ROUNDS):
        clients = [Client(node, connect, client, number) for client in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(random.Random(number).uniform(0.3, 1.5))
        node.kill()
        for client in clients:
            client.join(60)
        node.launch()
        with connect(node) as admin:
            roles, held, indexed = found(admin)
        assert not held - indexed, f"round {number}: permissions that the index lacks: {held - indexed}"
        for client in clients:
            assert client.possible and not client.refused, client.refused
            for role, possible in client.possible.items():
                name = role.encode()
                has = (name in roles, (name, b"data/ks/t") in held, roles.get(name, False))
                # A DROP that was not acknowledged takes away one thing after another.
                partly = {(True, False, False), (True, False, True)} if NOTHING < possible else set()
                assert has in possible | partly, f"round {number}: {role} is {has}, expected {possible}"
