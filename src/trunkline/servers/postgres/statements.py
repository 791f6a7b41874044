"""Which statements are sent at all: those whose first word returns rows.

This is not what keeps a database safe: the role does, then the READ ONLY transaction that is always rolled back, then
the extended protocol, which carries one statement. Rejecting other statements here gives a better message, and blocks
the few commands that outlive a transaction, such as PREPARE TRANSACTION.
"""

from __future__ import annotations

import re

from trunkline.errors import ToolError
from trunkline.servers.wording import visible

__all__ = ["check_statement"]

_GIVING = frozenset({"EXPLAIN", "SELECT", "SHOW", "TABLE", "VALUES", "WITH"})
_LONGEST = 256 * 1024
_LINE_END = re.compile(r"[\r\n]")


def check_statement(sql: str) -> None:
    """Check that a statement begins as a query.

    Raises:
        ToolError: it does not; the message lists what may be sent.
    """
    if len(sql) > _LONGEST:
        raise ToolError(f"The query is longer than {_LONGEST} characters; shorten it")
    if "\0" in sql:
        raise ToolError("The query holds a NUL character, which PostgreSQL cannot read")
    word = _first_word(sql)
    if word not in _GIVING:
        what = f"{visible(word)} is refused" if word else "The query is empty"
        raise ToolError(f"{what}: send one read-only query (SELECT, WITH, VALUES, TABLE, EXPLAIN or SHOW)")


def _first_word(sql: str) -> str:
    """Return the first word after blanks, comments (which nest) and opening parentheses."""
    place, depth = 0, 0
    while place < len(sql):
        pair = sql[place : place + 2]
        if pair == "/*":
            depth, place = depth + 1, place + 2
        elif depth and pair == "*/":
            depth, place = depth - 1, place + 2
        elif depth:
            place += 1
        elif pair == "--":
            end = _LINE_END.search(sql, place)
            place = end.start() if end is not None else len(sql)
        elif sql[place].isspace() or sql[place] == "(":
            place += 1
        else:
            break
    rest = sql[place : place + 64]
    length = next((at for at, each in enumerate(rest) if not (each.isalnum() or each == "_")), len(rest))
    return rest[:length].upper() or rest[:1]
