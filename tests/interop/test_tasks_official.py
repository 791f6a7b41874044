"""Tasks of the official Python SDK 1.x, which has the form of 2025-11-25 as an experiment, on both sides.

The SDK 2.x has the types of that revision, and neither client nor server of tasks: its extensions are an interface that
FastMCP builds its tasks on.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import mcp
import pytest

from tests.interop.dropin.harness import ARCHIVED
from tests.interop.peers import NEWEST_HANDSHAKE, PROGRAMS, program
from tests.interop.web import listening
from tests.support import run_async
from trunkline import Client, RequestFailed, ToolError

T = TypeVar("T")
PYTHON = ARCHIVED / "python"
with_first_version = pytest.mark.skipif(
    not PYTHON.exists(), reason="the official Python SDK 1.x is not installed: `make interop` does that"
)

# --- its client ------------------------------------------------------------------------------------------------------

SEEN = {
    "double": ["completed", "42"],
    "greet": ["input_required", "Hello, Ann!"],
    "fail": ["failed", "out of paper"],
    "broken": [-32050, "the printer is on fire"],
    "cancelled": ["cancelled", "cancelled"],
    "stopped": "true",
}


def seen_by_its_client(*target: str) -> Any:
    command = [str(PYTHON), "-W", "ignore", str(PROGRAMS / "official1_tasks_client.py"), *target]
    done = subprocess.run(command, capture_output=True, timeout=40, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@with_first_version
def test_its_client_runs_our_tasks_over_stdio() -> None:
    assert seen_by_its_client(*program("ours_tasks.py")) == SEEN


@with_first_version
def test_its_client_runs_our_tasks_over_http() -> None:
    with listening(program("ours_tasks.py", "http")) as url:
        assert seen_by_its_client(f"{url}/mcp") == SEEN


# --- its server ------------------------------------------------------------------------------------------------------


def visit(work: Callable[[Client], Awaitable[T]]) -> T:
    async def main() -> T:
        command = [str(PYTHON), "-W", "ignore", str(PROGRAMS / "official1_tasks_server.py")]
        async with Client(command, elicitation=lambda question: {"name": "Ann"}) as client:
            assert client.revision == NEWEST_HANDSHAKE
            return await work(client)

    return run_async(main(), seconds=40)


@with_first_version
def test_our_client_calls_a_tool_that_must_be_a_task() -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("double", {"number": 21})).text

    assert visit(work) == "42"


@with_first_version
def test_our_client_answers_the_question_of_a_task() -> None:
    async def work(client: Client) -> tuple[list[str], str]:
        task = await client.start_task("greet")
        statuses = [str(state.status) async for state in task.updates()]
        return statuses, (await task.result()).text

    assert visit(work) == (["working", "input_required", "completed"], "Hello, Ann!")


@with_first_version
def test_our_client_hears_that_a_task_failed() -> None:
    async def work(client: Client) -> None:
        with pytest.raises(ToolError, match="out of paper"):
            await client.call_tool("fail")

    visit(work)


@with_first_version
def test_our_client_cancels_a_task() -> None:
    async def work(client: Client) -> str:
        task = await client.start_task("wait")
        await task.cancel()
        with pytest.raises(RequestFailed, match="was cancelled"):
            await task.result(timeout=20)
        return task.status

    assert visit(work) == "cancelled"


# --- the SDK 2.x -----------------------------------------------------------------------------------------------------


def test_its_second_client_waits_for_a_call_and_is_told_what_it_lacks() -> None:
    async def main() -> tuple[str, int, Any]:
        command = program("ours_tasks.py")
        parameters = mcp.StdioServerParameters(command=command[0], args=command[1:])
        async with mcp.Client(mcp.stdio_client(parameters), read_timeout_seconds=20) as client:
            doubled = await client.call_tool("double", {"number": 21})
            with pytest.raises(mcp.MCPError) as lacking:
                await client.call_tool("triple", {"number": 14})
            error = lacking.value.error
            return doubled.content[0].text, error.code, error.data  # type: ignore[union-attr]

    text, code, data = run_async(main(), seconds=40)
    assert (text, code) == ("42", -32021)
    assert list(data["requiredCapabilities"]["extensions"]) == ["io.modelcontextprotocol/tasks"]
