"""Tasks of FastMCP (``fastmcp-tasks``), in the form of the extension: its server and our client, and the reverse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

import trunkline.types as t
from tests.interop.peers import NEWEST, PROGRAMS, program
from tests.interop.web import FASTMCP, listening
from tests.support import run_async
from trunkline import Client, RequestFailed, ToolError
from trunkline.errors import InvalidParams

T = TypeVar("T")
pytestmark = pytest.mark.skipif(not FASTMCP.exists(), reason="FastMCP is not installed: `make interop` does that")
SERVER = [str(FASTMCP), str(PROGRAMS / "fast_tasks_server.py")]


def ann(question: t.ElicitRequestParams) -> Any:
    return {"name": "Ann"}


# --- their server ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[list[str] | str]:
    """How their server is reached."""
    if request.param == "stdio":
        yield SERVER
        return
    with listening([*SERVER, "http"]) as url:
        yield url


def visit(target: list[str] | str, work: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with Client(target, **options) as client:
            assert client.revision == NEWEST
            return await work(client)

    return run_async(main(), seconds=40)


def test_a_call_that_their_server_runs_as_a_task_is_waited_for(target: list[str] | str) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("double", {"number": 21})).text

    assert visit(target, work) == "42"


def test_a_handle_of_their_task_has_its_states_and_its_result(target: list[str] | str) -> None:
    async def work(client: Client) -> tuple[str, str, str]:
        task = await client.start_task("double", {"number": 4})
        begun = task.status
        last = [state.status async for state in task.updates()][-1]
        return begun, last, (await task.result()).text

    assert visit(target, work) == ("working", "completed", "8")


def test_a_task_of_theirs_is_found_again_by_its_id(target: list[str] | str) -> None:
    async def work(client: Client) -> str:
        started = await client.start_task("double", {"number": 5})
        return (await client.task(started.id, tool="double").result()).text

    assert visit(target, work) == "10"


def test_a_question_of_their_task_is_answered(target: list[str] | str) -> None:
    async def work(client: Client) -> tuple[str, str]:
        task = await client.start_task("greet")
        return (await task.result()).text, (await client.call_tool("greet")).text

    assert visit(target, work, elicitation=ann) == ("Hello, Ann!", "Hello, Ann!")


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_question_of_their_task_that_the_user_does_not_answer(target: list[str] | str, action: Any) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("greet")).text

    assert visit(target, work, elicitation=lambda question: t.ElicitResult(action=action)) == f"Hello ({action})."


def test_a_failure_of_their_tool_is_a_failure_of_ours(target: list[str] | str) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(ToolError, match="out of paper"):
            await client.call_tool("fail")

    visit(target, work)


def test_their_task_is_cancelled(target: list[str] | str) -> None:
    async def work(client: Client) -> str:
        task = await client.start_task("wait")
        await task.cancel()
        with pytest.raises(RequestFailed, match="was cancelled"):
            await task.result(timeout=20)
        return task.status

    assert visit(target, work) == "cancelled"


def test_a_task_that_they_do_not_know_is_an_error(target: list[str] | str) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(InvalidParams):
            await client.task("none").refresh()

    visit(target, work)


# --- their client ----------------------------------------------------------------------------------------------------

SEEN = {
    "transparent": "42",
    "handle": "8",
    "asked": "Hello, Ann!",
    "asked first": "Hello, Ann!",
    "failed": "ToolError: out of paper",
    "broken": "ToolError: the printer is on fire",
    "cancelled": "cancelled",
    "stopped": "true",
}


def seen_by_their_client(*target: str) -> Any:
    command = [str(FASTMCP), str(PROGRAMS / "fast_tasks_client.py"), *target]
    done = subprocess.run(command, capture_output=True, timeout=40, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_their_client_runs_our_tasks_over_stdio() -> None:
    assert seen_by_their_client(*program("ours_tasks.py")) == SEEN


def test_their_client_runs_our_tasks_over_http() -> None:
    with listening(program("ours_tasks.py", "http")) as url:
        assert seen_by_their_client(f"{url}/mcp") == SEEN
