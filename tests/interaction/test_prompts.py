"""Prompts and completion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interaction.rows import SINCE_2025_06, behaviour
from tests.interaction.wire import Wire
from trunkline import Server

PLAIN = {"name", "description", "arguments"}
MEMBERS = {
    "2024-11-05": PLAIN,
    "2025-03-26": PLAIN,
    "2025-06-18": PLAIN | {"title"},
    "2025-11-25": PLAIN | {"title", "icons"},
    "2026-07-28": PLAIN | {"title", "icons"},
}
GREET = {"type": "ref/prompt", "name": "greet"}
MAP = {"type": "ref/resource", "uri": "city://{name}/map"}


def completing(ref: dict[str, str], name: str, value: str, **context: Any) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": name, "value": value}} | ({"context": context} if context else {})


@behaviour("prompts.list", "2025-11-25 server/prompts#listing-prompts")
async def test_a_prompt_is_listed_with_its_arguments(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        prompt = (await peer.result("prompts/list"))["prompts"][0]
        name, tone = prompt["arguments"]
        assert (name["name"], name["description"], name["required"]) == ("name", "whom", True)
        assert (tone["name"], tone.get("required", False)) == ("tone", False)


@behaviour("prompts.list-members", "2025-11-25 server/prompts#prompt")
async def test_a_prompt_is_listed_with_the_members_that_the_revision_has(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert set((await peer.result("prompts/list"))["prompts"][0]) == MEMBERS[wire.revision]


@behaviour("prompts.get", "2025-11-25 server/prompts#getting-a-prompt")
async def test_a_prompt_is_filled_in(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.result("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})
        assert result["description"].startswith("Greet somebody.")
        assert result["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "Greet Ada, be kind."}},
            {"role": "assistant", "content": {"type": "text", "text": "Hello!"}},
        ]


@behaviour("prompts.content", "2025-11-25 server/prompts#promptmessage")
async def test_a_prompt_has_pictures_sounds_and_resources(wire: Wire) -> None:
    sounds = {"2024-11-05": "text"}
    async with wire.open("catalog") as peer:
        messages = (await peer.result("prompts/get", {"name": "show"}))["messages"]
        types = [message["content"]["type"] for message in messages]
        assert types == ["image", sounds.get(wire.revision, "audio"), "resource"]


@behaviour("prompts.unknown", "2025-11-25 server/prompts#error-handling")
async def test_an_unknown_prompt_is_invalid(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error("prompts/get", {"name": "nope"})
        assert (error["code"], "nope" in error["message"]) == (-32602, True)


@behaviour("prompts.arguments-wrong", "2025-11-25 server/prompts#implementation-considerations")
@pytest.mark.parametrize("arguments", [{}, {"name": 5}, {"name": "a", "colour": "red"}, {"tone": "sharp"}])
async def test_missing_wrong_and_unknown_arguments_are_invalid(wire: Wire, arguments: dict[str, Any]) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.error("prompts/get", {"name": "greet", "arguments": arguments}))["code"] == -32602


@behaviour("prompts.failure", "2025-11-25 server/prompts#error-handling")
async def test_an_unexpected_failure_of_a_prompt_has_no_internal_details(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error("prompts/get", {"name": "broken"})
        assert (error["code"], "hunter2" in json.dumps(error)) == (-32603, False)


# --- completion ------------------------------------------------------------------------------------------------------


@behaviour("completion.template", "2025-11-25 server/utilities/completion#requesting-completions")
async def test_a_variable_of_a_template_is_completed(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.result("completion/complete", completing(MAP, "name", "Os"))
        assert result["completion"]["values"] == ["Oslo", "Osaka"]


@behaviour("completion.limit", "2025-11-25 server/utilities/completion#completion-results")
async def test_at_most_a_hundred_values_are_given_and_the_rest_is_counted(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        completion = (await peer.result("completion/complete", completing(GREET, "name", "A")))["completion"]
        assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 150, True)


@behaviour("completion.context", "2025-06-18 server/utilities/completion#requesting-completions", SINCE_2025_06)
async def test_arguments_filled_in_before_are_taken_into_account(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        params = completing(GREET, "tone", "kind", arguments={"name": "Ada"})
        assert (await peer.result("completion/complete", params))["completion"]["values"] == ["kind to Ada"]


@behaviour("completion.unknown", "2025-11-25 server/utilities/completion#error-handling")
@pytest.mark.parametrize(
    "params",
    [
        completing({"type": "ref/prompt", "name": "nope"}, "name", "A"),
        completing(GREET, "nope", "A"),
        completing({"type": "ref/tool", "name": "add"}, "a", "A"),
        {"ref": GREET},
    ],
    ids=["prompt", "argument", "kind of reference", "no argument"],
)
async def test_a_reference_or_argument_that_is_unknown_is_invalid(wire: Wire, params: dict[str, Any]) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.error("completion/complete", params))["code"] == -32602


@behaviour("completion.nothing", "2025-11-25 server/utilities/completion#completion-results")
async def test_an_argument_that_nothing_completes_has_no_values(wire: Wire) -> None:
    ref = {"type": "ref/resource", "uri": "file:///{+path}"}
    async with wire.open("catalog") as peer:
        result = await peer.result("completion/complete", completing(ref, "path", "a"))
        assert result["completion"]["values"] == []


@behaviour("completion.any", "2025-11-25 server/utilities/completion#requesting-completions")
async def test_one_function_can_complete_everything(wire: Wire) -> None:
    server = Server("any", version="1")

    @server.prompt
    async def greet(name: str) -> str:
        return name

    @server.completion
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        return [f"{ref.name} {argument.name} {argument.value}"]

    async with wire.open(server) as peer:
        result = await peer.result("completion/complete", completing(GREET, "name", "A"))
        assert result["completion"]["values"] == ["greet name A"]


@behaviour("completion.undeclared", "2025-11-25 server/utilities/completion#error-handling")
async def test_a_server_without_completion_does_not_have_the_method(wire: Wire) -> None:
    async with wire.open("paged") as peer:
        params = completing({"type": "ref/prompt", "name": "a"}, "x", "A")
        assert (await peer.error("completion/complete", params))["code"] == -32601
