"""Which questions of servers reach which clients through the gateway, as data; the page of the documentation shows it.

``test_questions_across_eras`` has a test for each cell. After a change, ``python -m tests.host.gateway.question_table``
writes the tables of the page anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.host.gateway.support import NEW, OLD
from trunkline.protocol.revisions import REVISION_NAMES, uses_handshake

__all__ = ["CASES", "ERAS", "KINDS", "PAGE", "SERVER", "Case", "Kind", "lacks", "redrawn", "works"]

#: The page whose tables are made here.
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "questions-across-eras.md"
#: The name of the server behind the gateway, which each question has to show.
SERVER = "shop"


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of question: the revisions that have it, and what it needs."""

    #: The title of its column.
    title: str
    #: The first revision that has it; all later ones do too.
    since: str
    #: What an older revision lacks, for a reader of the page.
    lack: str
    #: What the error of a server that has an older revision names, as a regular expression.
    named: str
    method: str
    #: What a client has to declare.
    capability: str
    #: The options of a client that it cannot be asked without.
    options: tuple[str, ...]


_ELICITATION = ("elicitation", "elicitation_urls")
_SAMPLING = ("sampling", "sampling_tools")

KINDS: Mapping[str, Kind] = {
    "form": Kind(
        title="form",
        since="2025-06-18",
        lack="no forms",
        named="has no elicitation/create",
        method="elicitation/create",
        capability="elicitation.form",
        options=_ELICITATION,
    ),
    "page": Kind(
        title="page (URL)",
        since="2025-11-25",
        lack="no pages",
        named="has no (elicitation/create|URL elicitation)",
        method="elicitation/create",
        capability="elicitation.url",
        options=("elicitation_urls",),
    ),
    "sampling": Kind(
        title="sampling",
        since="2024-11-05",
        lack="no sampling",
        named="has no sampling/createMessage",
        method="sampling/createMessage",
        capability="sampling",
        options=_SAMPLING,
    ),
    "sampling with tools": Kind(
        title="sampling with tools",
        since="2025-11-25",
        lack="no tools in sampling",
        named="has no sampling with tools",
        method="sampling/createMessage",
        capability="sampling.tools",
        options=("sampling_tools",),
    ),
    "roots": Kind(
        title="roots",
        since="2024-11-05",
        lack="no roots",
        named="has no roots/list",
        method="roots/list",
        capability="roots",
        options=("roots",),
    ),
}


class Case(Struct, frozen=True, kw_only=True):
    """A question that a tool asks, and what is to come of it."""

    kind: str
    id: str
    tool: str
    arguments: Mapping[str, Any] = {}
    #: The result of the tool, which holds the answer.
    result: str
    #: What the person or the model in front was shown; a request for roots is shown to no one.
    shown: tuple[str, ...]


_LABEL = f"[{SERVER}] This request is made by the MCP server {SERVER}."

CASES: tuple[Case, ...] = (
    Case(
        kind="form",
        id="form accepted",
        tool="form",
        arguments={"action": "accept"},
        result="accept Ada",
        shown=(f"[{SERVER}] Please accept",),
    ),
    Case(
        kind="form",
        id="form declined",
        tool="form",
        arguments={"action": "decline"},
        result="decline None",
        shown=(f"[{SERVER}] Please decline",),
    ),
    Case(
        kind="form",
        id="form cancelled",
        tool="form",
        arguments={"action": "cancel"},
        result="cancel None",
        shown=(f"[{SERVER}] Please cancel",),
    ),
    Case(kind="page", id="page", tool="page", result="accept", shown=(f"[{SERVER}] Please pay https://pay.example/1",)),
    Case(
        kind="sampling",
        id="sampling",
        tool="sample",
        result="small: four",
        shown=(f"{_LABEL}\n\nBe short.",),
    ),
    Case(
        kind="sampling with tools",
        id="sampling with tools",
        tool="sample_with_tools",
        result="There is rain in Oslo",
        shown=(_LABEL, _LABEL),
    ),
    Case(kind="roots", id="roots", tool="roots", result="file:///work", shown=("roots",)),
)

#: The eras, each with its newest revision.
ERAS: Mapping[str, str] = {"handshake": OLD, "stateless": NEW}


def lacks(kind: Kind, revision: str) -> bool:
    """Return True if a revision does not have a kind of question."""
    return REVISION_NAMES.index(revision) < REVISION_NAMES.index(kind.since)


def works(kind: Kind, client: str, server: str) -> bool:
    """Return True if a question reaches the client: both revisions have it."""
    return not lacks(kind, client) and not lacks(kind, server)


# --- the tables of the page ------------------------------------------------------------------------------------------


def _rows(head: list[str], body: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


def _cell(kind: Kind, client: str) -> str:
    return f"{kind.lack} before {kind.since}" if lacks(kind, client) else "works"


def _by_era() -> str:
    """Return the table of all clients in front of the newest server of each era."""
    head = ["client", "server", *(kind.title for kind in KINDS.values())]
    pairs = product(REVISION_NAMES, ERAS)
    return _rows(
        head, [[_named(client), era, *(_cell(kind, client) for kind in KINDS.values())] for client, era in pairs]
    )


def _named(client: str) -> str:
    return f"{client}, {'handshake' if uses_handshake(client) else 'stateless'}"


def _working(client: str, server: str) -> str:
    found = [kind.title for kind in KINDS.values() if works(kind, client, server)]
    return "all five" if len(found) == len(KINDS) else ", ".join(found)


def _by_revision() -> str:
    """Return the table of all pairs of revisions."""
    body = [[f"**{client}**", *(_working(client, server) for server in REVISION_NAMES)] for client in REVISION_NAMES]
    return _rows(["client \\ server", *REVISION_NAMES], body)


def redrawn(page: str) -> str:
    """Return the page with the tables between its marks."""
    for name, table in (("by era", _by_era()), ("by revision", _by_revision())):
        start, end = f"<!-- table {name}: start -->\n", f"<!-- table {name}: end -->\n"
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        page = f"{before}{start}\n{table}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
