"""Tools: how they are listed, how they are called, how they fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct

import trunkline.types as t
from tests.server.talk import ERAS, FORMS, HANDSHAKE, STATELESS, accept, again, call, reach, text
from trunkline import Client, Context, Server, ToolError
from trunkline.errors import InvalidParams, RequestFailed
from trunkline.server.results import ToolResult

OBJECT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def serving(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("s", mask_error_details=options.pop("mask", True))
    server.add_tool(function, **{"name": "f", **options})
    return server


def listed(server: Server) -> t.Tool:
    return server.registry.tools["f"].listed()


# --- listing ---------------------------------------------------------------------------------------------------------


def test_a_tool_is_listed_with_all_its_options() -> None:
    async def f(a: int) -> int:
        """Add one."""
        return a

    icon = t.Icon(src="https://example.com/i.png")
    hints = {"readOnlyHint": True}
    tool = listed(serving(f, title="Plus", icons=[icon], annotations=hints, meta={"a": 1}, tags=["x"]))
    assert (tool.title, tool.description, tool.icons, tool.meta) == ("Plus", "Add one.", [icon], {"a": 1})
    assert tool.annotations == t.ToolAnnotations(read_only_hint=True)


def test_a_description_given_wins_over_the_docstring() -> None:
    def f() -> None:
        """Do it."""

    assert listed(serving(f, description="Else.")).description == "Else."


def test_annotations_may_be_a_record() -> None:
    hints = t.ToolAnnotations(title="T")
    assert listed(serving(lambda: 1, annotations=hints)).annotations == hints


def test_annotations_of_a_wrong_type_are_rejected_at_registration() -> None:
    with pytest.raises(TypeError, match="annotations: Expected `bool"):
        serving(lambda: 1, annotations={"readOnlyHint": "very"})


def test_excluded_arguments_are_not_in_the_schema_and_keep_their_default() -> None:
    def f(a: int, secret: int = 5) -> int:
        return a + secret

    server = serving(f, exclude_args=["secret"])
    assert list(listed(server).input_schema["properties"]) == ["a"]
    assert text(call(server, "f", a=1)) == "6"


def test_an_excluded_argument_cannot_be_sent() -> None:
    def f(a: int, secret: int = 5) -> int:
        return a + secret

    result = call(serving(f, exclude_args=["secret"]), "f", a=1, secret=2)
    assert (result["isError"], "secret" in text(result)) == (True, True)


@pytest.mark.parametrize("option", [{"output_schema": None}, {"structured_output": False}], ids=str)
def test_a_result_may_be_left_unstructured(option: dict[str, Any]) -> None:
    async def f() -> dict[str, int]:
        return {"n": 1}

    server = serving(f, **option)
    assert (listed(server).output_schema, call(server, "f").get("structuredContent")) == (None, None)


# --- schemas written by hand -----------------------------------------------------------------------------------------


def test_a_given_schema_is_listed_as_it_is() -> None:
    assert listed(serving(lambda **given: given, input_schema=OBJECT)).input_schema == OBJECT


@ERAS
def test_a_function_with_a_given_schema_gets_what_the_schema_lets_pass(revision: str) -> None:
    server = serving(lambda **given: sorted(given.items()), input_schema=OBJECT)
    assert text(call(server, "f", revision, n=1, other="x")) == '[["n",1],["other","x"]]'


@ERAS
def test_arguments_that_break_a_given_schema_are_named(revision: str) -> None:
    result = call(serving(lambda **given: given, input_schema=OBJECT), "f", revision, n="many")
    assert (result["isError"], text(result).startswith("/n: expected integer")) == (True, True)


@ERAS
def test_missing_arguments_of_a_given_schema_are_named(revision: str) -> None:
    result = call(serving(lambda **given: given, input_schema=OBJECT), "f", revision)
    assert (result["isError"], '"n"' in text(result)) == (True, True)


def test_a_function_with_a_given_schema_gets_its_context() -> None:
    async def f(ctx: Context, **given: Any) -> str:
        return f"{ctx.method} {given}"

    assert text(call(serving(f, input_schema=OBJECT), "f", n=1)) == "tools/call {'n': 1}"


def test_a_sync_function_with_a_given_schema_gets_its_context() -> None:
    def f(ctx: Context, n: int) -> str:
        return f"{ctx.method} {n}"

    assert text(call(serving(f, input_schema=OBJECT), "f", n=1)) == "tools/call 1"


@ERAS
async def test_arguments_that_are_not_an_object_are_rejected(revision: str) -> None:
    async with reach(serving(lambda **given: given, input_schema=OBJECT), revision) as peer:
        assert (await peer.error("tools/call", {"name": "f", "arguments": [1]}))["code"] == -32602


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"n": 1, "m": 2}, "unknown argument 'm'; the arguments are 'n'", id="one it cannot be given"),
        pytest.param(
            {"n": 1, "ctx": 2}, "unknown argument 'ctx'; the arguments are 'n'", id="the place of the context"
        ),
        pytest.param({}, "missing argument 'n'", id="one it needs and the schema does not"),
    ],
)
def test_arguments_that_match_the_schema_but_not_the_function_are_named(given: dict[str, Any], said: str) -> None:
    def f(n: int, ctx: Context) -> str:
        """Never run."""
        raise AssertionError(n)

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    result = call(serving(f, input_schema=schema), "f", **given)

    assert (result["isError"], text(result)) == (True, said)


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"properties": {}}], ids=str)
def test_an_input_schema_of_no_object_is_rejected(schema: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match='tool \'f\': input_schema needs "type": "object"'):
        serving(lambda: 1, input_schema=schema)


def test_an_invalid_schema_is_rejected_at_registration() -> None:
    with pytest.raises(TypeError, match="tool 'f': output_schema"):
        serving(lambda: 1, output_schema={"type": "nonsense"})


@ERAS
def test_a_result_that_fits_its_given_schema_is_structured(revision: str) -> None:
    assert call(serving(lambda: {"n": 1}, output_schema=OBJECT), "f", revision)["structuredContent"] == {"n": 1}


@ERAS
@pytest.mark.parametrize("value", [{"n": "x"}, "text", None], ids=["wrong-type", "text", "nothing"])
def test_a_result_that_violates_its_given_schema_is_not_sent(revision: str, value: Any) -> None:
    result = call(serving(lambda: value, output_schema=OBJECT), "f", revision)
    assert (result["isError"], text(result)) == (True, "Tool 'f' failed: its result does not match its output schema.")


def test_a_failure_need_not_fit_the_output_schema() -> None:
    failed = ToolResult("no", is_error=True)
    result = call(serving(lambda: failed, output_schema=OBJECT), "f")
    assert (result["isError"], text(result)) == (True, "no")


# --- arguments in headers --------------------------------------------------------------------------------------------

Region = Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]
Price = Annotated[float, Meta(extra_json_schema={"x-mcp-header": "Price"})]
Spaced = Annotated[str, Meta(extra_json_schema={"x-mcp-header": "no good"})]


def test_an_argument_in_a_header_is_listed() -> None:
    def f(region: Region) -> str:
        return region

    assert listed(serving(f)).input_schema["properties"]["region"]["x-mcp-header"] == "Region"


@pytest.mark.parametrize(
    ("kind", "reason"), [(Price, "needs a property"), (Spaced, "not a header name")], ids=["type", "name"]
)
def test_an_argument_that_no_header_can_hold_is_rejected_at_registration(kind: Any, reason: str) -> None:
    def f(value: str) -> str:
        return value

    f.__annotations__["value"] = kind
    with pytest.raises(TypeError, match=f"tool 'f': .*{reason}"):
        serving(f)


def test_two_arguments_in_one_header_are_rejected() -> None:
    def f(a: Region, b: Region) -> str:
        return a + b

    with pytest.raises(TypeError, match="one header, Mcp-Param-Region"):
        serving(f)


def test_headers_of_a_given_schema_are_checked_too() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}}
    with pytest.raises(TypeError, match="needs a property whose"):
        serving(lambda **given: given, input_schema=schema)


# --- failing ---------------------------------------------------------------------------------------------------------


def failing(error: BaseException) -> Callable[[], None]:
    def f() -> None:
        raise error

    return f


@ERAS
def test_a_tool_error_is_shown_to_the_model(revision: str) -> None:
    result = call(serving(failing(ToolError("no such city"))), "f", revision)
    assert (result["isError"], text(result)) == (True, "no such city")


@ERAS
def test_an_unexpected_error_is_masked(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    result = call(serving(failing(ValueError("password=1234"))), "f", revision)
    assert (result["isError"], text(result)) == (True, "Tool 'f' failed unexpectedly.")
    assert "password=1234" in caplog.text


def test_error_details_can_be_shown() -> None:
    assert text(call(serving(failing(ValueError("division")), mask=False), "f")) == "division"


def test_a_tool_that_raises_system_exit_has_failed() -> None:
    assert text(call(serving(failing(SystemExit(2)), thread=False), "f")) == "Tool 'f' failed unexpectedly."


@ERAS
async def test_a_request_failed_error_keeps_its_code_and_data(revision: str) -> None:
    refusal = RequestFailed("Not now", code=-32050, data={"retry": 5})
    async with reach(serving(failing(refusal)), revision) as peer:
        error = await peer.error("tools/call", {"name": "f"})
    assert error == {"code": -32050, "message": "Not now", "data": {"retry": 5}}


def test_a_result_of_the_wrong_type_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def f() -> int:
        return "text"  # type: ignore[return-value]

    result = call(serving(f), "f")
    assert (result["isError"], "does not match its output schema" in text(result)) == (True, True)
    assert "the result of tool 'f' does not match its output schema" in caplog.text


# --- what a task group raises ----------------------------------------------------------------------------------------


def grouped(error: Exception) -> Callable[[], Any]:
    async def fails() -> None:
        raise error

    async def f() -> None:
        async with asyncio.TaskGroup() as group, asyncio.TaskGroup() as inner:
            group.create_task(asyncio.sleep(0))
            inner.create_task(fails())

    return f


def test_a_tool_error_in_a_task_group_is_shown_to_the_model() -> None:
    assert text(call(serving(grouped(ToolError("half failed"))), "f")) == "half failed"


def test_an_unexpected_error_in_a_task_group_is_masked(caplog: pytest.LogCaptureFixture) -> None:
    assert text(call(serving(grouped(ValueError("secret"))), "f")) == "Tool 'f' failed unexpectedly."
    assert "secret" in caplog.text


def test_error_details_of_a_task_group_can_be_shown() -> None:
    assert "sub-exception" in text(call(serving(grouped(ValueError("x")), mask=False), "f"))


async def test_a_request_failed_error_in_a_task_group_is_raised() -> None:
    async with reach(serving(grouped(InvalidParams("Not so"))), HANDSHAKE) as peer:
        assert (await peer.error("tools/call", {"name": "f"}))["message"] == "Not so"


async def _asks_in_a_group(ctx: Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.elicit("Name?", str))


async def test_a_missing_capability_in_a_task_group_is_named_in_the_stateless_era() -> None:
    async with reach(serving(_asks_in_a_group), STATELESS) as peer:
        assert (await peer.error("tools/call", {"name": "f"}))["code"] == -32021


async def test_a_missing_capability_in_a_task_group_is_a_failed_call_in_the_handshake_era() -> None:
    async with reach(serving(_asks_in_a_group), HANDSHAKE) as peer:
        result = await peer.call("f")
        assert (result["isError"], "elicitation" in text(result)) == (True, True)


# --- time ------------------------------------------------------------------------------------------------------------


@ERAS
def test_a_tool_that_takes_too_long_is_ended(revision: str) -> None:
    ended: list[str] = []

    async def f() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    result = call(serving(f, timeout=0.01), "f", revision)
    assert (result["isError"], text(result), ended) == (True, "Tool 'f' took longer than 0.01 s.", ["ended"])


def test_a_tool_in_time_answers() -> None:
    async def f() -> str:
        return "quick"

    assert text(call(serving(f, timeout=5), "f")) == "quick"


def test_a_timeout_of_the_tools_own_is_a_failure_like_any_other() -> None:
    async def f() -> None:
        raise TimeoutError("of my own")

    assert text(call(serving(f, timeout=5), "f")) == "Tool 'f' failed unexpectedly."


def test_a_sync_tool_that_takes_too_long_gets_an_error_result() -> None:
    gate = threading.Event()

    def f() -> None:
        gate.wait(5)

    result = call(serving(f, timeout=0.01), "f")
    gate.set()
    assert text(result) == "Tool 'f' took longer than 0.01 s."


# --- single use ------------------------------------------------------------------------------------------------------


async def test_the_state_of_a_single_use_tool_opens_once() -> None:
    done: list[str] = []

    async def f(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", str)
        done.append(str(answer.data))
        return "done"

    params = {"name": "f", "arguments": {}}
    async with reach(serving(f, single_use=True), STATELESS, FORMS) as peer:
        retry = again(params, await peer.result("tools/call", params), accept("yes"))
        first = await peer.result("tools/call", retry)
        second = await peer.error("tools/call", retry)
    assert (text(first), second["code"], done) == ("done", -32602, ["yes"])


async def test_the_state_of_other_tools_opens_again() -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", str)).data)

    params = {"name": "f", "arguments": {}}
    async with reach(serving(f), STATELESS, FORMS) as peer:
        retry = again(params, await peer.result("tools/call", params), accept("yes"))
        assert [text(await peer.result("tools/call", retry)), text(await peer.result("tools/call", retry))] == [
            "yes"
        ] * 2


# --- results ---------------------------------------------------------------------------------------------------------


class Point(Struct):
    x: int
    y: int


@ERAS
@pytest.mark.parametrize(
    ("value", "kind", "structured"),
    [
        pytest.param(Point(1, 2), Point, {"x": 1, "y": 2}, id="struct"),
        pytest.param({"a": 1}, dict[str, int], {"a": 1}, id="dict"),
    ],
)
def test_an_object_is_structured_as_it_is(revision: str, value: Any, kind: Any, structured: Any) -> None:
    async def f() -> Any:
        return value

    f.__annotations__["return"] = kind
    result = call(serving(f), "f", revision)
    assert (result["structuredContent"], msgspec.json.decode(text(result))) == (structured, structured)


@ERAS
async def test_a_client_gets_the_value_that_was_returned(revision: str) -> None:
    async def f() -> list[int]:
        return [1, 2]

    async with Client(serving(f), revision=revision) as client:
        assert (await client.call_tool("f")).data == [1, 2]


@ERAS
def test_content_passes_through(revision: str) -> None:
    link = t.ResourceLink(name="n", uri="x://y")
    result = call(serving(lambda: ["text", link]), "f", revision)
    assert [block["type"] for block in result["content"]] == ["text", "resource_link"]


@ERAS
def test_a_whole_result_passes_through(revision: str) -> None:
    whole = t.CallToolResult(content=[t.TextContent(text="x")], is_error=True)
    assert call(serving(lambda: whole), "f", revision)["isError"] is True


# --- arguments that are not there ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"input_schema": {"type": "object"}}], ids=["signature", "schema"])
@pytest.mark.parametrize("params", [{}, {"arguments": None}], ids=["left-out", "null"])
@ERAS
async def test_arguments_may_be_left_out(revision: str, params: dict[str, Any], options: dict[str, Any]) -> None:
    async with reach(serving(lambda: "called", **options), revision) as peer:
        assert text(await peer.result("tools/call", {"name": "f", **params})) == "called"


def test_arguments_that_middleware_made_are_checked_as_well() -> None:
    async def breaking(request: Any, call_next: Any) -> Any:
        return await call_next(
            request.with_params(msgspec.structs.replace(request.params, arguments=msgspec.Raw(b"{")))
        )

    server = Server("s", middleware=[breaking])
    server.add_tool(lambda **given: given, name="f", input_schema=OBJECT)
    result = call(server, "f")
    assert (result["isError"], text(result).startswith("the arguments are not JSON")) == (True, True)
