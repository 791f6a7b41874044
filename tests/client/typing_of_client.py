"""What the type checker infers of a client's methods and results.

mypy reads this file with all the others and fails where an ``assert_type`` does not hold; nothing of it is run.
"""

from __future__ import annotations

from typing import Any, assert_type

import trunkline
import trunkline.types as t
from trunkline import Client
from trunkline.client import CallResult, Change, ClientState


async def results_have_the_types_of_the_protocol(client: Client) -> None:
    """Lists, contents and completions."""
    assert_type(await client.list_tools(), list[t.Tool])
    assert_type(await client.list_resources(), list[t.Resource])
    assert_type(await client.list_resource_templates(), list[t.ResourceTemplate])
    assert_type(await client.list_prompts(), list[t.Prompt])
    assert_type(await client.read_resource("a://b"), list[t.ResourceContents])
    assert_type(await client.get_prompt("greet", {"name": "Ada"}), t.GetPromptResult)
    reference = t.PromptReference(name="greet")
    assert_type(await client.complete(reference, {"name": "name", "value": "A"}), t.Completion)


async def a_call_has_one_result(client: Client) -> None:
    """Whose text is a string, and whose data is whatever the tool returns."""
    result = await client.call_tool("add", {"a": 1, "b": 2}, timeout=5)
    assert_type(result, CallResult)
    assert_type(result.text, str)
    assert_type(result.is_error, bool)
    assert_type(result.data, Any)
    await client.call_tool("add", timout=5)  # type: ignore[call-arg]


async def a_client_has_a_state(client: Client) -> None:
    """And the properties of its server."""
    assert_type(client.state, ClientState)
    assert_type(client.revision, str | None)
    assert_type(client.server_info, t.Implementation | None)
    async for change in client.listen(tools=True):
        assert_type(change, Change)


def an_unknown_name_is_reported() -> None:
    """Although names are loaded on first access."""
    trunkline.Servr  # type: ignore[attr-defined]  # noqa: B018
    Client("server.py", timout=5)  # type: ignore[call-arg]
