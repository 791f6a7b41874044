"""Tasks of the official TypeScript packages.

The SDK 1.x has the form of 2025-11-25 on both sides. The client package 2.x has both forms, with the package of the
extension. The server package 2.x has no tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

import trunkline.types as t
from tests.interop.peers import NEWEST, NEWEST_HANDSHAKE, program
from tests.interop.web import listening, node, node_json
from tests.support import run_async
from trunkline import Client, RequestFailed, ToolError
from trunkline.errors import InvalidParams

T = TypeVar("T")
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])


def seen_by(command: list[str], transport: str) -> dict[str, Any]:
    """Let a client of theirs run tasks of our server; give what it saw."""
    if transport == "stdio":
        seen = node_json([*command, *program("ours_tasks.py")], seconds=40)
    else:
        with listening(program("ours_tasks.py", "http")) as url:
            seen = node_json([*command, f"{url}/mcp"], seconds=40)
    assert isinstance(seen, dict)
    return seen


# --- their clients ---------------------------------------------------------------------------------------------------


@TRANSPORTS
def test_the_first_client_runs_our_tasks(transport: str) -> None:
    seen = seen_by(node("ts1_tasks_client.mjs"), transport)
    assert (seen["support"], seen["kinds"]) == (["optional", "required", None], ["taskCreated", "result"])
    assert (seen["double"], seen["plain"], seen["result"]) == ([False, "42"], "8", "42")
    assert seen["greet"] == [False, "Hello, Ann!"]
    assert (seen["cancelled"].endswith("was cancelled"), seen["status"], seen["stopped"]) == (True, "cancelled", "true")
    # It reads neither the result nor the error of a task that failed.
    assert (seen["fail"].endswith("failed"), seen["broken"].endswith("failed")) == (True, True)
    assert (seen["unknown"], seen["told"]) == (-32602, True)


def test_the_first_client_lists_our_tasks_where_it_can_be_told_apart() -> None:
    command = node("ts1_tasks_client.mjs")
    assert (seen_by(command, "stdio")["listed"], seen_by(command, "http")["listed"]) == (True, -32601)


@TRANSPORTS
def test_the_first_client_runs_our_requests_as_tasks(transport: str) -> None:
    seen = seen_by(node("ts1_tasks_client.mjs"), transport)
    assert (seen["model"], seen["person"]) == ("hello ['completed']", "Ann ['completed']")


COMMON = {
    "double": ["task", "completed", "42"],
    "greet": ["task", "completed", "Hello, Ann!"],
    "greet first": ["task", "completed", "Hello, Ann!"],
    "broken": ["task", "failed", "the printer is on fire"],
    "cancelled": ["task", "cancelled", None],
    "stopped": "true",
}


@TRANSPORTS
def test_the_second_client_runs_our_tasks_in_the_form_of_the_extension(transport: str) -> None:
    seen = seen_by(node("ts2_tasks_client.mjs", NEWEST), transport)
    assert seen == {**COMMON, "version": NEWEST, "fail": ["task", "completed", "out of paper"]}


@TRANSPORTS
def test_the_second_client_runs_our_tasks_in_the_form_of_the_core(transport: str) -> None:
    seen = seen_by(node("ts2_tasks_client.mjs", "legacy"), transport)
    assert (seen.pop("version"), seen.pop("model")) == (NEWEST_HANDSHAKE, "hello ['completed']")
    # It does not read the result of a task that failed, but its status message.
    assert seen.pop("fail") == ["task", "failed", "out of paper"]
    assert seen == COMMON


# --- the server of their SDK 1.x -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[list[str] | str]:
    """How their server is reached."""
    command = node("ts1_tasks_server.mjs")
    if request.param == "stdio":
        yield command
        return
    with listening([*command, "http"]) as url:
        yield url


def visit(target: list[str] | str, work: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        answers = {"elicitation": lambda question: {"name": "Ann"}, "sampling": lambda question: "hello", **options}
        async with Client(target, revision=NEWEST_HANDSHAKE, **answers) as client:
            return await work(client)

    return run_async(main(), seconds=40)


@pytest.mark.parametrize(("tool", "text"), [("double", "42"), ("halve", "10.5")], ids=["required", "optional"])
def test_our_client_calls_a_tool_that_is_a_task(target: list[str] | str, tool: str, text: str) -> None:
    async def work(client: Client) -> tuple[str, str]:
        unlisted = (await client.call_tool(tool, {"number": 21})).text
        await client.list_tools()
        return unlisted, (await client.call_tool(tool, {"number": 21})).text

    assert visit(target, work) == (text, text)


def test_our_client_follows_a_task(target: list[str] | str) -> None:
    async def work(client: Client) -> tuple[str, str, str]:
        task = await client.start_task("double", {"number": 4})
        begun = task.status
        last = [state.status async for state in task.updates()][-1]
        return begun, last, (await task.result()).text

    assert visit(target, work) == ("working", "completed", "8")


def test_our_client_answers_the_question_of_a_task(target: list[str] | str) -> None:
    async def work(client: Client) -> tuple[str, list[str], str]:
        task = await client.start_task("greet")
        statuses = [str(state.status) async for state in task.updates()]
        return (await task.result()).text, statuses, (await client.call_tool("greet")).text

    greeting, statuses, again = visit(target, work)
    assert (greeting, again) == ("Hello, Ann!", "Hello, Ann!")
    assert "input_required" in statuses


def test_our_client_declines_the_question_of_a_task(target: list[str] | str) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("greet")).text

    assert visit(target, work, elicitation=lambda question: t.ElicitResult(action="decline")) == "Hello (decline)."


def test_our_client_hears_that_a_task_failed(target: list[str] | str) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(ToolError, match="out of paper"):
            await client.call_tool("fail")
        with pytest.raises(InvalidParams):
            await client.task("none").refresh()

    visit(target, work)


def test_our_client_cancels_a_task(target: list[str] | str) -> None:
    async def work(client: Client) -> str:
        task = await client.start_task("wait")
        await task.cancel()
        with pytest.raises(RequestFailed, match="was cancelled"):
            await task.result(timeout=20)
        return task.status

    assert visit(target, work) == "cancelled"


def test_our_client_runs_their_requests_as_tasks(target: list[str] | str) -> None:
    async def work(client: Client) -> tuple[str, str]:
        return (await client.call_tool("ask_model")).text, (await client.call_tool("ask_person")).text

    assert visit(target, work) == ("hello taskCreated", "Ann taskCreated")
