"""The filters of the audit log: which requests are entered, with options of the configuration and of
the command that changes them.

Both nodes get the same options, by `nodetool enableauditlog` there and by `espalier enableauditlog` here, and then the
same requests of two roles. Their entries are compared, and what `getauditlog` says about the options. Then both start
again, with options in their configuration.

docs/differences.md names what differs on purpose: Cassandra leaves out entries for the keyspace of the session. So no
session has a keyspace that is excluded, and entries of batches are compared where no keyspace is chosen.
"""

from collections.abc import Callable

from proof.roles import audit
from proof.wire import Connection

SHOWN = ("enabled", "included_keyspaces", "excluded_keyspaces", "included_categories", "excluded_categories", "included_users",
         "excluded_users")
ROLES = ("f_ada", "f_bob")
SETUP = [
    *(audit.KEYSPACE.format(keyspace) for keyspace in ("f1", "f2")),
    *(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int)" for keyspace in ("f1", "f2")),
    *(f"CREATE ROLE {role} WITH LOGIN = true AND PASSWORD = '{role}'" for role in ROLES),
    "GRANT ALL ON KEYSPACE f1 TO f_ada",
    "GRANT ALL ON KEYSPACE f2 TO f_ada",
    "GRANT SELECT ON KEYSPACE f1 TO f_bob",
]
# Sent by both roles. The second one may do a few of them.
REQUESTS = [
    "SELECT * FROM f1.t WHERE k = 1",
    "SELECT * FROM f2.t WHERE k = 1",
    "SELECT key FROM system.local",
    "SELECT keyspace_name FROM system_schema.keyspaces",
    "SELECT * FROM system_virtual_schema.keyspaces",
    "INSERT INTO f1.t (k, v) VALUES (1, 1)",
    "UPDATE f2.t SET v = 1 WHERE k = 1",
    "DELETE FROM f2.t WHERE k = 2",
    "TRUNCATE f2.t",
    "CREATE TABLE IF NOT EXISTS f2.t (k int PRIMARY KEY)",
    "DROP TABLE IF EXISTS f1.nothing",
    "GRANT SELECT ON f1.t TO f_bob",
    "LIST ROLES OF f_bob",
    "LIST ALL ON f1.t OF f_bob",
    "DESCRIBE KEYSPACES",
    "SELECT nothing FROM f1.t",
    "nonsense",
]
# Sent by sessions of the keyspace f1.
WITHIN = ["SELECT * FROM t", "INSERT INTO t (k, v) VALUES (2, 2)", "SELECT * FROM f2.t", "SELECT * FROM nothing", "LIST ROLES OF f_bob",
          "DESCRIBE TABLE t"]

# Options of the command, which each time turns the log on.
ALONE = [
    {"included_keyspaces": "f1"},
    {"included_keyspaces": "f1,f2"},
    {"included_keyspaces": "system_schema"},
    {"included_keyspaces": "nothing"},
    {"excluded_keyspaces": "f2"},
    {"excluded_keyspaces": "f2,system"},
    {"excluded_keyspaces": "nothing"},
    {"included_categories": "QUERY"},
    {"included_categories": "dml,Ddl"},
    {"included_categories": "ERROR,AUTH"},
    {"included_categories": "PREPARE,OTHER"},
    {"excluded_categories": "QUERY"},
    {"excluded_categories": "DML,DDL,DCL,PREPARE"},
    {"excluded_categories": "ERROR"},
    {"included_users": "f_ada"},
    {"included_users": "f_bob,nobody"},
    {"included_users": "nobody"},
    {"excluded_users": "f_ada"},
    {"excluded_users": "f_ada,f_bob"},
]
TOGETHER = [
    {"included_keyspaces": "f1", "included_categories": "QUERY"},
    {"included_keyspaces": "f1,f2", "excluded_keyspaces": "f2"},
    {"included_keyspaces": "f2", "excluded_keyspaces": "f2"},
    {"excluded_keyspaces": "f2", "included_users": "f_ada"},
    {"included_categories": "QUERY,DML", "excluded_categories": "DML"},
    {"included_categories": "ERROR", "excluded_categories": "ERROR"},
    {"included_categories": "AUTH,ERROR", "excluded_users": "f_bob"},
    {"excluded_categories": "AUTH", "included_keyspaces": "system,f1"},
    {"included_users": "f_ada,f_bob", "excluded_users": "f_ada"},
    {"included_users": "f_ada", "excluded_users": "f_ada"},
    {"included_users": "f_bob", "excluded_keyspaces": "nothing"},
    {"included_users": " f_ada , f_bob ", "excluded_categories": " query , dml "},
    {"included_users": "", "excluded_keyspaces": ""},
    {"included_users": ",", "excluded_keyspaces": ","},
]
REFUSED = [{"included_categories": "NOTHING"}, {"excluded_categories": "QUERY,"}, {"excluded_categories": "QUERY;DML"}]
# One after another while the log is on: what does a call keep of an earlier one?
CALLS = [
    {"excluded_users": "f_bob"},
    {"included_categories": "QUERY,DML"},
    {},
    {"included_users": "f_ada,f_bob"},
    {"excluded_keyspaces": "f2"},
    {"excluded_users": " "},
    {"excluded_users": ",", "included_categories": ","},
    {"included_users": ",", "excluded_keyspaces": " , "},
]
# Of the configuration.
OFF = {"enabled": "false", "excluded_users": "f_bob", "included_categories": "' query, dml '", "excluded_keyspaces": "','"}
ON = {"enabled": "true", "included_users": "f_bob", "excluded_categories": "DML", "excluded_keyspaces": "' '"}

