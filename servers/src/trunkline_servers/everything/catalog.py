"""Resources, resource templates and prompts, with the completions of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

from trunkline import AssistantMessage, Audio, Context, Image, Message, PromptError, Server, UserMessage
from trunkline.errors import ResourceNotFound
from trunkline.types import Annotations, Completion, ResourceContents
from trunkline_servers.everything.sample_content import (
    BLOB_URI_TEMPLATE,
    DOCUMENTS,
    TEXT_URI_TEMPLATE,
    complete_prefix,
    dynamic_resource,
    parse_resource_id_text,
    sample_icon,
    sample_png,
    sample_wav,
)

__all__ = ["LIBRARY_URI_TEMPLATE", "add_extra_prompts", "add_extra_resources", "add_prompts", "add_resources"]

LIBRARY_URI_TEMPLATE = "demo://resource/library/{shelf}/{book}"
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
        return dynamic_resource("Text", _number(resourceId))

    async def blob(resourceId: str) -> ResourceContents:
        return dynamic_resource("Blob", _number(resourceId))

    server.add_resource(
        TEXT_URI_TEMPLATE,
        text,
        name="Dynamic Text Resource",
        description="A text made up from {resourceId}, which is a whole number from 1.",
        mime_type="text/plain",
    )
    server.add_resource(
        BLOB_URI_TEMPLATE,
        blob,
        name="Dynamic Blob Resource",
        description="Bytes made up from {resourceId}, which is a whole number from 1.",
        mime_type="application/octet-stream",
    )
    for template in (TEXT_URI_TEMPLATE, BLOB_URI_TEMPLATE):
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
    return complete_prefix([value] if parse_resource_id_text(value) is not None else [], value)


def _number(text: str) -> int:
    number = parse_resource_id_text(text)
    if number is None:
        raise ResourceNotFound(f"Unknown resource: {text[:40]!r} is no whole number from 1.")
    return number


# --- additional resources --------------------------------------------------------------------------------------------


def add_extra_resources(server: Server, *, numbered: int) -> None:
    """Register an image with all metadata fields, many numbered resources, a library, and one that elicits input."""
    server.add_resource(
        "demo://resource/picture",
        sample_png,
        name="picture",
        title="Three rails",
        description="A picture with an icon, annotations, a size and metadata.",
        mime_type="image/png",
        size=len(sample_png()),
        icons=[sample_icon()],
        annotations=Annotations(audience=["user"], priority=0.2, last_modified="2020-01-02T03:04:05Z"),
        meta={"example.com/licence": "free"},
    )
    server.add_resource("demo://resource/asked", asked_resource, name="asked", tags={"needs:elicitation.form"})
    server.add_resource(LIBRARY_URI_TEMPLATE, book, name="library", mime_type="text/plain", icons=[sample_icon()])
    server.completion(LIBRARY_URI_TEMPLATE, "shelf")(complete_shelf)
    server.completion(LIBRARY_URI_TEMPLATE, "book")(complete_book)
    for number in range(1, numbered + 1):
        text = f"This is resource {number} of {numbered}."
        server.add_resource(
            f"demo://resource/numbered/{number:03}", text, name=f"numbered-{number:03}", mime_type="text/plain"
        )


async def asked_resource(ctx: Context) -> str:
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
    return complete_prefix(_BOOKS, value)


def complete_book(value: str, arguments: Mapping[str, str]) -> Completion:
    """Complete a book of the chosen shelf, or of all shelves."""
    chosen = arguments.get("shelf")
    shelves = _BOOKS.values() if chosen is None else [_BOOKS.get(chosen, ())]
    return complete_prefix([title for books in shelves for title in books], value)


_TEAMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Engineering": ("Alice", "Bob", "Charlie"),
        "Sales": ("David", "Eve", "Frank"),
        "Marketing": ("Grace", "Henry", "Iris"),
        "Support": ("John", "Kim", "Lee"),
    }
)


def add_prompts(server: Server) -> None:
    """Register the prompts that the official server has."""
    server.add_prompt(simple, name="simple-prompt", title="Simple prompt")
    server.add_prompt(with_arguments, name="args-prompt", title="Prompt with arguments")
    server.add_prompt(completable, name="completable-prompt", title="Prompt with completion")
    server.add_prompt(with_resource, name="resource-prompt", title="Prompt with a resource")
    server.completion("completable-prompt", "department")(complete_department)
    server.completion("completable-prompt", "name")(complete_name)
    server.completion("resource-prompt", "resourceType")(complete_kind)
    server.completion("resource-prompt", "resourceId")(complete_number)


async def simple() -> str:
    """Make one message without asking for anything."""
    return "This is a simple prompt without arguments."


async def with_arguments(
    city: Annotated[str, Meta(description="Which city")],
    state: Annotated[str, Meta(description="In which state")] | None = None,
) -> str:
    """Make a message of one argument that is needed and one that is not."""
    return f"What's weather in {city}{f', {state}' if state else ''}?"


async def completable(
    department: Annotated[str, Meta(description="Which department")],
    name: Annotated[str, Meta(description="Who of that department shall lead it")],
) -> str:
    """Make a message of two arguments; the first decides what is proposed for the second."""
    return f"Please promote {name} to the head of the {department} team."


async def with_resource(
    resourceType: Annotated[str, Meta(description="Text or Blob")],
    resourceId: Annotated[str, Meta(description="Its number, from 1")],
) -> list[UserMessage]:
    """Make a message that has a resource inside."""
    if resourceType not in ("Text", "Blob"):
        raise PromptError(f"Invalid resourceType: {resourceType[:40]}. Must be Text or Blob.")
    number = parse_resource_id_text(resourceId)
    if number is None:
        raise PromptError(f"Invalid resourceId: {resourceId[:40]}. Must be a finite positive integer.")
    lead = f"This prompt includes the {resourceType} resource with id: {number}."
    return [
        UserMessage(f"{lead} Please analyze the following resource:"),
        UserMessage(dynamic_resource("Text" if resourceType == "Text" else "Blob", number)),
    ]


def complete_department(value: str) -> Completion:
    """Complete a department."""
    return complete_prefix(_TEAMS, value)


def complete_name(value: str, arguments: Mapping[str, str]) -> Completion:
    """Complete a name from the chosen department."""
    return complete_prefix(_TEAMS.get(arguments.get("department", ""), ()), value)


def complete_kind(value: str) -> Completion:
    """Complete a resource type."""
    return complete_prefix(("Text", "Blob"), value)


# --- additional prompts ----------------------------------------------------------------------------------------------


def add_extra_prompts(server: Server) -> None:
    """Register a prompt with images and audio, and one that elicits input first."""
    server.add_prompt(conversation, name="media-prompt", title="Prompt with media", icons=[sample_icon()])
    server.add_prompt(asking_prompt, name="asking-prompt", title="Prompt that asks", tags={"needs:elicitation.form"})


async def conversation() -> list[Message]:
    """Make a conversation of both sides with a picture and a sound."""
    return [
        UserMessage("Look at this picture:"),
        UserMessage(Image(data=sample_png())),
        AssistantMessage("I see three rails."),
        UserMessage(Audio(data=sample_wav())),
        UserMessage("And what do you hear?"),
    ]


async def asking_prompt(ctx: Context) -> str:
    """Ask the user for a subject, then make the message."""
    answer = await ctx.elicit("What shall the prompt be about?", str, key="subject")
    return f"Write a sentence about {answer.data if answer.accepted else 'nothing in particular'}."
