"""Servers for FastMCP that are made of parts: versions, mounted servers, providers, transforms and middleware."""

from typing import Any

import pytest

from tests.compat.test_run import PROGRAMS, RUN
from trunkline import Client, ToolError

COMPOSED = [*RUN, str(PROGRAMS / "fast_composed.py")]


async def test_the_newest_version_is_listed_and_called_unless_another_is_asked_for() -> None:
    async with Client(COMPOSED) as connected:
        composed: Any = connected
        listed = {tool.name: tool for tool in await composed.list_tools()}
        asked = await composed.call_tool("all_convert", {"metres": 10}, meta={"fastmcp": {"version": "1.0"}})

        assert listed["all_convert"].meta["fastmcp"]["versions"] == ["2.0", "1.0"]
        assert (await composed.call_tool("all_convert", {"metres": 10})).text == "10.9 yd"
        assert asked.text == "32.8 ft"


async def test_what_is_mounted_runs_in_its_own_server_with_its_middleware() -> None:
    async with Client(COMPOSED) as connected:
        composed: Any = connected
        assert (await composed.call_tool("all_loud_echo", {"text": "hi"})).text == "HI from child"
        assert (await composed.call_tool("all_far_echo", {"text": "hi"})).text == "HI from child"


async def test_providers_offer_their_components_under_a_namespace() -> None:
    async with Client(COMPOSED) as connected:
        composed: Any = connected
        assert (await composed.call_tool("all_lib_put_away", {"book": "Emma"})).text == "Emma in composed"
        assert (await composed.read_resource("book://all/lib/Emma"))[0].text == "The text of Emma"


async def test_skills_are_resources_and_nothing_outside_of_them_is() -> None:
    async with Client(COMPOSED) as connected:
        composed: Any = connected
        uris = [resource.uri for resource in await composed.list_resources()]

        assert "skill://all/knots/SKILL.md" in uris
        assert (await composed.read_resource("skill://all/knots/bowline.md"))[0].text == "# Bowline\n"
        with pytest.raises(Exception, match=r"not found|escapes|Unknown"):
            await composed.read_resource("skill://all/knots/..%2F..%2Fetc%2Fpasswd")


async def test_operations_of_an_api_are_tools_or_templates_as_they_are_mapped() -> None:
    async with Client(COMPOSED) as connected:
        composed: Any = connected
        fed = await composed.call_tool("all_feed_pet", {"id": 7, "times": 2, "Authorization__header": "x"})

        assert fed.structured_content == {"path": "/pets/7", "query": {"times": "2"}}
        assert '"/pets/7"' in (await composed.read_resource("resource://all/get_pet/7"))[0].text


async def test_middleware_caches_and_limits_results() -> None:
    async with Client(COMPOSED) as connected:
        composed: Any = connected
        counted = [(await composed.call_tool("all_counted")).data for _ in range(2)]
        long = await composed.call_tool("all_long")

        assert counted == [1, 1]
        assert long.text.endswith("[Response truncated due to size limit]")
        assert len(long.text) < 400


async def test_prompts_are_tools_and_what_is_switched_off_is_unknown() -> None:
    async with Client(COMPOSED) as connected:
        composed: Any = connected
        names = [tool.name for tool in await composed.list_tools()]
        rendered = await composed.call_tool("all_get_prompt", {"name": "all_greet", "arguments": {"name": "Ada"}})

        assert "all_list_prompts" not in names
        assert "Hello Ada" in rendered.text
        with pytest.raises(ToolError, match="Unknown tool"):
            await composed.call_tool("all_list_prompts")


async def test_tools_are_found_by_words_and_called_by_name() -> None:
    async with Client([*RUN, str(PROGRAMS / "fast_search.py")]) as connected:
        client: Any = connected
        assert [tool.name for tool in await client.list_tools()] == ["about", "search_tools", "call_tool"]
        found = await client.call_tool("search_tools", {"query": "email somebody"})
        assert [tool["name"] for tool in found.data] == ["send_email"]
        called = await client.call_tool("call_tool", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert called.text == "3"
        with pytest.raises(ToolError, match="cannot be called"):
            await client.call_tool("call_tool", {"name": "call_tool", "arguments": {}})
