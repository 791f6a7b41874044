"""Extensions, tasks, sessions, shared values, pages and completions of FastMCP servers, as clients see them."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from trunkline import Client, ToolError

PROGRAM = Path(__file__).parent / "programs" / "fast_features.py"
RUN = [sys.executable, "-m", "trunkline", "run", "--compat", str(PROGRAM)]
QUESTIONS = [*RUN[:-1], str(PROGRAM.with_name("fast_questions.py"))]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


async def test_an_extension_adds_a_capability_a_method_and_sees_calls() -> None:
    async with Client(RUN) as connected:
        client: Any = connected
        # Brought along by the mounted server, and bound to the one around it.
        assert client.server_capabilities["extensions"]["com.acme/echo"] == {"loud": True}
        assert (await client.request("acme/echo", {"text": "hi"}))["text"] == "features: hi"
        await client.call_tool("greet", {"name": "Ann"})
        found = (await client.call_tool("events")).data
        assert found["events"] == ["first", "second", "call greet", "counter made", "call events"]
        assert found["lifespan"] == {"a": 1, "b": 2}


async def test_dependencies_take_arguments_of_the_call_and_values_of_the_server() -> None:
    async with Client(RUN) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert list(tools["greet"].input_schema["properties"]) == ["name"]
        assert (await client.call_tool("greet", {"name": "Ann"})).text == "Hello, Ann! 1"
        assert (await client.call_tool("greet", {"name": "Bob"})).text == "Hello, Bob! 2"


async def test_sessions_keep_state_under_an_id_that_was_created() -> None:
    async with Client(RUN) as client:
        session_id = (await client.call_tool("create_session")).text
        await client.call_tool("remember", {"word": "a", "session_id": session_id})
        assert (await client.call_tool("remember", {"word": "b", "session_id": session_id})).data == ["a", "b"]
        with pytest.raises(ToolError, match="session id"):
            await client.call_tool("remember", {"word": "a", "session_id": "guessed"})
        await client.call_tool("end_session", {"session_id": session_id})
        with pytest.raises(ToolError, match="session id"):
            await client.call_tool("remember", {"word": "a", "session_id": session_id})


async def test_lists_have_pages_and_hints_and_anything_is_completed() -> None:
    async with Client(RUN) as connected:
        client: Any = connected
        page = await client.list_page("tools/list")
        assert (len(page.tools), page.ttl_ms, page.cache_scope) == (2, 60000, "public")
        assert len(await client.list_tools()) == 6
        found = await client.complete(t.PromptReference(name="unknown"), {"name": "x", "value": "r"})
        assert found.values == ["red"]


async def test_a_call_becomes_a_task_for_clients_that_declare_it() -> None:
    async with Client(RUN) as client:
        assert (await client.call_tool("slow")).text == "done"
    process = await asyncio.create_subprocess_exec(
        *RUN, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None

    async def ask(method: str, **params: Any) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        while True:
            answer = json.loads(await asyncio.wait_for(process.stdout.readline(), 10))
            if "id" in answer:
                return answer["result"]

    try:
        created = found = await ask("tools/call", name="slow", arguments={})
        assert (created["resultType"], created["status"]) == ("task", "working")
        while found["status"] == "working":
            await asyncio.sleep(0.01)
            found = await ask("tasks/get", taskId=created["taskId"])
        assert found["status"] == "completed"
        assert found["result"]["structuredContent"] == {"result": "done"}
    finally:
        process.stdin.close()
        await process.wait()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("read_resource", {"uri": "greeting://Hello"}), ("get_prompt", {"name": "greet", "arguments": {"word": "Hello"}})],
)
async def test_a_generated_tool_asks_what_its_resource_or_prompt_asks(tool: str, arguments: dict[str, Any]) -> None:
    async def answer(params: t.ElicitRequestParams) -> dict[str, Any]:
        return {"name": "Ann"}

    async with Client(QUESTIONS, elicitation=answer) as client:
        assert "Hello, Ann" in (await client.call_tool(tool, arguments)).text


async def test_middleware_and_tool_share_the_values_of_a_request() -> None:
    async with Client(QUESTIONS) as client:
        assert (await client.call_tool("is_shared")).data is True
        first = (await client.call_tool("session_id")).text
        assert (await client.call_tool("session_id")).text == first


def test_a_store_in_memory_drops_what_was_stored_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    from trunkline.compat.features import state

    monkeypatch.setattr(state, "_MOST_VALUES", 2)

    async def main() -> list[object]:
        store = state.MemoryStorage()
        for key in ("a", "b", "a", "c"):
            await store.put(key, key.upper())
        return [await store.get(key) for key in ("a", "b", "c")]

    assert asyncio.run(main()) == ["A", None, "C"]
