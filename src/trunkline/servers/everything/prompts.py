"""Prompts, with the completions of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

from trunkline import AssistantMessage, Audio, Context, Image, Message, PromptError, Server, UserMessage
from trunkline.servers.everything.dynamic import dynamic, positive_text, proposed
from trunkline.servers.everything.media import icon, picture, sound
from trunkline.servers.everything.resources import complete_number
from trunkline.types import Completion

__all__ = ["add_more_prompts", "add_prompts"]

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
    number = positive_text(resourceId)
    if number is None:
        raise PromptError(f"Invalid resourceId: {resourceId[:40]}. Must be a finite positive integer.")
    lead = f"This prompt includes the {resourceType} resource with id: {number}."
    return [
        UserMessage(f"{lead} Please analyze the following resource:"),
        UserMessage(dynamic("Text" if resourceType == "Text" else "Blob", number)),
    ]


def complete_department(value: str) -> Completion:
    """Complete a department."""
    return proposed(_TEAMS, value)


def complete_name(value: str, arguments: Mapping[str, str]) -> Completion:
    """Complete a name from the chosen department."""
    return proposed(_TEAMS.get(arguments.get("department", ""), ()), value)


def complete_kind(value: str) -> Completion:
    """Complete a resource type."""
    return proposed(("Text", "Blob"), value)


# --- additional prompts ----------------------------------------------------------------------------------------------


def add_more_prompts(server: Server) -> None:
    """Register a prompt with images and audio, and one that elicits input first."""
    server.add_prompt(conversation, name="media-prompt", title="Prompt with media", icons=[icon()])
    server.add_prompt(asking, name="asking-prompt", title="Prompt that asks", tags={"needs:elicitation.form"})


async def conversation() -> list[Message]:
    """Make a conversation of both sides with a picture and a sound."""
    return [
        UserMessage("Look at this picture:"),
        UserMessage(Image(data=picture())),
        AssistantMessage("I see three rails."),
        UserMessage(Audio(data=sound())),
        UserMessage("And what do you hear?"),
    ]


async def asking(ctx: Context) -> str:
    """Ask the user for a subject, then make the message."""
    answer = await ctx.elicit("What shall the prompt be about?", str, key="subject")
    return f"Write a sentence about {answer.data if answer.accepted else 'nothing in particular'}."
