"""Resources and resource templates, with the completions of their variables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trunkline import Context, Server
from trunkline.errors import ResourceNotFound
from trunkline.servers.everything.documents import DOCUMENTS
from trunkline.servers.everything.dynamic import BLOB, TEXT, dynamic, positive_text, proposed
from trunkline.servers.everything.media import icon, picture
from trunkline.types import Annotations, Completion, ResourceContents

__all__ = ["LIBRARY", "add_more_resources", "add_resources"]

LIBRARY = "demo://resource/library/{shelf}/{book}"
_BOOKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"maps": ("harbour", "mountain", "moor"), "stories": ("night-train", "signalman"), "tables": ("summer", "winter")}
)
#: How long a stateless client may cache a document.
_DOCUMENT_MS = 60_000


def add_resources(server: Server) -> None:
    """Register the resources that the official server has."""
    for name in DOCUMENTS:
        _add_document(server, name)

    async def text(resourceId: str) -> ResourceContents:
        return dynamic("Text", _number(resourceId))

    async def blob(resourceId: str) -> ResourceContents:
        return dynamic("Blob", _number(resourceId))

    server.add_resource(
        TEXT,
        text,
        name="Dynamic Text Resource",
        description="A text made up from {resourceId}, which is a whole number from 1.",
        mime_type="text/plain",
    )
    server.add_resource(
        BLOB,
        blob,
        name="Dynamic Blob Resource",
        description="Bytes made up from {resourceId}, which is a whole number from 1.",
        mime_type="application/octet-stream",
    )
    for template in (TEXT, BLOB):
        server.completion(template, "resourceId")(complete_number)


def _add_document(server: Server, name: str) -> None:
    async def read() -> str:
        return DOCUMENTS[name]

    server.add_resource(
        f"demo://resource/static/document/{name}",
        read,
        name=name,
        description=f"A document about this server: {name}.",
        mime_type="text/markdown",
        ttl_ms=_DOCUMENT_MS,
        cache_scope="public",
    )


def complete_number(value: str) -> Completion:
    """Complete a positive integer with itself; anything else has no completions."""
    return proposed([value] if positive_text(value) is not None else [], value)


def _number(text: str) -> int:
    number = positive_text(text)
    if number is None:
        raise ResourceNotFound(f"Unknown resource: {text[:40]!r} is no whole number from 1.")
    return number


# --- additional resources --------------------------------------------------------------------------------------------


def add_more_resources(server: Server, *, numbered: int) -> None:
    """Register an image with all metadata fields, many numbered resources, a library, and one that elicits input."""
    server.add_resource(
        "demo://resource/picture",
        picture,
        name="picture",
        title="Three rails",
        description="A picture with an icon, annotations, a size and metadata.",
        mime_type="image/png",
        size=len(picture()),
        icons=[icon()],
        annotations=Annotations(audience=["user"], priority=0.2, last_modified="2020-01-02T03:04:05Z"),
        meta={"example.com/licence": "free"},
    )
    server.add_resource("demo://resource/asked", asked, name="asked", tags={"needs:elicitation.form"})
    server.add_resource(LIBRARY, book, name="library", mime_type="text/plain", icons=[icon()])
    server.completion(LIBRARY, "shelf")(complete_shelf)
    server.completion(LIBRARY, "book")(complete_book)
    for number in range(1, numbered + 1):
        text = f"This is resource {number} of {numbered}."
        server.add_resource(
            f"demo://resource/numbered/{number:03}", text, name=f"numbered-{number:03}", mime_type="text/plain"
        )


async def asked(ctx: Context) -> str:
    """Ask the user what this resource should say."""
    answer = await ctx.elicit("What should the resource say?", str, key="words")
    return str(answer.data) if answer.accepted else f"(the user answered with {answer.action})"


async def book(shelf: str, book: str) -> str:
    """Give a book of the library by shelf and name."""
    if book not in _BOOKS.get(shelf, ()):
        raise ResourceNotFound(f"The library has no {book[:40]!r} on shelf {shelf[:40]!r}.")
    return f"{book} stands on the shelf {shelf}."


def complete_shelf(value: str) -> Completion:
    """Complete a shelf."""
    return proposed(_BOOKS, value)


def complete_book(value: str, arguments: Mapping[str, str]) -> Completion:
    """Complete a book of the chosen shelf, or of all shelves."""
    chosen = arguments.get("shelf")
    shelves = _BOOKS.values() if chosen is None else [_BOOKS.get(chosen, ())]
    return proposed([title for books in shelves for title in books], value)
