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

from tests.host.gateway.long_job_table import draw, redraw
from tests.host.gateway.support import NEW, OLD
from trunkline.protocol.revisions import REVISION_NAMES, uses_handshake

__all__ = ["CASES", "ERAS", "KINDS", "PAGE", "SERVER", "Case", "Kind", "lacks", "redrawn", "works"]

#: The page whose tables are made here.
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "questions-across-eras.md"
#: The name of the server behind the gateway, which each question has to show.
SERVER = "shop"


class Kind(Struct, frozen=True):
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


_FORMS, _MODELS = ("elicitation", "elicitation_urls"), ("sampling", "sampling_tools")
_FORM, _MODEL, _ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
_NO_PAGE = "has no (elicitation/create|URL elicitation)"

KINDS: Mapping[str, Kind] = {
    "form": Kind("form", "2025-06-18", "no forms", f"has no {_FORM}", _FORM, "elicitation.form", _FORMS),
    "page": Kind("page (URL)", "2025-11-25", "no pages", _NO_PAGE, _FORM, "elicitation.url", _FORMS[1:]),
    "sampling": Kind("sampling", "2024-11-05", "no sampling", f"has no {_MODEL}", _MODEL, "sampling", _MODELS),
    "sampling with tools": Kind(
        *("sampling with tools", "2025-11-25", "no tools in sampling", "has no sampling with tools"),
        *(_MODEL, "sampling.tools", _MODELS[1:]),
    ),
    "roots": Kind("roots", "2024-11-05", "no roots", f"has no {_ROOTS}", _ROOTS, "roots", ("roots",)),
}


class Case(Struct, frozen=True):
    """A question that a tool asks, and what is to come of it."""

    kind: str
    id: str
    tool: str
    #: The result of the tool, which holds the answer.
    result: str
    #: What the person or the model in front was shown; a request for roots is shown to no one.
    shown: tuple[str, ...]
    arguments: Mapping[str, Any] = {}


_LABEL = f"[{SERVER}] This request is made by the MCP server {SERVER}."

CASES: tuple[Case, ...] = (
    Case("form", "form accepted", "form", "accept Ada", (f"[{SERVER}] Please accept",), {"action": "accept"}),
    Case("form", "form declined", "form", "decline None", (f"[{SERVER}] Please decline",), {"action": "decline"}),
    Case("form", "form cancelled", "form", "cancel None", (f"[{SERVER}] Please cancel",), {"action": "cancel"}),
    Case("page", "page", "page", "accept", (f"[{SERVER}] Please pay https://pay.example/1",)),
    Case("sampling", "sampling", "sample", "small: four", (f"{_LABEL}\n\nBe short.",)),
    Case(
        "sampling with tools", *("sampling with tools", "sample_with_tools", "There is rain in Oslo"), (_LABEL, _LABEL)
    ),
    Case("roots", "roots", "roots", "file:///work", ("roots",)),
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


def _cell(kind: Kind, client: str) -> str:
    return f"{kind.lack} before {kind.since}" if lacks(kind, client) else "works"


def _by_era() -> str:
    """Return the table of all clients in front of the newest server of each era."""
    head = ["client", "server", *(kind.title for kind in KINDS.values())]
    pairs = product(REVISION_NAMES, ERAS)
    return draw(
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
    return draw(["client \\ server", *REVISION_NAMES], body)


def redrawn(page: str) -> str:
    """Return the page with the tables between its marks."""
    return redraw(page, {"by era": _by_era(), "by revision": _by_revision()})


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
