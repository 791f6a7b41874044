"""What each client gets from a long job, through the gateway and from a server alone, as data for tests and a page.

``test_long_jobs`` has a test for each cell. After a change, ``python -m tests.host.gateway.long_job_table`` writes the
tables of the page anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from msgspec import Struct

from trunkline.protocol.revisions import REVISION_NAMES, uses_handshake

__all__ = ["CELLS", "CLIENTS", "DIRECT_CELLS", "PAGE", "SERVERS", "Cell", "DirectCell", "draw", "redraw", "redrawn"]

#: The page whose tables are made here.
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "long-jobs.md"
#: The revision with tasks in its core; later ones have them as an extension, earlier ones have none.
CORE = "2025-11-25"
#: The revisions of servers behind the gateway: without tasks, with tasks in the core, with the extension.
SERVERS = ("2025-06-18", CORE, "2026-07-28")
#: The kinds of tools, and how each is declared.
KINDS: Mapping[str, str] = {"never": "`@server.tool`", "optional": "`task=True`", "required": '`task="required"`'}
#: How a client takes long calls, and the form in which it gets them.
WAYS: Mapping[str, str] = {"task": "task", "plain": "held call", "poll": "job"}


class Cell(Struct, frozen=True):
    """A client of a revision that takes long calls in one way, and a tool of a server behind the gateway."""

    client: str
    way: str
    server: str
    kind: str

    @property
    def id(self) -> str:
        """The cell as the name of a test."""
        return f"{self.way} in {self.client}, {self.kind} at {self.server}"

    @property
    def upstream(self) -> str:
        """What the gateway gets from the server: a ``task``, or a ``call`` that it waits for."""
        if self.server == CORE:
            return "task" if self.kind == "required" else "call"
        return "task" if self.server > CORE and self.kind != "never" else "call"

    @property
    def rounds(self) -> int:
        """How often the client calls the tool: twice if a question ends the first call."""
        return 2 if self.way == "plain" and not uses_handshake(self.client) else 1

    @property
    def text(self) -> str:
        """What the page says."""
        return f"{WAYS[self.way]} ← {self.upstream}"


class DirectCell(Struct, frozen=True):
    """A client of a revision that takes long calls in one way, and a tool of a server that it is connected to."""

    client: str
    way: str
    kind: str

    @property
    def id(self) -> str:
        """The cell as the name of a test."""
        return f"{self.way} in {self.client}, {self.kind}"

    @property
    def error(self) -> int | None:
        """The code of the error that the call fails with; None if it works."""
        asks = self.way == "task"
        if self.client == CORE and ((asks and self.kind == "never") or (not asks and self.kind == "required")):
            return -32601
        return -32021 if self.client > CORE and not asks and self.kind == "required" else None

    @property
    def form(self) -> str:
        """The way in which the client gets its result: one that polls is given jobs only of tools with tasks."""
        return "plain" if self.kind == "never" else self.way

    @property
    def text(self) -> str:
        """What the page says."""
        return WAYS[self.form] if self.error is None else f"error {self.error}"


#: The clients: a revision, and a way that it has.
CLIENTS: Sequence[tuple[str, str]] = tuple(
    (client, way) for client, way in product(REVISION_NAMES, WAYS) if way != "task" or client >= CORE
)
CELLS: Sequence[Cell] = tuple(Cell(*client, *tool) for client, tool in product(CLIENTS, product(SERVERS, KINDS)))
DIRECT_CELLS: Sequence[DirectCell] = tuple(DirectCell(*client, kind) for client, kind in product(CLIENTS, KINDS))


# --- the tables of the page ------------------------------------------------------------------------------------------


def draw(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Draw a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


def redraw(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with these tables between the marks with their names."""
    for name, table in tables.items():
        start, end = f"<!-- table {name}: start -->\n", f"<!-- table {name}: end -->\n"
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        page = f"{before}{start}\n{table}\n\n{end}{after}"
    return page


def redrawn(page: str) -> str:
    """Return the page with the tables between its marks."""
    tools = list(product(SERVERS, KINDS))
    gateway = draw(
        ["client", *(f"{server}: {KINDS[kind]}" for server, kind in tools)],
        ([f"{client}, {way}", *(Cell(client, way, *tool).text for tool in tools)] for client, way in CLIENTS),
    )
    server = draw(
        ["client", *KINDS.values()],
        ([f"{client}, {way}", *(DirectCell(client, way, kind).text for kind in KINDS)] for client, way in CLIENTS),
    )
    return redraw(page, {"gateway": gateway, "server": server})


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