Answers = dict[tuple[str, str], str]


class Node:
    """A node of either kind, whose audit log can be changed."""

    def __init__(self, node):
        self.node = node
        self.seen = 0

    def enable(self, options: dict[str, str]) -> str:
        """Turns the log on, or changes it. Returns whether it was possible."""
        try:
            self.node.enable_audit_log(options)
        except RuntimeError:
            return "refused"
        return "enabled"

    def options(self) -> str:
        shown = self.node.audit_options()
        return ", ".join(f"{name}={','.join(sorted(shown.get(name, '').split(',')))}" for name in SHOWN)

    def disable(self) -> None:
        self.node.disable_audit_log()

    def skip_entries(self) -> None:
        self.new_entries(batches=True)

    def new_entries(self, batches: bool) -> str:
        """The entries since the last call. The log must be off, so that all of them are in the file."""
        log = self.node.audit_log
        entries = audit.parsed(log.read_text()) if log.exists() else []
        new, self.seen = entries[self.seen:], len(entries)
        return "\n".join(entry for entry in new if batches or not entry.split("|")[1].startswith("BATCH"))


def answers(node, connect: Callable) -> Answers:
    """(what, options) -> the entries, or the options."""
    with connect(node) as admin:
        for statement in SETUP:
            admin.query(statement)
    audited = Node(node)
    found = calls(audited, "a log that the configuration turned on")
    for options in ALONE + TOGETHER:
        found["filter", str(options)] = filtered(audited, options)
    for options in REFUSED:
        found["refused", str(options)] = audited.enable(options) + " " + audited.options()
        audited.disable()
    node.restart_with_audit_log(OFF)
    found |= calls(audited, f"a log that is off: {OFF}")
    node.restart_with_audit_log(ON)
    audited.skip_entries()
    requests(audited, within=True)
    found["configuration", f"{ON} options"] = audited.options()
    audited.disable()
    found["configuration", f"{ON} entries"] = audited.new_entries(batches=True)
    return found


def calls(audited: Node, what: str) -> Answers:
    """Commands one after another, with and without turning the log off in between."""
    found = {(what, "options at first"): audited.options()}
    audited.skip_entries()
    for number, options in enumerate(CALLS):
        audited.enable(options)
        found[what, f"{number} options after {options}"] = audited.options()
    requests(audited, within=False)
    audited.disable()
    found[what, "entries after all"] = audited.new_entries(batches=True)
    found[what, "options when it is off"] = audited.options()
    for number, options in enumerate(CALLS):
        audited.enable(options)
        found[what, f"off and on, {number} options after {options}"] = audited.options()
        audited.disable()
        found[what, f"off and on, {number} options when it is off again"] = audited.options()
    audited.skip_entries()
    return found


def filtered(audited: Node, options: dict[str, str]) -> str:
    of_keyspaces = any("keyspaces" in name for name in options)
    state = audited.enable(options)
    shown = audited.options()
    requests(audited, within="f1" not in options.get("excluded_keyspaces", ""))
    audited.disable()
    return f"{state} {shown}\n{audited.new_entries(batches=not of_keyspaces)}"


def requests(audited: Node, within: bool) -> None:
    node = audited.node
    for role in ROLES:
        with Connection(node.host, node.port, 5, login=(role, role)) as client:
            for statement in REQUESTS:
                client.query(statement)
            for keyspace in ("f1", "f2"):
                prepared = client.prepare(f"SELECT v FROM {keyspace}.t WHERE k = 3")
                client.execute(prepared)
                client.batch(0, [(f"INSERT INTO {keyspace}.t (k, v) VALUES (4, 4)", [])])
            client.batch(0, [("INSERT INTO f1.t (k, v) VALUES (4, 4)", []), ("DELETE FROM f2.t WHERE k = 4", [])])
            if within:
                client.query("USE f1")
                for statement in WITHIN:
                    client.query(statement)
    # Not more: Espalier refuses clients of an address for a while that failed a hundred times.
    audit.logged_in(node, ROLES[0], "wrong", lambda client: None)
