"""Tasks of other SDKs: their servers and our client, their clients and our server.

The official Python SDK 1.x has the form of 2025-11-25 as an experiment, on both sides; the SDK 2.x has the types of
that revision, and neither client nor server of tasks: its extensions are an interface that FastMCP builds its tasks on
(``fastmcp-tasks``, the form of the extension). The TypeScript SDK 1.x has the form of 2025-11-25 on both sides. The
TypeScript client package 2.x has both forms, with the package of the extension; the server package 2.x has no tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import mcp
import pytest

import trunkline.types as t
from tests.interop.dropin.harness import ARCHIVED
from tests.interop.peers import NEWEST, NEWEST_HANDSHAKE, PROGRAMS, program
from tests.interop.web import FASTMCP, listening, node, program_json
from tests.support import run_async
from trunkline import Client, RequestFailed, ToolError
from trunkline.errors import InvalidParams

T = TypeVar("T")
OFFICIAL1 = ARCHIVED / "python"
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])


def python_program(interpreter: Path, name: str) -> list[str]:
    """Return the command of a program of ours for another environment; skip the test where that is not installed."""
    if not interpreter.exists():
        pytest.skip(f"{interpreter.parents[1].name} is not installed: `make interop` does that")
    return [str(interpreter), "-W", "ignore", str(PROGRAMS / name)]


# --- their servers ---------------------------------------------------------------------------------------------------


class TaskServer(NamedTuple):
    """A server of theirs that can be reached."""

    target: list[str] | str
    revision: str
    agreed: str

    def visit(self, work: Callable[[Client], Awaitable[T]], **options: Any) -> T:
        """Do something with a client that can answer everything."""

        async def main() -> T:
            answers = {"elicitation": lambda question: {"name": "Ann"}, "sampling": lambda question: "hello", **options}
            async with Client(self.target, revision=self.revision, **answers) as client:
                assert client.revision == self.agreed
                return await work(client)

        return run_async(main(), seconds=40)


#: Each server of theirs: its command, what our client is told to speak, and what it then speaks.
SERVERS: dict[str, tuple[Callable[[], list[str]], str, str]] = {
    "typescript": (lambda: node("ts1_tasks_server.mjs"), NEWEST_HANDSHAKE, NEWEST_HANDSHAKE),
    "fastmcp": (lambda: python_program(FASTMCP, "fast_tasks_server.py"), "auto", NEWEST),
    "official1": (lambda: python_program(OFFICIAL1, "official1_tasks_server.py"), "auto", NEWEST_HANDSHAKE),
}
TYPESCRIPT = [("typescript", "stdio"), ("typescript", "http")]
FAST = [("fastmcp", "stdio"), ("fastmcp", "http")]
OFFICIAL = [("official1", "stdio")]


def servers(*ways: tuple[str, str]) -> pytest.MarkDecorator:
    """Run a test for each of these servers and transports."""
    return pytest.mark.parametrize("server", ways, indirect=True, ids="-".join)


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[TaskServer]:
    """One of their servers over one transport."""
    name, transport = request.param
    command, revision, agreed = SERVERS[name]
    if transport == "stdio":
        yield TaskServer(command(), revision, agreed)
        return
    with listening([*command(), "http"]) as url:
        yield TaskServer(url, revision, agreed)


@servers(*TYPESCRIPT, *FAST, *OFFICIAL)
def test_a_call_that_is_a_task_is_waited_for(server: TaskServer) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("double", {"number": 21})).text

    assert server.visit(work) == "42"


@servers(*TYPESCRIPT)
@pytest.mark.parametrize(("tool", "text"), [("double", "42"), ("halve", "10.5")], ids=["required", "optional"])
def test_a_tool_that_was_listed_is_called_as_the_list_says(server: TaskServer, tool: str, text: str) -> None:
    async def work(client: Client) -> tuple[str, str]:
        unlisted = (await client.call_tool(tool, {"number": 21})).text
        await client.list_tools()
        return unlisted, (await client.call_tool(tool, {"number": 21})).text

    assert server.visit(work) == (text, text)


@servers(*TYPESCRIPT, *FAST)
def test_a_handle_of_a_task_has_its_states_and_its_result(server: TaskServer) -> None:
    async def work(client: Client) -> tuple[str, str, str]:
        task = await client.start_task("double", {"number": 4})
        begun = task.status
        last = [state.status async for state in task.updates()][-1]
        return begun, last, (await task.result()).text

    assert server.visit(work) == ("working", "completed", "8")


@servers(*FAST)
def test_a_task_is_found_again_by_its_id(server: TaskServer) -> None:
    async def work(client: Client) -> str:
        started = await client.start_task("double", {"number": 5})
        return (await client.task(started.id, tool="double").result()).text

    assert server.visit(work) == "10"


@servers(*TYPESCRIPT, *FAST, *OFFICIAL)
def test_a_question_of_a_task_is_answered(server: TaskServer) -> None:
    async def work(client: Client) -> str:
        return (await (await client.start_task("greet")).result()).text

    assert server.visit(work) == "Hello, Ann!"


async def greeting_states(client: Client) -> list[str]:
    """Run a task that asks, and return the states that were told."""
    task = await client.start_task("greet")
    return [str(state.status) async for state in task.updates()]


@servers(*TYPESCRIPT)
def test_a_task_of_the_core_that_asks_requires_input(server: TaskServer) -> None:
    assert "input_required" in server.visit(greeting_states)


@servers(*OFFICIAL)
def test_every_state_of_a_task_that_asks_is_told(server: TaskServer) -> None:
    assert server.visit(greeting_states) == ["working", "input_required", "completed"]


@servers(*TYPESCRIPT, *FAST)
def test_a_question_in_a_call_that_is_a_task_is_answered(server: TaskServer) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("greet")).text

    assert server.visit(work) == "Hello, Ann!"


@servers(*TYPESCRIPT, *FAST)
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_question_of_a_task_that_the_user_does_not_answer(server: TaskServer, action: Any) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("greet")).text

    assert server.visit(work, elicitation=lambda question: t.ElicitResult(action=action)) == f"Hello ({action})."


@servers(*TYPESCRIPT, *FAST, *OFFICIAL)
def test_a_failure_of_a_task_is_a_failure_of_the_call(server: TaskServer) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(ToolError, match="out of paper"):
            await client.call_tool("fail")

    server.visit(work)


@servers(*TYPESCRIPT, *FAST)
def test_a_task_that_they_do_not_know_is_an_error(server: TaskServer) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(InvalidParams):
            await client.task("none").refresh()

    server.visit(work)


@servers(*TYPESCRIPT, *FAST, *OFFICIAL)
def test_a_task_is_cancelled(server: TaskServer) -> None:
    async def work(client: Client) -> str:
        task = await client.start_task("wait")
        await task.cancel()
        with pytest.raises(RequestFailed, match="was cancelled"):
            await task.result(timeout=20)
        return task.status

    assert server.visit(work) == "cancelled"


@servers(*TYPESCRIPT)
def test_our_client_runs_their_requests_as_tasks(server: TaskServer) -> None:
    async def work(client: Client) -> tuple[str, str]:
        return (await client.call_tool("ask_model")).text, (await client.call_tool("ask_person")).text

    assert server.visit(work) == ("hello taskCreated", "Ann taskCreated")


# --- their clients ---------------------------------------------------------------------------------------------------


def seen_by(command: list[str], transport: str) -> dict[str, Any]:
    """Let a client of theirs run tasks of our server; return what it saw."""
    if transport == "stdio":
        seen = program_json([*command, *program("ours_tasks.py")], seconds=40)
    else:
        with listening(program("ours_tasks.py", "http")) as url:
            seen = program_json([*command, f"{url}/mcp"], seconds=40)
    assert isinstance(seen, dict)
    return seen


SEEN_BY_OFFICIAL1 = {
    "double": ["completed", "42"],
    "greet": ["input_required", "Hello, Ann!"],
    "fail": ["failed", "out of paper"],
    "broken": [-32050, "the printer is on fire"],
    "cancelled": ["cancelled", "cancelled"],
    "stopped": "true",
}
SEEN_BY_FASTMCP = {
    "transparent": "42",
    "handle": "8",
    "asked": "Hello, Ann!",
    "asked first": "Hello, Ann!",
    "failed": "ToolError: out of paper",
    "broken": "ToolError: the printer is on fire",
    "cancelled": "cancelled",
    "stopped": "true",
}


@TRANSPORTS
def test_a_client_on_the_python_sdk_1_runs_our_tasks(transport: str) -> None:
    assert seen_by(python_program(OFFICIAL1, "official1_tasks_client.py"), transport) == SEEN_BY_OFFICIAL1


@TRANSPORTS
def test_a_client_on_fastmcp_runs_our_tasks(transport: str) -> None:
    assert seen_by(python_program(FASTMCP, "fast_tasks_client.py"), transport) == SEEN_BY_FASTMCP


@TRANSPORTS
def test_the_first_typescript_client_runs_our_tasks(transport: str) -> None:
    seen = seen_by(node("ts1_tasks_client.mjs"), transport)
    assert (seen["support"], seen["kinds"]) == (["optional", "required", None], ["taskCreated", "result"])
    assert (seen["double"], seen["plain"], seen["result"]) == ([False, "42"], "8", "42")
    assert seen["greet"] == [False, "Hello, Ann!"]
    assert (seen["cancelled"].endswith("was cancelled"), seen["status"], seen["stopped"]) == (True, "cancelled", "true")
    # It reads neither the result nor the error of a task that failed.
    assert (seen["fail"].endswith("failed"), seen["broken"].endswith("failed")) == (True, True)
    assert (seen["unknown"], seen["told"]) == (-32602, True)


def test_the_first_typescript_client_lists_our_tasks_where_it_can_be_told_apart() -> None:
    command = node("ts1_tasks_client.mjs")
    assert (seen_by(command, "stdio")["listed"], seen_by(command, "http")["listed"]) == (True, -32601)


@TRANSPORTS
def test_the_first_typescript_client_runs_our_requests_as_tasks(transport: str) -> None:
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
def test_the_second_typescript_client_runs_our_tasks_in_the_form_of_the_extension(transport: str) -> None:
    seen = seen_by(node("ts2_tasks_client.mjs", NEWEST), transport)
    assert seen == {**COMMON, "version": NEWEST, "fail": ["task", "completed", "out of paper"]}


@TRANSPORTS
def test_the_second_typescript_client_runs_our_tasks_in_the_form_of_the_core(transport: str) -> None:
    seen = seen_by(node("ts2_tasks_client.mjs", "legacy"), transport)
    assert (seen.pop("version"), seen.pop("model")) == (NEWEST_HANDSHAKE, "hello ['completed']")
    # It does not read the result of a task that failed, but its status message.
    assert seen.pop("fail") == ["task", "failed", "out of paper"]
    assert seen == COMMON


def test_a_client_on_the_python_sdk_2_waits_for_a_call_and_is_told_what_it_lacks() -> None:
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
