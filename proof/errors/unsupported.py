"""The statements about a feature that Espalier refuses so far, as rules and not as a list."""

import re

# (feature, what a statement about it looks like)
RULES = [
    ("views", r"\bMATERIALIZED\s+VIEW\b|\bmv\b|\bbadmv\b"),
    ("functions", r"\bFUNCTION\b|\bAGGREGATE\b|\bplus1\b|\bboom\b"),
    ("triggers", r"\bTRIGGER\b"),
]
STRING = re.compile(r"'[^']*'")


def unsupported_feature(category: str, statements: list[str]) -> str | None:
    """The feature that one of the statements needs and Espalier does not have, or None."""
    for statement in statements:
        for feature, pattern in RULES:
            if re.search(pattern, STRING.sub("''", statement), re.IGNORECASE | re.DOTALL):
                return feature
    return None
