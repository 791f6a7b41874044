"""Tools: how they are listed, how they are called, how they fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta
from pydantic import BaseModel, Field, TypeAdapter

import trunkline.types as t
from tests.server.talk import ERAS, FORMS, HANDSHAKE, STATELESS, accept, again, call, reach, text
from trunkline import Context, Server, ToolError
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


def test_annotations_of_a_wrong_type_are_rejected_at_registration() -> None:
    with pytest.raises(TypeError, match="annotations: Expected `bool"):
        serving(lambda: 1, annotations={"readOnlyHint": "very"})


def test_excluded_arguments_are_not_in_the_schema_and_keep_their_default() -> None:
    def f(a: int, secret: int = 5) -> int:
        return a + secret

    server = serving(f, exclude_args=["secret"])
    assert list(listed(server).input_schema["properties"]) == ["a"]
    assert text(call(server, "f", a=1)) == "6"
    assert "unknown argument 'secret'" in text(call(server, "f", a=1, secret=2))


NULLS: dict[str, Any] = {"n": None, "text": None, "note": None, "place": {"name": "x", "height": None}}


@dataclass
class Spot:
    name: str
    height: int = 7


async def with_defaults(n: int = 3, text: str = "a", note: str | None = "b", place: Spot | None = None) -> str:
    return f"{n} {text} {note} {place.height if place else None}"


async def with_fields(
    n: Annotated[int, Field(ge=1)] = 3, text: str = "a", note: str | None = "b", place: dict[str, Any] | None = None
) -> str:
    return f"{n} {text} {note} 7"


async def with_schema(n: int = 3, text: str = "a", note: str | None = "b", place: Any = None) -> str:
    return f"{n} {text} {note} 7"


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "text": {"type": "string"}, "note": {"type": ["string", "null"]}},
}


@pytest.mark.parametrize(
    ("function", "options"),
    [(with_defaults, {}), (with_fields, {}), (with_schema, {"input_schema": SCHEMA})],
    ids=["msgspec", "pydantic", "given schema"],
)
def test_null_for_an_argument_with_a_default_and_without_null_means_the_default(function: Any, options: Any) -> None:
    server = serving(function, **options)
    assert text(call(server, "f", **NULLS)) == "3 a None 7"


class Walk(BaseModel):
    kind: Literal["walk"]
    spot: str
    height: int = 7


class Ride(BaseModel):
    kind: Literal["ride"]
    seats: int


async def plan(days: int, city: str, spots: list[Spot], start: date, mode: Literal["slow", "fast"] = "slow") -> str:
    return "planned"


async def plan_with_fields(
    days: Annotated[int, Field(ge=1)], city: str, spots: list[Walk | Ride], start: date, mode: Literal["slow", "fast"]
) -> str:
    return "planned"


async def plan_by_schema(**arguments: Any) -> str:
    return "planned"


ALL_ERRORS = {
    "msgspec": (
        "unknown argument 'citty'; did you mean 'city'?",
        'days: expected an integer, got "soon"',
        "spots.0: missing member 'name'",
        'spots.1.height: expected an integer, got "high"',
        'start: expected a date (YYYY-MM-DD), got "today"',
        "mode: expected one of 'slow', 'fast', got \"idle\"",
    ),
    "pydantic": (
        "unknown argument 'citty'; did you mean 'city'?",
        'days: expected an integer, got "soon"',
        "spots.0.spot: missing",
        'spots.1.seats: expected an integer, got "many"',
        "start: expected a date",
        "mode: expected 'slow' or 'fast', got \"idle\"",
    ),
    "given schema": ('/days: expected integer, got "soon"', '/start: expected integer, got "today"', '"city"'),
}
PLAN_SCHEMA = {
    "type": "object",
    "properties": {"days": {"type": "integer"}, "start": {"type": "integer"}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("function", "spots", "options", "errors"),
    [
        (plan, [{}, {"name": "x", "height": "high"}], {}, ALL_ERRORS["msgspec"]),
        (plan_with_fields, [{"kind": "walk"}, {"kind": "ride", "seats": "many"}], {}, ALL_ERRORS["pydantic"]),
        (plan_by_schema, [], {"input_schema": PLAN_SCHEMA}, ALL_ERRORS["given schema"]),
    ],
    ids=ALL_ERRORS,
)
def test_all_errors_of_a_call_are_told_at_once(
    function: Any, spots: Any, options: Any, errors: tuple[str, ...]
) -> None:
    arguments = {"days": "soon", "citty": "x", "spots": spots, "start": "today", "mode": "idle"}
    message = text(call(serving(function, **options), "f", **arguments))
    assert message.startswith(f"{len(errors)} errors:\n")
    assert [error for error in errors if error not in message] == []


def test_at_most_ten_errors_are_told() -> None:
    async def f(numbers: list[int]) -> int:
        return 0

    assert text(call(serving(f), "f", numbers=["x"] * 1000)).count("expected an integer") == 10


def test_a_null_in_a_model_means_its_default_too() -> None:
    async def f(walk: Walk) -> int:
        return walk.height

    assert text(call(serving(f), "f", walk={"kind": "walk", "spot": "x", "height": None})) == "7"
    assert text(call(serving(f), "f", walk={"kind": "walk", "spot": None})) == "walk.spot: expected a string, got null"


def test_an_optional_field_has_one_schema() -> None:
    async def f(n: Annotated[int | str | None, Field(description="N")] = None) -> None: ...

    kinds = [{"type": "integer"}, {"type": "string"}, {"type": "null"}]
    assert listed(serving(f)).input_schema["properties"] == {"n": {"anyOf": kinds, "description": "N"}}


@dataclass
class Times:
    at: datetime
    clocks: list[time]
    more: dict[str, tuple[datetime, date]] | None = None


def test_dates_and_times_have_a_format_at_any_depth() -> None:
    async def f(times: Times) -> None: ...

    members = listed(serving(f)).input_schema["properties"]["times"]["properties"]
    pair = [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}]
    assert members["at"] == {"type": "string", "format": "date-time"}
    assert members["clocks"]["items"] == {"type": "string", "format": "time"}
    assert members["more"]["additionalProperties"]["prefixItems"] == pair


@pytest.mark.parametrize(
    ("at", "on", "clock"),
    [
        ("2026-01-02 10:00", "2026-01-02T00:00:00", "10:00"),
        ("2026-01-02T10:00:00.5Z", "2026-01-02", "10:00:00Z"),
        ("2026-01-02", 1767312000, 36000),
        (1767348000, "1767312000", "10:00:00.5"),
        (1767348000000, "2026-01-02", "10:00"),
    ],
)
def test_the_forms_of_dates_and_times_that_pydantic_reads_are_read(at: Any, on: Any, clock: Any) -> None:
    async def f(at: datetime, on: date, clock: time) -> str:
        return f"{at.isoformat()} {on.isoformat()} {clock.isoformat()}"

    kinds: Any = ((at, datetime), (on, date), (clock, time))
    expected = " ".join(TypeAdapter(kind).validate_python(value).isoformat() for value, kind in kinds)
    assert text(call(serving(f), "f", at=at, on=on, clock=clock)) == expected


def test_null_for_a_required_argument_stays_an_error() -> None:
    async def f(n: int) -> int:
        return n

    assert "n: expected an integer, got null" in text(call(serving(f), "f", n=None))


@pytest.mark.parametrize("arguments", [{"n": None}, {"n": "3"}], ids=["null", "a number in text"])
@pytest.mark.parametrize("function", [with_defaults, with_fields], ids=["msgspec", "pydantic"])
def test_strict_arguments_are_read_as_they_are_sent(function: Any, arguments: dict[str, Any]) -> None:
    server = Server("s", strict_arguments=True)
    server.add_tool(function, name="f")
    assert "n: expected an integer" in text(call(server, "f", **arguments))


@pytest.mark.parametrize("option", [{"output_schema": None}, {"structured_output": False}], ids=str)
def test_a_result_may_be_left_unstructured(option: dict[str, Any]) -> None:
    async def f() -> dict[str, int]:
        return {"n": 1}

    server = serving(f, **option)
    assert (listed(server).output_schema, call(server, "f").get("structuredContent")) == (None, None)


# --- schemas written by hand -----------------------------------------------------------------------------------------


def test_a_function_with_a_given_schema_gets_what_the_schema_lets_pass() -> None:
    server = serving(lambda **given: sorted(given.items()), input_schema=OBJECT)
    assert text(call(server, "f", n=1, other="x")) == '[["n",1],["other","x"]]'


@pytest.mark.parametrize(("arguments", "words"), [({"n": "many"}, "/n: expected integer"), ({}, '"n"')])
def test_arguments_that_break_a_given_schema_are_named(arguments: dict[str, Any], words: str) -> None:
    server = serving(lambda **given: given, input_schema=OBJECT)
    result = call(server, "f", **arguments)
    assert listed(server).input_schema == OBJECT
    assert (result["isError"], words in text(result)) == (True, True)


def test_a_function_with_a_given_schema_gets_its_context() -> None:
    async def f(ctx: Context, **given: Any) -> str:
        return f"{ctx.method} {given}"

    def in_a_thread(ctx: Context, n: int) -> str:
        return f"{ctx.method} {n}"

    assert text(call(serving(f, input_schema=OBJECT), "f", n=1)) == "tools/call {'n': 1}"
    assert text(call(serving(in_a_thread, input_schema=OBJECT), "f", n=1)) == "tools/call 1"


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


@pytest.mark.parametrize("value", [{"n": "x"}, "text", None], ids=["wrong-type", "text", "nothing"])
def test_a_result_that_violates_its_given_schema_is_not_sent(value: Any) -> None:
    result = call(serving(lambda: value, output_schema=OBJECT), "f")
    assert (result["isError"], text(result)) == (True, "Tool 'f' failed: its result does not match its output schema.")


def test_a_failure_need_not_fit_the_output_schema() -> None:
    failed = ToolResult("no", is_error=True)
    result = call(serving(lambda: failed, output_schema=OBJECT), "f")
    assert (result["isError"], text(result)) == (True, "no")


# --- arguments in headers --------------------------------------------------------------------------------------------

Region = Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]
Price = Annotated[float, Meta(extra_json_schema={"x-mcp-header": "Price"})]
Spaced = Annotated[str, Meta(extra_json_schema={"x-mcp-header": "no good"})]


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ([Price], "needs a property"),
        ([Spaced], "not a header name"),
        ([Region, Region], "one header, Mcp-Param-R"),
    ],
    ids=["type", "name", "twice"],
)
def test_an_argument_that_no_header_can_hold_is_rejected_at_registration(kinds: list[Any], reason: str) -> None:
    def f(first: str, second: str = "") -> str:
        return first + second

    f.__annotations__.update(zip(("first", "second"), kinds, strict=False))
    with pytest.raises(TypeError, match=f"tool 'f': .*{reason}"):
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


def grouped(error: Exception) -> Callable[[], Any]:
    async def fails() -> None:
        raise error

    async def f() -> None:
        async with asyncio.TaskGroup() as group, asyncio.TaskGroup() as inner:
            group.create_task(asyncio.sleep(0))
            inner.create_task(fails())

    return f


UNEXPECTED = "Tool 'f' failed unexpectedly."


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        pytest.param(failing(ValueError("password=1234")), {}, UNEXPECTED, id="unexpected"),
        pytest.param(failing(ValueError("division")), {"mask": False}, "division", id="with details"),
        pytest.param(failing(SystemExit(2)), {"thread": False}, UNEXPECTED, id="exit"),
        pytest.param(failing(TimeoutError("of my own")), {"timeout": 5}, UNEXPECTED, id="timeout of its own"),
        pytest.param(grouped(ToolError("half failed")), {}, "half failed", id="group, meant for the model"),
        pytest.param(grouped(ValueError("secret")), {}, UNEXPECTED, id="group, unexpected"),
        pytest.param(grouped(ValueError("x")), {"mask": False}, "(1 sub-exception)", id="group, with details"),
    ],
)
def test_the_model_is_told_of_a_failure_what_it_may_know(
    function: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    result = call(serving(function, **options), "f")
    assert (result["isError"], text(result).endswith(said)) == (True, True)


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


async def test_a_request_failed_error_in_a_task_group_is_raised() -> None:
    async with reach(serving(grouped(InvalidParams("Not so"))), HANDSHAKE) as peer:
        assert (await peer.error("tools/call", {"name": "f"}))["message"] == "Not so"


# --- time ------------------------------------------------------------------------------------------------------------


@ERAS
async def test_an_unknown_tool_is_named_in_the_error(revision: str) -> None:
    async with reach(serving(lambda: 1), revision) as peer:
        error = await peer.error("tools/call", {"name": "nope"})
    assert (error["code"], error["message"], error["data"]) == (-32602, "Unknown tool: nope", {"name": "nope"})


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
    assert text(call(serving(lambda: "quick", timeout=5), "f", revision)) == "quick"


def test_a_sync_tool_that_takes_too_long_gets_an_error_result() -> None:
    gate = threading.Event()

    def f() -> None:
        gate.wait(120)

    result = call(serving(f, timeout=0.01), "f")
    gate.set()
    assert text(result) == "Tool 'f' took longer than 0.01 s."


# --- single use ------------------------------------------------------------------------------------------------------


async def test_the_state_of_other_tools_opens_again() -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", str)).data)

    params = {"name": "f", "arguments": {}}
    async with reach(serving(f), STATELESS, FORMS) as peer:
        retry = again(params, await peer.result("tools/call", params), accept("yes"))
        assert [text(await peer.result("tools/call", retry)), text(await peer.result("tools/call", retry))] == [
            "yes"
        ] * 2


# --- arguments that are not there ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"input_schema": {"type": "object"}}], ids=["signature", "schema"])
@pytest.mark.parametrize("params", [{}, {"arguments": None}], ids=["left-out", "null"])
async def test_arguments_may_be_left_out(params: dict[str, Any], options: dict[str, Any]) -> None:
    async with reach(serving(lambda: "called", **options), STATELESS) as peer:
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


async def helper() -> int:
    return 3


async def forgetful() -> int:
    return helper()  # type: ignore[return-value]


def test_a_missing_await_is_told_with_file_and_line_and_made_up_for() -> None:
    with pytest.warns(
        RuntimeWarning, match="forgetful.* returned the coroutine 'helper': an await is missing"
    ) as warned:
        assert text(call(serving(forgetful), "f")) == "3"
    line = forgetful.__code__.co_firstlineno
    assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]


def test_a_misspelt_hint_is_rejected_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"unknown hint 'readOnly'; did you mean 'readOnlyHint'\?"):
        Server("s").tool(annotations={"readOnly": True})(len)


def test_a_method_that_is_decorated_in_its_class_is_rejected() -> None:
    server = Server("s")
    with pytest.raises(TypeError, match=r"as in server\.add_tool\(thing\.rate\)"):

        class Rates:
            @server.tool
            async def rate(self, currency: str) -> float:
                """Return the rate of a currency."""
                return 1.0
