"""The audit logs of both nodes: every entry, but for its time, its port and the passwords' places."""

import difflib
import re
import time

END = "SELECT * FROM system_auth.end_of_the_audit_log"
ENTRY = re.compile(r"user:(.*?)\|.*?\|type:(.*)$")
PASSWORD = re.compile(r"(?i)(password)\b.*")


def entries(node, connect) -> list[str]:
    """The entries so far. The last one is waited for, because a thread of its own writes them."""
    with connect(node) as admin:
        admin.query(END)
    deadline = time.monotonic() + 10
    while END not in (text := node.audit_log.read_text()):
        if time.monotonic() > deadline:
            raise RuntimeError("the audit log lacks its last entry")
        time.sleep(0.05)
    found = [entry.groups() for entry in map(ENTRY.search, text.splitlines()) if entry]
    # How often a client has to try until Cassandra's first role is there is a matter of time.
    return [PASSWORD.sub(r"\1", f"{user}|{rest}") for user, rest in found if not rest.startswith("LOGIN_ERROR")]


def compare(theirs: list[str], ours: list[str]) -> tuple[int, list[str]]:
    """The number of entries that are the same, in order, and the others."""
    matcher = difflib.SequenceMatcher(None, theirs, ours, autojunk=False)
    same, different = 0, []
    for kind, start, end, our_start, our_end in matcher.get_opcodes():
        if kind == "equal":
            same += end - start
        else:
            different.append(f"audit log\n    Cassandra: {theirs[start:end]}\n    Espalier:  {ours[our_start:our_end]}")
    return same, different
